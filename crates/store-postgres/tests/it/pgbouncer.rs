//! Through PgBouncer in transaction mode, where each transaction may use another connection.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_core::command::{Claim, Complete, Create, NewTask};
use windlass_core::{Command, PublicState, Rejection, Tenant};
use windlass_engine::{Config, Engine, Error, TaskFilter};
use windlass_store::Store as _;
use windlass_store_postgres::{PostgresStore, connect};
use windlass_store_test::bouncer::Bouncer;
use windlass_store_test::execute;
use windlass_store_test::postgres::Server;

use crate::stage::{create, must, prepare};

async fn engine(url: &str) -> Engine {
    let store = PostgresStore::open(url).await.unwrap();
    Engine::with_store(store, Config::default()).await.unwrap()
}

/// Retries until the pooler is reachable.
async fn persist<T, F: Future<Output = Result<T, Error>>>(
    missed: &AtomicUsize,
    mut ask: impl FnMut() -> F,
) -> Result<T, Rejection> {
    loop {
        match ask().await {
            Ok(outcome) => return Ok(outcome),
            Err(Error::Rejected(rejection)) => return Err(rejection),
            Err(Error::Store(_) | Error::OutcomeUnknown) => {
                missed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// How often each task was completed, as counted by its workers.
type Account = Mutex<BTreeMap<String, usize>>;

async fn drain(engine: Engine, tasks: usize, account: Arc<Account>, missed: Arc<AtomicUsize>) {
    let done = || account.lock().unwrap().len();
    while done() < tasks {
        let claim = Claim { limit: 50, lease_ms: 2_000, ..Claim::new("w") };
        let claimed = persist(&missed, || engine.claim(claim.clone(), Duration::from_millis(200)));
        for claimed in claimed.await.unwrap() {
            let complete = Complete { fence: claimed.task.fence(), result: None };
            // If the lease expired during the outage, another worker has the task.
            if persist(&missed, || engine.submit(complete.clone())).await.is_ok() {
                let id = claimed.task.id.to_string();
                *account.lock().unwrap().entry(id).or_default() += 1;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_lose_nothing_when_pgbouncer_dies() {
    const TASKS: usize = 3_000;
    let server = Server::start();
    let mut bouncer = Bouncer::start(&server, "transaction", 4);
    let (one, two) = (engine(&bouncer.url()).await, engine(&bouncer.url()).await);
    let (missed, account) = (Arc::new(AtomicUsize::new(0)), Arc::new(Account::default()));
    for chunk in (0..TASKS).collect::<Vec<_>>().chunks(500) {
        let tasks = chunk.iter().map(|n| NewTask::new(format!("{n:05}").as_str(), "k")).collect();
        let create: Command = Create { tenant: Tenant::default(), tasks }.into();
        one.submit(create).await.unwrap();
    }
    let workers: Vec<_> = [&one, &two, &one, &two]
        .into_iter()
        .map(|engine| tokio::spawn(drain(engine.clone(), TASKS, account.clone(), missed.clone())))
        .collect();
    for part in 1..=3 {
        while account.lock().unwrap().len() < TASKS * part / 4 {
            tokio::task::yield_now().await;
        }
        bouncer.kill();
        let before = missed.load(Ordering::Relaxed);
        while missed.load(Ordering::Relaxed) == before {
            tokio::task::yield_now().await;
        }
        bouncer.restart();
    }
    for worker in workers {
        worker.await.unwrap();
    }
    let twice = account.lock().unwrap().iter().filter(|(_, times)| **times > 1).count();
    assert_eq!(twice, 0, "the fence lets each task be completed once");
    let filter = TaskFilter { state: Some(PublicState::Completed), ..TaskFilter::default() };
    let mut completed = 0;
    let mut after = None;
    loop {
        let page = two.tasks(&Tenant::default(), &filter, after.as_ref(), 1_000).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        completed += page.len();
    }
    assert_eq!(completed, TASKS);
}

/// LISTEN does not work through it: polling the clock finds tasks of other nodes.
#[tokio::test]
async fn a_waiting_claim_is_woken_by_another_node() {
    let server = Server::start();
    let bouncer = Bouncer::start(&server, "transaction", 4);
    let (one, two) = (engine(&bouncer.url()).await, engine(&bouncer.url()).await);
    for round in 0..3 {
        let waiting = two.clone();
        let claim = Claim { lease_ms: 3_600_000, ..Claim::new("w") };
        let claim =
            tokio::spawn(async move { waiting.claim(claim, Duration::from_secs(60)).await });
        let id = format!("t{round}");
        one.submit(Create::one(NewTask::new(id.as_str(), "k"))).await.unwrap();
        assert_eq!(claim.await.unwrap().unwrap()[0].task.id.as_str(), id);
    }
}

/// A commit with an earlier time than the latest one still raises the polled clock.
#[tokio::test]
async fn the_notification_of_a_late_commit_is_not_lost() {
    let server = Server::start();
    let bouncer = Bouncer::start(&server, "transaction", 4);
    let open = async || PostgresStore::open(&bouncer.url()).await.unwrap();
    let (one, two, other) = (open().await, open().await, open().await);
    let mut notifications = other.notifications();
    must(&one, create("first")).await;
    notifications.next().await.unwrap();
    let late = prepare(&one, create("late")).await;
    must(&two, create("early")).await;
    notifications.next().await.unwrap();
    late.commit().await.unwrap();
    let heard = tokio::time::timeout(Duration::from_secs(60), notifications.next()).await;
    assert!(heard.expect("polling finds the commit").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbouncer_is_detected() {
    const TASKS: usize = 300;
    let server = Server::start();
    let bouncer = Bouncer::start(&server, "transaction", 3);
    let (one, two) = (engine(&bouncer.plain_url()).await, engine(&bouncer.plain_url()).await);
    for n in 0..TASKS {
        let id = format!("{n:05}");
        one.submit(Create::one(NewTask::new(id.as_str(), "k"))).await.unwrap();
    }
    let (missed, account) = (Arc::new(AtomicUsize::new(0)), Arc::new(Account::default()));
    let workers = [&one, &two]
        .map(|engine| tokio::spawn(drain(engine.clone(), TASKS, account.clone(), missed.clone())));
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!((account.lock().unwrap().len(), missed.load(Ordering::Relaxed)), (TASKS, 0));
    // LISTEN is not used: its notifications would arrive on an unassigned connection.
    let log = std::fs::read_to_string(server.socket().join("pgbouncer.log")).unwrap();
    assert!(!log.contains("when not linked"), "{log}");
}

/// With `prepare=on` the error explains the problem as soon as the connection changes.
#[tokio::test]
async fn an_unknown_prepared_statement_is_explained() {
    let server = Server::start();
    let bouncer = Bouncer::start(&server, "transaction", 2);
    let url = format!("{}&prepare=on", bouncer.plain_url());
    let store = PostgresStore::open(&url).await.unwrap();
    let error = loop {
        // Occupies one of the two connections.
        let (client, _) = connect(&bouncer.url()).await.unwrap();
        client.batch_execute("BEGIN; SELECT 1").await.unwrap();
        match execute(&store, &create("t").into()).await {
            Ok(_) => client.batch_execute("ROLLBACK").await.unwrap(),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), "store_unavailable");
    assert!(error.to_string().contains("prepare=off in the URL"), "{error}");
}
