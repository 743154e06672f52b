//! `dlq list` and `dlq replay`.

use serde_json::{Value, json};
use windlass::command::{Claim, Create, Fail, NewTask};
use windlass::{Command, Engine, FailureClass, Retry, Tenant};

use crate::test_store::{TestStore, claim, complete, fail};

/// Creates tasks in a lane in bulk and fails them.
async fn fail_many(engine: &Engine, lane: &str, count: usize) {
    let mut created = 0;
    while created < count {
        let next = (created + 500).min(count);
        let tasks = (created..next).map(|n| {
            let id = format!("{lane}-{n:04}");
            NewTask { lane: lane.into(), ..NewTask::new(id.as_str(), "send") }
        });
        let create = Create { tenant: Tenant::default(), tasks: tasks.collect() };
        engine.submit(create).await.unwrap();
        let claim = Claim { lanes: vec![lane.into()], limit: 500, ..Claim::new("w") };
        let claimed = engine.claim(claim, std::time::Duration::ZERO).await.unwrap();
        assert_eq!(claimed.len(), next - created);
        let fails = claimed.iter().map(|claimed| {
            let (class, retry) = (FailureClass::Permanent, Retry::Policy);
            let reason = "bounced".to_owned();
            Command::from(Fail { fence: claimed.task.fence(), class, reason, retry })
        });
        for result in engine.submit_many(fails.collect()).await.unwrap() {
            result.unwrap();
        }
        created = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_tasks_are_listed_with_their_reason() {
    let store = TestStore::empty();
    let engine = store.application().await;
    assert_eq!(store.ok("dlq list"), "No task has failed.\n");
    fail_many(&engine, "mail", 60).await;
    engine.create("sync").id("s").lane("slow").await.unwrap();
    let task = claim(&engine, "w", "slow").await;
    fail(&engine, &task, FailureClass::Timeout, "two\nlines").await;
    engine.create("k").id("fine").await.unwrap();

    let table = store.ok("dlq list --lane slow");
    let row = table.lines().find(|line| line.contains("sync")).unwrap();
    for part in ["s", "slow", "1", "timeout", "two lines"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    assert!(table.contains("windlass dlq replay ID"), "{table}");
    assert!(!table.contains("--after"), "{table}");
    let page = store.ok("dlq list");
    assert!(page.contains("add --after mail-0049"), "{page}");

    assert_eq!(store.json("dlq list").len(), 50);
    assert_eq!(store.json("dlq list --all").len(), 61);
    assert_eq!(store.json("dlq list --after mail-0058").len(), 2);
    let rows = store.json("dlq list --kind sync");
    assert_eq!((rows.len(), &rows[0]["class"]), (1, &json!("timeout")));
    assert_eq!(rows[0]["reason"], "two\nlines");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn named_tasks_are_replayed() {
    let store = TestStore::empty();
    let engine = store.application().await;
    fail_many(&engine, "mail", 2).await;
    engine.create("k").id("done").await.unwrap();
    let task = claim(&engine, "w", "default").await;
    complete(&engine, &task).await;
    engine.create("k").id("waiting").await.unwrap();

    assert_eq!(store.ok("dlq replay mail-0000"), "Replayed 1 task.\n");
    assert_eq!(store.one("task show mail-0000")["state"], "waiting");

    let output = store.run("dlq replay mail-0000 mail-0001 done waiting nope");
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.out.starts_with("Replayed 1 task; rejected:"), "{output:?}");
    for part in [
        "windlass task replay done replays it anyway",
        "it has not failed, it is waiting",
        "task_not_found",
    ] {
        assert!(output.out.contains(part), "{part}: {}", output.out);
    }
    assert!(output.err.ends_with("4 tasks were not replayed [not_replayed]\n"), "{output:?}");

    let output = store.run("dlq replay nope --json");
    let row: Value = serde_json::from_str(&output.out).unwrap();
    let error = json!({ "code": "task_not_found", "message": "no such task" });
    assert_eq!(row, json!({ "id": "nope", "replayed": false, "error": error }));
    assert_eq!(output.code, 4);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_failed_tasks_are_replayed_page_by_page() {
    let store = TestStore::empty();
    let engine = store.application().await;
    fail_many(&engine, "mail", 1_200).await;
    fail_many(&engine, "slow", 3).await;

    let rows = store.json("dlq replay --all --lane slow");
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["slow-0000", "slow-0001", "slow-0002"]);
    assert!(rows.iter().all(|row| row["replayed"] == true && row["execution"] == 1));
    assert_eq!(store.ok("dlq replay --all --kind other"), "Replayed 0 tasks.\n");

    assert_eq!(store.json("dlq list --all").len(), 1_200);
    assert_eq!(store.ok("dlq replay --all"), "Replayed 1200 tasks.\n");
    assert_eq!(store.ok("dlq replay --all"), "Replayed 0 tasks.\n");
    let stats = store.one("stats");
    assert_eq!((&stats["tasks"]["failed"], &stats["tasks"]["waiting"]), (&json!(0), &json!(1_203)));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_replay_does_not_stop_the_others() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let mut stubborn = NewTask::new("b", "k");
    stubborn.policy.max_replays = 0;
    for task in [NewTask::new("a", "k"), stubborn, NewTask::new("c", "k")] {
        engine.submit(Create::one(task)).await.unwrap();
        let task = claim(&engine, "w", "default").await;
        fail(&engine, &task, FailureClass::Permanent, "no").await;
    }
    let output = store.run("dlq replay --all");
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.out.starts_with("Replayed 2 tasks; rejected:"), "{output:?}");
    assert!(output.out.contains("replays_exhausted"), "{output:?}");
    assert_eq!(store.json("task list --state waiting").len(), 2);
    engine.shutdown().await.unwrap();
}
