//! The event log: its order, its sequence numbers, and what could block it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use windlass_core::Timestamp;
use windlass_core::command::{Claim, Complete, NewMessage, Renew, SendMessages};
use windlass_engine::{Config, Engine};
use windlass_store::{ManualClock, Store, StoreError};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_test::postgres::Server;
use windlass_store_test::{execute, time_order};

use crate::stage::{create, must, open, prepare};

/// Longer than any step here takes.
const NEVER: Duration = Duration::from_secs(20);

/// A session of another program.
async fn session(server: &Server, database: &str) -> Client {
    let url = server.url().replace("/postgres?", &format!("/{database}?"));
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Reads repeatedly from its cursor until `stop`; returns every sequence number it saw.
async fn read_on(store: PostgresStore, stop: Arc<AtomicBool>) -> Vec<u64> {
    let mut seen: Vec<u64> = Vec::new();
    loop {
        let last_look = stop.load(Ordering::SeqCst);
        let after = seen.last().copied().unwrap_or(0);
        let events = store.events(after, 7).await.unwrap();
        if last_look && events.is_empty() {
            return seen;
        }
        seen.extend(events.into_iter().map(|entry| entry.seq));
        tokio::task::yield_now().await;
    }
}

/// Three commits are blocked at the log insert. Once released, each gets its number after the
/// previous one is committed, and none of them is decided again.
#[tokio::test]
async fn blocked_commits_wait_for_their_sequence_numbers() {
    let server = Server::start();
    let stores = [open(&server).await, open(&server).await, open(&server).await];
    for store in &stores {
        must(store, create(&format!("first {:p}", std::ptr::from_ref(store)))).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read_on(open(&server).await, stop.clone()));
    // The next number is taken by a transaction that will be rolled back.
    let holder = session(&server, "postgres").await;
    let take = "BEGIN; INSERT INTO windlass.event SELECT 4, at, tenant, lane, task, kind, category, \
        name, body FROM windlass.event WHERE seq = 1";
    holder.batch_execute(take).await.unwrap();
    let mut commits = Vec::new();
    for (n, store) in stores.iter().enumerate() {
        let prepared = prepare(store, create(&n.to_string())).await;
        commits.push(tokio::spawn(prepared.commit()));
    }
    server.until("SELECT count(*) = 3 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    for commit in commits {
        commit.await.unwrap().unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    assert_eq!(reader.await.unwrap(), (1..=6).collect::<Vec<_>>());
}

/// A reader that polls from its cursor while others commit misses no event.
#[tokio::test]
async fn the_log_is_in_commit_order() {
    const EACH: u64 = 40;
    let server = Server::start();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read_on(open(&server).await, stop.clone()));
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
    for writer in writers {
        writer.await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    assert_eq!(reader.await.unwrap(), (1..=4 * EACH).collect::<Vec<_>>());
}

/// A long-running transaction, here or in another database, blocks neither writers nor readers of
/// the log.
#[tokio::test]
async fn an_open_transaction_does_not_block_the_log() {
    let server = Server::start();
    server.sql("CREATE DATABASE other");
    let writer = Engine::with_store(open(&server).await, Config::default()).await.unwrap();
    let reader = Engine::with_store(open(&server).await, Config::default()).await.unwrap();
    let mut subscription = reader.subscribe(None).await.unwrap();
    let mut open_transactions = Vec::new();
    let with_xid = "BEGIN; SELECT pg_current_xact_id()";
    let with_snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    let that_wrote =
        "BEGIN; CREATE TABLE IF NOT EXISTS theirs (x int); INSERT INTO theirs VALUES (1)";
    for (n, (database, begin)) in [
        ("postgres", with_xid),
        ("postgres", with_snapshot),
        ("postgres", that_wrote),
        ("other", with_xid),
        ("other", with_snapshot),
        ("other", that_wrote),
    ]
    .into_iter()
    .enumerate()
    {
        let holder = session(&server, database).await;
        holder.batch_execute(begin).await.unwrap();
        open_transactions.push(holder);
        let id = n.to_string();
        writer.submit(create(&id)).await.unwrap();
        let events = tokio::time::timeout(NEVER, subscription.next()).await;
        let events = events.unwrap_or_else(|_| panic!("stalled by {begin:?} in {database}"));
        let tasks: Vec<_> = events.unwrap().into_iter().filter_map(|event| event.task).collect();
        assert_eq!(tasks, [id.as_str().into()], "{begin:?} in {database}");
    }
}

/// Sequence numbers continue after retention has emptied the log, also if the server crashes
/// directly after the reply.
#[tokio::test]
async fn the_sequence_of_a_fully_trimmed_log_continues() {
    let server = Server::start();
    let mut last = 0;
    for round in 0..6 {
        let retention = Config { event_retention: Duration::ZERO, ..Config::default() };
        let config = Config { background: false, ..retention };
        let engine = Engine::with_store(open(&server).await, config).await.unwrap();
        engine.submit(create(&format!("{round}"))).await.unwrap();
        let described = engine.describe().await.unwrap().last_seq;
        assert_eq!(described, last + 1, "round {round}");
        last = described;
        // Retention trims entries older than the time of its batch.
        while engine.trim_log().await.unwrap() == 0 {}
        if round % 2 == 0 {
            server.control("restart -m immediate");
        }
        let left = "SELECT count(*) || ' left behind ' || \
            (SELECT last_value FROM windlass.log_trimmed_through) FROM windlass.event";
        assert_eq!(server.sql(left), format!("0 left behind {last}"));
    }
}

/// Two engines with two batches each, and callers that share tasks: the times of one task never
/// decrease, and those of the log by no more than the store's timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_times_of_a_task_never_decrease() {
    let server = Server::start();
    let config = || Config { max_concurrent_batches: Some(2), ..Config::default() };
    let engines = [
        Engine::with_store(open(&server).await, config()).await.unwrap(),
        Engine::with_store(open(&server).await, config()).await.unwrap(),
    ];
    let callers: Vec<_> = (0..32_usize)
        .map(|n| tokio::spawn(work(engines[n % 2].clone(), engines[(n / 2) % 2].clone(), n)))
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let entries = open(&server).await.events(0, 100_000).await.unwrap();
    let order = time_order::check(&entries);
    println!("{order:?}");
    assert!(order.entries > 1_500, "{order:?}");
    assert!(order.most_ms <= 5_000, "{order:?}");
}

/// Creates tasks on one engine, and completes tasks leased from another.
async fn work(maker: Engine, taker: Engine, number: usize) {
    for n in 0..12 {
        maker.submit(create(&format!("{number}-{n}"))).await.unwrap();
        let claim = Claim { limit: 2, ..Claim::new(format!("w{number}")) };
        for claimed in taker.claim(claim, Duration::from_millis(50)).await.unwrap() {
            let (fence, lease_ms) = (claimed.task.fence(), 60_000);
            let send = SendMessages::one(NewMessage::new(claimed.task.id.clone(), "go", "ops"));
            let renew = maker.submit(Renew { fence: fence.clone(), lease_ms });
            let (renewed, sent) = tokio::join!(renew, taker.submit(send));
            renewed.and(sent).unwrap();
            maker.submit(Complete { fence, result: None }).await.unwrap();
        }
    }
}

/// A batch whose time is older than the store's timeout is decided again, so the log is out of
/// order by no more than that.
#[tokio::test]
async fn a_batch_with_a_too_old_time_is_retried() {
    let server = Server::start();
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)));
    let options = || Options { clock: Some(clock.clone()), ..Options::default() };
    let url = || server.url().parse().unwrap();
    let store = PostgresStore::open_with(url(), options()).await.unwrap();
    // Creates the lane.
    must(&store, create("first")).await;
    for (later_ms, fits) in [(5_000, true), (5_001, false)] {
        let prepared = prepare(&store, create(&format!("early-{later_ms}"))).await;
        clock.advance_ms(later_ms);
        must(&store, create(&format!("late-{later_ms}"))).await;
        let committed = prepared.commit().await;
        assert_eq!(committed.is_ok(), fits, "{later_ms}: {committed:?}");
        if !fits {
            assert!(matches!(committed, Err(StoreError::Conflict)), "{committed:?}");
        }
    }
    let order = time_order::check(&store.events(0, 100).await.unwrap());
    assert_eq!((order.falls, order.most_ms), (1, 5_000));
}

/// The same through the store alone, as for every store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_keep_the_times_of_a_task_in_order() {
    let server = Server::start();
    let handles: [Arc<dyn Store>; 2] =
        [Arc::new(open(&server).await), Arc::new(open(&server).await)];
    let order = time_order::run(&handles).await;
    println!("{order:?}");
    assert!(order.entries > 500 && order.most_ms <= 5_000, "{order:?}");
}
