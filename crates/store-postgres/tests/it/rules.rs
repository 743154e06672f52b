//! The rules of the commit that need a database with many writers.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Cancel, Claim, Create, LimitLane, NewTask, Reap, SetLaneState};
use windlass_core::{
    ChangeSet, Command, Decided, Hints, LaneName, LaneState, Outcome, PublicState, Tenant, World,
    decide,
};
use windlass_engine::{Config, Engine, TaskFilter};
use windlass_store::{Store, StoreError, Tx};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_test::execute;
use windlass_store_test::postgres::{Server, url};

use crate::proxy::Proxy;

async fn open(server: &Server) -> PostgresStore {
    PostgresStore::open(&server.url()).await.unwrap()
}

/// Decides one command and stops before the commit.
async fn prepare(store: &dyn Store, command: &Command) -> (Box<dyn Tx>, Outcome, Arc<ChangeSet>) {
    let mut tx = store.begin().await.unwrap();
    let mut world = World::new(tx.now(), Hints::default());
    loop {
        if let Decided::Ready(answer) = decide(&mut world, command) {
            return (tx, answer.unwrap(), Arc::new(world.finish().0));
        }
        let wanted = Arc::new(world.wanted().unwrap());
        let loaded = tx.load(wanted.clone()).await.unwrap();
        world.learn(&wanted, loaded);
    }
}

async fn must(store: &dyn Store, command: impl Into<Command>) -> Outcome {
    execute(store, &command.into()).await.unwrap().unwrap()
}

fn create(id: &str) -> Create {
    Create::one(NewTask::new(id, "k"))
}

fn key(id: &str) -> windlass_core::TaskKey {
    windlass_core::TaskKey { tenant: Tenant::default(), id: id.into() }
}

#[tokio::test]
async fn ten_nodes_start_at_once() {
    let server = Server::start();
    let nodes: Vec<_> = (0..10)
        .map(|_| {
            tokio::spawn({
                let url = server.url();
                async move { PostgresStore::open(&url).await.unwrap().describe().await.unwrap() }
            })
        })
        .collect();
    let mut incarnations = std::collections::BTreeSet::new();
    for node in nodes {
        incarnations.insert(node.await.unwrap().incarnation);
    }
    assert_eq!(incarnations.len(), 1);
}

#[tokio::test]
async fn a_claim_that_read_a_lane_unpaused_does_not_outlive_the_pause() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("t")).await;
    let (tx, claimed, changes) = prepare(&one, &Claim::new("w").into()).await;
    assert!(matches!(claimed, Outcome::Claimed(tasks) if tasks.len() == 1));
    let pause = SetLaneState {
        tenant: Tenant::default(),
        lane: "default".into(),
        state: LaneState::Paused,
    };
    must(&two, pause).await;
    assert!(matches!(tx.commit(changes).await, Err(StoreError::Conflict)));
}

#[tokio::test]
async fn a_key_that_came_and_went_is_not_taken_for_one_that_never_was() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&two, create("other")).await;
    let (tx, _, changes) = prepare(&one, &create("t").into()).await;
    must(&two, create("t")).await;
    must(&two, Cancel { task: key("t"), reason: "no".into() }).await;
    must(&two, Reap { task: key("t") }).await;
    assert!(matches!(tx.commit(changes).await, Err(StoreError::Conflict)));
    must(&one, create("t")).await;
}

#[tokio::test]
async fn two_claims_side_by_side_take_different_tasks() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("a")).await;
    must(&one, create("b")).await;
    let (first, claimed, changes) = prepare(&one, &Claim::new("w").into()).await;
    let (second, other, others) = prepare(&two, &Claim::new("w").into()).await;
    let id = |outcome| match outcome {
        Outcome::Claimed(tasks) => tasks[0].id.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!((id(claimed), id(other)), ("a".into(), "b".into()));
    second.commit(others).await.unwrap();
    first.commit(changes).await.unwrap();
}

/// A lane with a limit is written by every claim: the second waits for the first instead of being
/// too late.
#[tokio::test]
async fn claims_of_a_limited_lane_wait_for_each_other() {
    let server = Server::start();
    let (one, two) = (open(&server).await, open(&server).await);
    must(&one, create("a")).await;
    must(&one, create("b")).await;
    let lane = LaneName::default();
    must(&one, LimitLane { tenant: Tenant::default(), lane, limit: Some(2) }).await;
    let (first, _, changes) = prepare(&one, &Claim::new("w").into()).await;
    let second = tokio::spawn(async move {
        let (second, claimed, changes) = prepare(&two, &Claim::new("w").into()).await;
        assert!(matches!(claimed, Outcome::Claimed(tasks) if tasks[0].id.as_str() == "b"));
        second.commit(changes).await
    });
    server.until("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").await;
    first.commit(changes).await.unwrap();
    second.await.unwrap().unwrap();
    let (_, none, _) = prepare(&one, &Claim::new("w").into()).await;
    assert_eq!(none, Outcome::Claimed(Vec::new()), "both places are taken");
}

