//! Several nodes on one database.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinHandle;
use windlass_core::command::{Claim, Complete};
use windlass_core::{Outcome, PublicState, Tenant};
use windlass_engine::{Config, Engine, Error, TaskFilter};
use windlass_store::Store;
use windlass_store_postgres::PostgresStore;
use windlass_store_test::postgres::Server;

use crate::stage::{create, engine, open, open_impatient, prepare};

#[tokio::test]
async fn ten_nodes_start_concurrently() {
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

/// A node that is stopped in the middle of a batch holds its locks no longer than its timeout.
#[tokio::test]
async fn a_stopped_node_loses_its_locks() {
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
    let claimed = tokio::time::timeout(Duration::from_secs(20), claim).await.expect("it is locked");
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

/// Creates and leases tasks, locks their rows like an operator, and settles them.
async fn settle_held(
    server: &Server,
    engine: &Engine,
    tasks: u32,
    lease_ms: u64,
) -> (tokio_postgres::Client, Vec<JoinHandle<Result<Outcome, Error>>>) {
    for n in 0..tasks {
        engine.submit(create(&format!("held {n}"))).await.unwrap();
    }
    let claim = Claim { lease_ms, limit: tasks, ..Claim::new("w") };
    let claimed = engine.claim(claim, Duration::ZERO).await.unwrap();
    assert_eq!(claimed.len(), tasks as usize);
    let (operator, _) = windlass_store_postgres::connect(&server.url()).await.unwrap();
    let hold = "BEGIN; SELECT 1 FROM windlass.task WHERE id LIKE 'held%' FOR UPDATE";
    operator.batch_execute(hold).await.unwrap();
    let settle = |fence| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.submit(Complete { fence, result: None }).await })
    };
    (operator, claimed.iter().map(|claimed| settle(claimed.task.fence())).collect())
}

/// Rows locked by an operator block only commands that need these rows: not when they are settled,
/// and not when their leases expire.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_blocks_only_commands_that_need_it() {
    let server = Server::start();
    let engine = engine(&server).await;
    let (_operator, settling) = settle_held(&server, &engine, 5, 1_000).await;
    let mut made = 0;
    while settling.iter().any(|settled| !settled.is_finished()) {
        let create = engine.submit(create(&format!("other {made}")));
        let outcome = tokio::time::timeout(Duration::from_secs(5), create).await;
        outcome.expect("the create does not wait for the row").unwrap();
        made += 1;
    }
    assert!(made > 100, "{made} tasks were created");
}

/// Commands that need locked rows fail in the end, also if many rows are locked.
#[tokio::test(flavor = "multi_thread")]
async fn commands_that_need_locked_rows_fail_in_the_end() {
    let server = Server::start();
    let engine = engine(&server).await;
    let (_operator, settling) = settle_held(&server, &engine, 5, 1_000).await;
    for settled in settling {
        let settled = tokio::time::timeout(Duration::from_secs(60), settled).await;
        settled.expect("it fails").unwrap().expect_err("the row was locked all the time");
    }
}

/// Even if most commands need locked rows, the others among them succeed.
#[tokio::test(flavor = "multi_thread")]
async fn many_locked_rows_block_only_commands_that_need_them() {
    const TASKS: usize = 120;
    let server = Server::start();
    let engine = engine(&server).await;
    for n in 0..TASKS {
        engine.submit(create(&format!("{} {n}", ["held", "free"][n % 2]))).await.unwrap();
    }
    let claim = Claim { limit: 500, ..Claim::new("w") };
    let claimed = engine.claim(claim, Duration::ZERO).await.unwrap();
    assert_eq!(claimed.len(), TASKS);
    let (operator, _) = windlass_store_postgres::connect(&server.url()).await.unwrap();
    let hold = "BEGIN; SELECT 1 FROM windlass.task WHERE id LIKE 'held%' FOR UPDATE";
    operator.batch_execute(hold).await.unwrap();
    let settling = claimed.iter().map(|claimed| {
        let (engine, fence) = (engine.clone(), claimed.task.fence());
        tokio::spawn(async move { engine.submit(Complete { fence, result: None }).await })
    });
    for (claimed, settling) in claimed.iter().zip(settling.collect::<Vec<_>>()) {
        let (settled, id) = (settling.await.unwrap(), claimed.task.id.as_str());
        assert_eq!(settled.is_ok(), id.starts_with("free"), "{id}: {settled:?}");
    }
}

/// Deferred jobs are retried while others write the log all the time.
#[tokio::test(flavor = "multi_thread")]
async fn deferred_jobs_are_not_starved_by_other_commits() {
    let server = Server::start();
    let engine = engine(&server).await;
    let (operator, settling) = settle_held(&server, &engine, 1, 60_000).await;
    server.sql(
        "CREATE FUNCTION windlass.nap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM pg_sleep(0.02); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER nap AFTER INSERT ON windlass.task DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION windlass.nap()",
    );
    let mut others = Vec::new();
    for node in 0..4 {
        let other = Engine::with_store(open(&server).await, Config::default()).await.unwrap();
        for caller in 0..2 {
            let other = other.clone();
            others.push(tokio::spawn(async move {
                for n in 0.. {
                    other.submit(create(&format!("{node} {caller} {n}"))).await.unwrap();
                }
            }));
        }
    }
    // The first conflict defers the job; the second one occurs with the short lock timeout.
    while engine.stats().conflicts < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    operator.batch_execute("ROLLBACK").await.unwrap();
    for settled in settling {
        settled.await.unwrap().unwrap();
    }
    others.iter().for_each(JoinHandle::abort);
}
