//! Several nodes on one database.

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_core::command::{Claim, Complete};
use windlass_core::{PublicState, Tenant};
use windlass_engine::{Engine, TaskFilter};
use windlass_store::Store;
use windlass_store_postgres::PostgresStore;
use windlass_store_test::postgres::Server;

use crate::stage::{create, engine, open_impatient, prepare};

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
    let mut incarnations = BTreeSet::new();
    for node in nodes {
        incarnations.insert(node.await.unwrap().incarnation);
    }
    assert_eq!(incarnations.len(), 1);
}

/// A node that is stopped in the middle of a batch holds what it looked at for no longer than its
/// patience lasts.
#[tokio::test]
async fn a_stopped_node_holds_nothing() {
    let server = Server::start();
    let stopped = open_impatient(&server, Duration::from_millis(300)).await;
    let engine = engine(&server).await;
    engine.submit(create("t")).await.unwrap();
    let batch = prepare(&stopped, Claim::new("stopped")).await;
    assert!(engine.claim(Claim::new("w"), Duration::ZERO).await.unwrap().is_empty());
    let claim = async {
        loop {
            let claimed = engine.claim(Claim::new("w"), Duration::from_millis(50)).await.unwrap();
            if !claimed.is_empty() {
                break claimed;
            }
        }
    };
    let claimed = tokio::time::timeout(Duration::from_secs(20), claim).await.expect("it is held");
    assert_eq!(claimed[0].task.id.as_str(), "t");
    assert!(batch.commit().await.is_err());
}

#[tokio::test]
async fn two_engines_share_the_work() {
    const TASKS: usize = 400;
    let server = Server::start();
    let (one, two) = (engine(&server).await, engine(&server).await);
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
                let complete = Complete { fence: claimed.task.fence(), result: None };
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

/// A row that an operator has locked is in nobody's way but of those who need that very row: not
/// when it is settled, and not when its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_holds_stops_nobody_else() {
    let server = Server::start();
    let engine = engine(&server).await;
    engine.submit(create("held")).await.unwrap();
    let claim = Claim { lease_ms: 1_000, ..Claim::new("w") };
    let claimed = engine.claim(claim, Duration::ZERO).await.unwrap();
    let (operator, _) = windlass_store_postgres::connect(&server.url()).await.unwrap();
    let hold = "BEGIN; SELECT 1 FROM windlass.task WHERE id = 'held' FOR UPDATE";
    operator.batch_execute(hold).await.unwrap();
    let fence = claimed[0].task.fence();
    let settling = tokio::spawn({
        let engine = engine.clone();
        async move { engine.submit(Complete { fence, result: None }).await }
    });
    let mut made = 0;
    while !settling.is_finished() {
        let create = engine.submit(create(&format!("other {made}")));
        let answer = tokio::time::timeout(Duration::from_secs(9), create).await;
        answer.expect("it does not wait for the row").unwrap();
        made += 1;
    }
    assert!(settling.await.unwrap().is_err(), "the row was held all the time");
    assert!(made > 20, "{made} were made");
}