/// A reader that asks for what is behind its cursor while others commit misses nothing.
#[tokio::test]
async fn the_log_is_in_the_order_of_the_commits() {
    const EACH: u64 = 40;
    let server = Server::start();
    let reader = open(&server).await;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let url = server.url();
            tokio::spawn(async move {
                let store = PostgresStore::open(&url).await.unwrap();
                for n in 0..EACH {
                    let task = create(&format!("{writer}-{n}")).into();
                    while matches!(execute(&store, &task).await, Err(StoreError::Conflict)) {}
                }
            })
        })
        .collect();
    let mut seen = Vec::new();
    while seen.len() < 4 * EACH as usize {
        let after = seen.last().copied().unwrap_or(0);
        seen.extend(reader.events(after, 7).await.unwrap().into_iter().map(|entry| entry.seq));
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(seen, (1..=4 * EACH).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_looked_up() {
    let server = Server::start();
    let proxy = Proxy::to(server.socket());
    let store = PostgresStore::open(&url(proxy.socket())).await.unwrap();
    // The same statements twice, so that they are known to the connection.
    must(&store, create("first")).await;
    must(&store, create("second")).await;
    let (tx, _, changes) = prepare(&store, &create("t").into()).await;
    proxy.lose_answers(true);
    let Err(StoreError::OutcomeUnknown(ticket)) = tx.commit(changes).await else { panic!() };
    proxy.lose_answers(false);
    assert!(store.outcome(&ticket).await.unwrap());
    let engine = Engine::start(store, Config::default()).await.unwrap();
    assert_eq!(engine.task(&key("t")).await.unwrap().unwrap().id.as_str(), "t");
}

#[tokio::test]
async fn a_batch_whose_connection_is_cut_before_its_commit_did_not_happen() {
    let server = Server::start();
    let (store, other) = (open(&server).await, open(&server).await);
    must(&store, create("first")).await;
    let (tx, _, changes) = prepare(&store, &create("t").into()).await;
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE state = 'idle in transaction'",
    );
    match tx.commit(changes).await {
        Err(StoreError::OutcomeUnknown(ticket)) => {
            assert!(!store.outcome(&ticket).await.unwrap());
        }
        Err(StoreError::Unavailable(_)) => {}
        other => panic!("{other:?}"),
    }
    must(&other, create("t")).await;
}

/// After a crash Postgres gives the names of transactions that left no trace a second time.
#[tokio::test]
async fn a_commit_is_not_taken_for_one_of_the_same_name_after_a_crash() {
    let server = Server::start();
    let store = open(&server).await;
    // The same statements twice, so that they are known to the connection.
    must(&store, create("first")).await;
    must(&store, create("second")).await;
    let (tx, _, changes) = prepare(&store, &create("t").into()).await;
    server.control("restart -m immediate");
    let Err(StoreError::OutcomeUnknown(ticket)) = tx.commit(changes).await else { panic!() };
    let other = open(&server).await;
    for n in 0..8 {
        must(&other, create(&n.to_string())).await;
    }
    let said = server.sql(&format!("SELECT pg_xact_status('{}'::xid8)", ticket.0));
    assert_eq!(said, "committed", "the name was not given again");
    assert!(store.outcome(&ticket).await.is_err());
    must(&other, create("t")).await;
}

/// A node that is stopped in the middle of a batch holds what it looked at for no longer than its
/// patience lasts.
#[tokio::test]
async fn a_stopped_node_holds_nothing() {
    let server = Server::start();
    let options = Options { patience: Duration::from_millis(300), ..Options::default() };
    let config = server.url().parse().unwrap();
    let stopped = PostgresStore::open_with(config, options).await.unwrap();
    let engine = Engine::start(open(&server).await, Config::default()).await.unwrap();
    engine.submit(create("t")).await.unwrap();
    let (tx, _, changes) = prepare(&stopped, &Claim::new("stopped").into()).await;
    assert!(engine.claim(Claim::new("w"), Duration::ZERO).await.unwrap().is_empty());
    let claimed = loop {
        let claimed = engine.claim(Claim::new("w"), Duration::from_millis(50)).await.unwrap();
        if !claimed.is_empty() {
            break claimed;
        }
    };
    assert_eq!(claimed[0].task.id.as_str(), "t");
    assert!(tx.commit(changes).await.is_err());
}

/// What a batch locked and let go wakes the claims of other nodes that had passed it over.
#[tokio::test]
async fn what_is_let_go_is_found() {
    let server = Server::start();
    let store = open(&server).await;
    let engine = Engine::start(open(&server).await, Config::default()).await.unwrap();
    engine.submit(create("t")).await.unwrap();
    let (tx, _, _) = prepare(&store, &Claim::new("gone").into()).await;
    let waiting = engine.clone();
    let claim = tokio::spawn(async move {
        waiting.claim(Claim::new("w"), Duration::from_secs(60)).await.unwrap()
    });
    while engine.stats().batches < 2 {
        tokio::task::yield_now().await;
    }
    drop(tx);
    assert_eq!(claim.await.unwrap()[0].task.id.as_str(), "t");
}

#[tokio::test]
async fn two_engines_share_the_work() {
    const TASKS: usize = 400;
    let server = Server::start();
    let one = Engine::start(open(&server).await, Config::default()).await.unwrap();
    let two = Engine::start(open(&server).await, Config::default()).await.unwrap();
    for n in 0..TASKS {
        one.submit(create(&n.to_string())).await.unwrap();
    }
    let drain = |engine: Engine| async move {
        let mut done = 0;
        loop {
            let claim = Claim { limit: 5, ..Claim::new("w") };
            let claimed = engine.claim(claim, Duration::from_millis(500)).await.unwrap();
            if claimed.is_empty() {
                return done;
            }
            for claimed in claimed {
                let complete =
                    windlass_core::command::Complete { fence: claimed.task.fence(), result: None };
                engine.submit(complete).await.unwrap();
                done += 1;
            }
        }
    };
    let (first, second) = tokio::join!(drain(one.clone()), drain(two.clone()));
    assert_eq!(first + second, TASKS);
    assert!(first > 0 && second > 0, "{first} and {second}");
    let filter = TaskFilter { state: Some(PublicState::Completed), ..TaskFilter::default() };
    let completed = two.tasks(&Tenant::default(), &filter, None, 1_000).await.unwrap();
    assert_eq!(completed.len(), TASKS);
    assert!(completed.iter().all(|task| task.claims == 1));
}
