//! `task list`, `show`, `cancel`, `replay`, `priority`, `wait`.

use serde_json::{Value, json};
use windlass::FailureClass;
use windlass::command::ReportProgress;

use crate::test_store::{TestStore, claim, complete, fail};

/// One task in each state that can be reached without waiting, in lane mail.
async fn tasks() -> TestStore {
    let store = TestStore::empty();
    let engine = store.application().await;
    for id in ["active", "completed", "failed"] {
        engine.create(id).id(id).lane("mail").await.unwrap();
        let task = claim(&engine, "worker-1", "mail").await;
        match id {
            "active" => {
                let (fence, message) = (task.fence(), "half\nway".to_owned());
                let report = ReportProgress { fence, percent: 40, message };
                engine.submit(report).await.unwrap();
            }
            "completed" => complete(&engine, &task).await,
            _ => fail(&engine, &task, FailureClass::Permanent, "no \u{1b}[31msuch user").await,
        }
    }
    store.ok("task create delayed --id delayed --lane mail --delay 1d");
    store.ok("task create waiting --id waiting --lane mail");
    store.ok("task create cancelled --id cancelled --lane mail");
    store.ok("task cancel cancelled --reason enough");
    engine.shutdown().await.unwrap();
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn lists() {
    let store = tasks().await;
    let table = store.ok("task list");
    for (id, parts) in [
        ("active", &["mail", "worker-1: 40% half way"][..]),
        ("cancelled", &["enough"]),
        ("completed", &["completed"]),
        ("delayed", &["for 23h"]),
        ("failed", &["permanent: no \u{fffd}[31msuch user"]),
        ("waiting", &["waiting"]),
    ] {
        let row = table.lines().find(|line| line.trim_start().starts_with(id)).unwrap();
        for part in parts {
            assert!(row.contains(part), "{id}: {part}: {row}");
        }
        let rows = store.json(&format!("task list --state {id}"));
        assert_eq!((rows.len(), &rows[0]["id"], &rows[0]["state"]), (1, &json!(id), &json!(id)));
    }
    let count = |line: &str| store.json(line).len();
    assert_eq!(count("task list"), 6);
    assert_eq!(count("task list --lane mail --kind failed"), 1);
    assert_eq!(count("task list --lane elsewhere"), 0);
    assert_eq!(count("task list --tenant elsewhere"), 0);
    assert_eq!(store.ok("task list --lane elsewhere"), "There is no such task.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let ids: Vec<String> = (0..2_300).map(|n| format!("t{n:04}")).collect();
    for ids in ids.chunks(1_000) {
        let tasks = ids.iter().map(|id| windlass::command::NewTask::new(id.as_str(), "k"));
        let create = windlass::command::Create {
            tenant: windlass::Tenant::default(),
            tasks: tasks.collect(),
        };
        engine.submit(create).await.unwrap();
    }
    engine.shutdown().await.unwrap();
    let listed = |line: &str| {
        let rows = store.json(line);
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("task list"), ids[..50]);
    assert_eq!(listed("task list --limit 3 --after t0009"), ids[10..13]);
    assert_eq!(listed("task list --limit 1500"), ids[..1_500]);
    assert_eq!(listed("task list --all"), ids);
    assert_eq!(listed("task list --all --after t2290"), ids[2_291..]);
    let page = store.ok("task list --limit 3");
    assert!(page.contains("add --after t0002"), "{page}");
    let last = store.ok("task list --limit 3 --after t2296");
    assert!(!last.contains("--after"), "{last}");
    assert!(store.ok("task list --all").contains("t2299"));
}

#[tokio::test(flavor = "multi_thread")]
async fn shows_everything() {
    let store = tasks().await;
    for (id, parts) in [
        (
            "active",
            &["lease worker-1 until 20", "progress 40% half way", "claimed by worker-1"][..],
        ),
        ("completed", &["state completed 20", "retained until"]),
        ("failed", &["failure permanent: no", "a reported failure is final"]),
        ("delayed", &["state delayed until 20", "(in 23h"]),
        ("waiting", &["state waiting since 20", "attempts 0"]),
        ("cancelled", &["reason enough", "cancelled enough"]),
    ] {
        let shown = store.ok(&format!("task show {id}"));
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(words.contains(part), "{id}: {part}: {shown}");
        }
        assert!(!shown.contains('\u{1b}'), "no control characters are printed: {shown:?}");
    }
    let changes = |id: &str| {
        let task = store.one(&format!("task show {id}"));
        assert_eq!(task["events_truncated"], false, "{id}");
        let events = task["events"].as_array().unwrap().clone();
        events.iter().map(|event| event["event"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(changes("active"), ["created", "claimed", "progressed"]);
    assert_eq!(changes("completed"), ["created", "claimed", "completed"]);
    assert_eq!(changes("failed"), ["created", "claimed", "failed"]);
    assert_eq!(changes("cancelled"), ["created", "cancelled"]);
    let active = store.one("task show active");
    assert_eq!(active["lease"]["worker"], "worker-1");
    assert_eq!(active["progress"]["percent"], 40);
    assert_eq!(store.one("task show failed")["class"], "permanent");
}

#[tokio::test(flavor = "multi_thread")]
async fn moves() {
    let store = tasks().await;
    let out = store.ok("task cancel active --reason stop");
    assert!(out.contains("worker-1 was running it"), "{out}");
    assert_eq!(store.one("task show active")["reason"], "stop");
    assert_eq!(store.run("task cancel completed").code, 3);
    assert_eq!(
        store.one("task cancel waiting"),
        json!({
            "id": "waiting", "state": "cancelled", "holder": null,
        })
    );

    let out = store.ok("task replay active");
    assert_eq!(out, "Task active starts over in lane mail, as execution 1.\n");
    assert_eq!(store.one("task show active")["state"], "waiting");
    assert_eq!(store.one("task replay completed")["execution"], 1);

    assert_eq!(store.ok("task priority active -3"), "Task active has priority -3.\n");
    assert_eq!(store.one("task priority active 7")["priority"], 7);
    assert_eq!(store.one("task show active")["priority"], 7);
    assert_eq!(store.run("task priority failed 1").code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_for_the_end() {
    let store = tasks().await;
    assert_eq!(store.ok("task wait completed"), "Task completed is completed.\n");
    assert_eq!(store.one("task wait completed")["state"], "completed");
    for (id, reason) in [("failed", "such user"), ("cancelled", "enough")] {
        let output = store.run(&format!("task wait {id}"));
        assert_eq!(output.code, 3, "{output:?}");
        assert!(
            output.err.contains(reason) && output.err.contains("[not_completed]"),
            "{output:?}"
        );
    }
    // Another process completes the awaited task.
    let engine = store.application().await;
    let mut waits = store.start("task wait waiting");
    let task = claim(&engine, "w", "mail").await;
    complete(&engine, &task).await;
    waits.until("Task waiting is completed.");
    engine.shutdown().await.unwrap();
}
