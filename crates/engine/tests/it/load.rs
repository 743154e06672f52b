use windlass_core::command::{Create, NewTask, Renew};
use windlass_core::{Command, Payload, Tenant};
use windlass_engine::{Config, Error, TaskFilter};

use crate::stage::{Stage, claim, claim_now, complete, create, fence, quiet};

fn codes(results: &[Result<(), Error>]) -> (usize, usize) {
    let rejected = results.iter().filter(|a| a.as_ref().is_err_and(|e| e.code() == "overloaded"));
    (results.len() - rejected.clone().count(), rejected.count())
}

async fn all_at_once(stage: &Stage, commands: Vec<Command>) -> Vec<Result<(), Error>> {
    let calls: Vec<_> = commands
        .into_iter()
        .map(|command| {
            let engine = stage.engine.clone();
            tokio::spawn(async move { engine.submit(command).await.map(|_| ()) })
        })
        .collect();
    let mut results = Vec::new();
    for call in calls {
        results.push(call.await.unwrap());
    }
    results
}

#[tokio::test]
async fn overload_rejects_commands_and_loses_none() {
    let stage = Stage::with(Config { queue_commands: 10, ..quiet() }).await;
    let commands = (0..30).map(|n| create(&format!("{n:02}")).into()).collect();
    let results = all_at_once(&stage, commands).await;
    assert_eq!(codes(&results), (10, 20));
    let stored =
        stage.engine.tasks(&Tenant::default(), &TaskFilter::default(), None, 100).await.unwrap();
    assert_eq!(stored.len(), 10);
    assert!(stage.engine.submit(create("30")).await.is_ok(), "the queue accepts commands again");
}

#[tokio::test]
async fn queued_rows_and_bytes_are_bounded() {
    let bulk = |n: usize| {
        let tasks = (0..100).map(|m| NewTask::new(format!("{n}-{m}"), "k")).collect();
        Command::from(Create { tenant: Tenant::default(), tasks })
    };
    let stage = Stage::with(Config { queue_rows: 250, ..quiet() }).await;
    let results = all_at_once(&stage, (0..5).map(bulk).collect()).await;
    assert_eq!(codes(&results), (2, 3));

    let heavy = |n: usize| {
        let payload = Some(Payload::new("a/b", vec![0; 1_000]));
        Command::from(Create::one(NewTask { payload, ..NewTask::new(n.to_string(), "k") }))
    };
    let stage = Stage::with(Config { queue_bytes: 2_500, ..quiet() }).await;
    let results = all_at_once(&stage, (0..5).map(heavy).collect()).await;
    assert_eq!(codes(&results), (2, 3));
}

#[tokio::test]
async fn commands_that_keep_a_lease_go_first() {
    let stage = Stage::with(Config { batch_commands: 1, ..quiet() }).await;
    stage.engine.submit(create("held")).await.unwrap();
    claim_now(&stage.engine).await;
    let mut commands: Vec<Command> = (0..5).map(|n| create(&n.to_string()).into()).collect();
    commands.push(Renew { fence: fence(&stage.engine, "held", 1).await, lease_ms: 60_000 }.into());
    commands.push(complete(&stage.engine, "held", 1).await.into());
    for result in all_at_once(&stage, commands).await {
        result.unwrap();
    }
    let events = stage.memory.snapshot();
    let order: Vec<_> = events.events_after(0).map(|logged| logged.name).collect();
    let at = |name: &str| order.iter().position(|n| n == name).unwrap();
    assert!(at("renewed") < at("completed"));
    let last_created = order.iter().rposition(|name| name == "created").unwrap();
    assert!(at("completed") < last_created - 3, "{order:?}");
}

#[tokio::test]
async fn concurrent_callers_share_a_commit() {
    let stage = Stage::new().await;
    let commands = (0..200).map(|n| create(&format!("{n}")).into()).collect();
    all_at_once(&stage, commands).await.into_iter().for_each(|result| result.unwrap());
    let claims = (0..200).map(|_| claim().into()).collect();
    let before = stage.engine.stats();
    all_at_once(&stage, claims).await.into_iter().for_each(|result| result.unwrap());
    let after = stage.engine.stats();
    assert_eq!(after.batches - before.batches, 1);
    assert!(after.rounds - before.rounds <= 3, "{} rounds", after.rounds - before.rounds);
    assert_eq!(stage.engine.describe().await.unwrap().commits, 2);
    let tasks =
        stage.engine.tasks(&Tenant::default(), &TaskFilter::default(), None, 1_000).await.unwrap();
    assert!(tasks.iter().all(|task| task.claims == 1), "each task was claimed once");
}

/// The commands that wait longest under constant load: a sweep, and a create among renewals.
#[tokio::test]
async fn no_queue_starves() {
    let stage = Stage::with(Config { batch_commands: 1, ..quiet() }).await;
    stage.engine.submit(create("held")).await.unwrap();
    claim_now(&stage.engine).await;
    let renewal = Renew { fence: fence(&stage.engine, "held", 1).await, lease_ms: 60_000 };
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let (engine, renewal) = (stage.engine.clone(), renewal.clone());
            tokio::spawn(async move { while engine.submit(renewal.clone()).await.is_ok() {} })
        })
        .collect();
    let before = stage.engine.stats().batches;
    stage.engine.sweep().await.unwrap();
    stage.engine.submit(create("other")).await.unwrap();
    let took = stage.engine.stats().batches - before;
    assert!(took < 20, "{took} batches went first");
    callers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_job_over_the_queue_limits_is_too_large_not_overloaded() {
    let stage = Stage::with(Config { queue_commands: 10, ..quiet() }).await;
    let commands = (0..11).map(|n| create(&n.to_string()).into()).collect();
    let rejected = stage.engine.submit_many(commands).await.unwrap_err();
    assert_eq!(rejected.code(), "too_large");
    let greedy = windlass_core::command::Claim { limit: 300_000, ..claim() };
    assert_eq!(stage.engine.submit(greedy).await.unwrap_err().code(), "invalid");
}
