//! Engines on a SQLite file, alone and sharing it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass_core::command::{Create, Delay, NewTask};
use windlass_core::{Outcome, Payload, Settled, Tenant};
use windlass_engine::{Config, Engine, TaskFilter, TaskInput};
use windlass_store::{Failpoints, Fault};
use windlass_store_sqlite::{Options, SqliteStore};

use crate::stage::{claim, claim_now, complete, create, created, ids, key, quiet};

async fn open(path: &Path) -> Engine {
    Engine::with_store(SqliteStore::open(path).unwrap(), Config::default()).await.unwrap()
}

#[tokio::test]
async fn acknowledged_commits_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let engine = open(&path).await;
    let payload = Payload::json("{}");
    let new = NewTask { payload: Some(payload.clone()), ..NewTask::new("t", "k") };
    engine.submit(Create::one(new)).await.unwrap();
    engine.submit(create("u")).await.unwrap();
    let claimed = claim_now(&engine).await;
    assert_eq!(claimed[0].input, TaskInput::Inline(payload));
    // No shutdown: like a crash, only committed data remains.
    drop(engine);
    let engine = open(&path).await;
    let done = engine.submit(complete(&engine, "t", 1).await).await.unwrap();
    assert_eq!(done, Outcome::Settled(Settled::Completed), "the lease outlived the process");
    assert_eq!(ids(&claim_now(&engine).await), ["u"]);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_a_second_process_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let (one, other) = (open(&path).await, open(&path).await);
    let waiting = tokio::spawn({
        let one = one.clone();
        async move { one.claim(claim(), Duration::from_secs(60)).await.unwrap() }
    });
    let delay = Delay::For { ms: 20 };
    let new = NewTask { delay, ..NewTask::new("t", "k") };
    other.submit(Create::one(new)).await.unwrap();
    assert_eq!(ids(&waiting.await.unwrap()), ["t"]);
    let mut log = other.subscribe(None).await.unwrap();
    let mut names = Vec::new();
    while names.len() < 3 {
        names.extend(log.next().await.unwrap().into_iter().map(|logged| logged.name));
    }
    assert_eq!(names, ["created", "promoted", "claimed"]);
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_the_work_and_claim_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let engines = [open(&path).await, open(&path).await];
    for n in 0..300 {
        engines[n % 2].submit(create(&format!("{n:03}"))).await.unwrap();
    }
    let workers = engines.clone().map(|engine| {
        tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                let claimed = claim_now(&engine).await;
                let Some(task) = claimed.first() else { return seen };
                seen.push(task.task.id.clone());
                let done =
                    windlass_core::command::Complete { fence: task.task.fence(), result: None };
                engine.submit(done).await.unwrap();
            }
        })
    });
    let mut seen = Vec::new();
    for worker in workers {
        seen.extend(worker.await.unwrap());
    }
    seen.sort();
    assert_eq!(seen.len(), 300);
    seen.dedup();
    assert_eq!(seen.len(), 300);
}

#[tokio::test]
async fn a_commit_outcome_lost_to_an_io_error_is_looked_up() {
    for step in ["sqlite.begin", "sqlite.load", "sqlite.commit.before", "sqlite.commit.after"] {
        let folder = tempfile::tempdir().unwrap();
        let armed = Arc::new(AtomicBool::new(false));
        let hook = armed.clone();
        let failpoints = Failpoints::new(move |at| {
            (at == step && hook.swap(false, Ordering::SeqCst)).then_some(Fault::Io)
        });
        let options = Options { failpoints, ..Options::default() };
        let store = SqliteStore::open_with(folder.path().join("tasks.db"), options).unwrap();
        let engine = Engine::with_store(store, quiet()).await.unwrap();
        engine.submit(create("before")).await.unwrap();
        armed.store(true, Ordering::SeqCst);
        let result = engine.submit(create("t")).await;
        let there = engine.task(&key("t")).await.unwrap().is_some();
        match result {
            Ok(outcome) => assert!(created(outcome) && there, "{step}"),
            Err(error) => assert!(error.code().starts_with("store_") && !there, "{step}: {error}"),
        }
        engine.submit(create("t")).await.unwrap();
        assert_eq!(
            engine.tasks(&Tenant::default(), &TaskFilter::default(), None, 10).await.unwrap().len(),
            2,
            "{step}"
        );
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_and_survived() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { max_pages: Some(60), ..Options::default() };
    let store = SqliteStore::open_with(folder.path().join("tasks.db"), options).unwrap();
    let engine = Engine::with_store(store, quiet()).await.unwrap();
    let mut created = 0;
    let rejected = loop {
        let payload = Some(Payload::new("a/b", vec![7; 20_000]));
        let new = NewTask { payload, ..NewTask::new(format!("{created:03}"), "k") };
        match engine.submit(Create::one(new)).await {
            Ok(_) => created += 1,
            Err(error) => break error,
        }
        assert!(created < 1_000, "the disk never filled up");
    };
    assert!(rejected.to_string().contains("disk is full"), "{rejected}");
    let tasks =
        engine.tasks(&Tenant::default(), &TaskFilter::default(), None, 1_000).await.unwrap();
    assert_eq!(tasks.len(), created, "reads still work, and no partial write exists");
}

#[tokio::test]
async fn a_removed_file_is_noticed_before_the_next_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let engine = Engine::with_store(SqliteStore::open(&path).unwrap(), quiet()).await.unwrap();
    engine.submit(create("t")).await.unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let rejected = engine.submit(create("u")).await.unwrap_err();
    assert!(rejected.to_string().contains("removed or replaced"), "{rejected}");
}

#[tokio::test]
async fn a_restored_backup_has_another_log_incarnation() {
    let folder = tempfile::tempdir().unwrap();
    let (path, backup) = (folder.path().join("tasks.db"), folder.path().join("backup.db"));
    let engine = open(&path).await;
    engine.submit(create("a")).await.unwrap();
    engine.shutdown().await.unwrap();
    std::fs::copy(&path, &backup).unwrap();
    let engine = open(&path).await;
    engine.submit(create("b")).await.unwrap();
    let mut log = engine.subscribe(None).await.unwrap();
    while log.cursor().seq < 2 {
        log.next().await.unwrap();
    }
    engine.shutdown().await.unwrap();
    std::fs::copy(&backup, &path).unwrap();
    SqliteStore::renew_incarnation(&path).unwrap();
    let engine = open(&path).await;
    for id in ["c", "d", "e"] {
        engine.submit(create(id)).await.unwrap();
    }
    let mut log = engine.subscribe(Some(log.cursor().clone())).await.unwrap();
    assert_eq!(log.next().await.unwrap_err().code(), "cursor_expired");
}
