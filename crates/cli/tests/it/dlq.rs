//! `dlq list` and `dlq replay`.

use serde_json::{Value, json};
use windlass::command::{Claim, Create, Fail, NewTask};
use windlass::{Command, Engine, FailureClass, Retry, Tenant};

use crate::place::{Place, claim, complete, fail};

/// Creates tasks in a lane in bulk and fails them.
async fn fail_many(engine: &Engine, lane: &str, count: usize) {
    let mut made = 0;
    while made < count {
        let next = (made + 500).min(count);
        let tasks = (made..next).map(|n| {
            let id = format!("{lane}-{n:04}");
            NewTask { lane: lane.into(), ..NewTask::new(id.as_str(), "send") }
        });
        let create = Create { tenant: Tenant::default(), tasks: tasks.collect() };
        engine.submit(create).await.unwrap();
        let claim = Claim { lanes: vec![lane.into()], limit: 500, ..Claim::new("w") };
        let claimed = engine.claim(claim, std::time::Duration::ZERO).await.unwrap();
        assert_eq!(claimed.len(), next - made);
        let fails = claimed.iter().map(|claimed| {
            let (class, retry) = (FailureClass::Permanent, Retry::Policy);
            let reason = "bounced".to_owned();
            Command::from(Fail { fence: claimed.task.fence(), class, reason, retry })
        });
        for answer in engine.submit_many(fails.collect()).await.unwrap() {
            answer.unwrap();
        }
        made = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_tasks_are_listed_with_their_reason() {
    let place = Place::empty();
    let engine = place.application().await;
    assert_eq!(place.ok("dlq list"), "No task has failed.\n");
    fail_many(&engine, "mail", 60).await;
    engine.create("sync").id("s").lane("slow").await.unwrap();
    let task = claim(&engine, "w", "slow").await;
    fail(&engine, &task, FailureClass::Timeout, "two\nlines").await;
    engine.create("k").id("fine").await.unwrap();

    let table = place.ok("dlq list --lane slow");
    let row = table.lines().find(|line| line.contains("sync")).unwrap();
    for part in ["s", "slow", "1", "timeout", "two lines"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    assert!(table.contains("windlass dlq replay ID"), "{table}");
    assert!(!table.contains("--after"), "{table}");
    let page = place.ok("dlq list");
    assert!(page.contains("add --after mail-0049"), "{page}");

    assert_eq!(place.json("dlq list").len(), 50);
    assert_eq!(place.json("dlq list --all").len(), 61);
    assert_eq!(place.json("dlq list --after mail-0058").len(), 2);
    let rows = place.json("dlq list --kind sync");
    assert_eq!((rows.len(), &rows[0]["class"]), (1, &json!("timeout")));
    assert_eq!(rows[0]["reason"], "two\nlines");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn named_tasks_are_replayed() {
    let place = Place::empty();
    let engine = place.application().await;
    fail_many(&engine, "mail", 2).await;
    engine.create("k").id("done").await.unwrap();
    let task = claim(&engine, "w", "default").await;
    complete(&engine, &task).await;
    engine.create("k").id("waiting").await.unwrap();

    assert_eq!(place.ok("dlq replay mail-0000"), "Replayed 1 task.\n");
    assert_eq!(place.one("task show mail-0000")["state"], "waiting");

    let said = place.run("dlq replay mail-0000 mail-0001 done waiting nope");
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.starts_with("Replayed 1 task; rejected:"), "{said:?}");
    for part in [
        "windlass task replay done replays it anyway",
        "it has not failed, it is waiting",
        "task_not_found",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    assert!(said.err.ends_with("4 tasks were not replayed [not_replayed]\n"), "{said:?}");

    let said = place.run("dlq replay nope --json");
    let row: Value = serde_json::from_str(&said.out).unwrap();
    let error = json!({ "code": "task_not_found", "message": "no such task" });
    assert_eq!(row, json!({ "id": "nope", "replayed": false, "error": error }));
    assert_eq!(said.code, 4);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_failed_tasks_are_replayed_page_by_page() {
    let place = Place::empty();
    let engine = place.application().await;
    fail_many(&engine, "mail", 1_200).await;
    fail_many(&engine, "slow", 3).await;

    let rows = place.json("dlq replay --all --lane slow");
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["slow-0000", "slow-0001", "slow-0002"]);
    assert!(rows.iter().all(|row| row["replayed"] == true && row["generation"] == 1));
    assert_eq!(place.ok("dlq replay --all --kind other"), "Replayed 0 tasks.\n");

    assert_eq!(place.json("dlq list --all").len(), 1_200);
    assert_eq!(place.ok("dlq replay --all"), "Replayed 1200 tasks.\n");
    assert_eq!(place.ok("dlq replay --all"), "Replayed 0 tasks.\n");
    let stats = place.one("stats");
    assert_eq!((&stats["tasks"]["failed"], &stats["tasks"]["waiting"]), (&json!(0), &json!(1_203)));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_replay_does_not_stop_the_others() {
    let place = Place::empty();
    let engine = place.application().await;
    let mut stubborn = NewTask::new("b", "k");
    stubborn.policy.max_replays = 0;
    for task in [NewTask::new("a", "k"), stubborn, NewTask::new("c", "k")] {
        engine.submit(Create::one(task)).await.unwrap();
        let task = claim(&engine, "w", "default").await;
        fail(&engine, &task, FailureClass::Permanent, "no").await;
    }
    let said = place.run("dlq replay --all");
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.starts_with("Replayed 2 tasks; rejected:"), "{said:?}");
    assert!(said.out.contains("replays_exhausted"), "{said:?}");
    assert_eq!(place.json("task list --state waiting").len(), 2);
    engine.shutdown().await.unwrap();
}
