//! `signal`, `waitpoint`, `key` and `task resume`.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use windlass::command::Suspend;
use windlass::{Condition, Engine};

use crate::test_store::{TestStore, claim};

/// Creates a task that is suspended on this condition.
async fn suspended(store: &TestStore, condition: Condition) -> Engine {
    let engine = store.application().await;
    engine.create("k").id("t").await.unwrap();
    let task = claim(&engine, "w", "default").await;
    engine.suspend(Suspend::new(task.fence(), condition)).await.unwrap();
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_signaled_by_its_id() {
    let store = TestStore::empty();
    let engine = suspended(&store, Condition::signal("go")).await;
    assert_eq!(store.ok("signal other --task t"), "Task t has message 1 in its mailbox.\n");
    let line = r#"signal go --task t --source ada --idempotency-key k --payload {"ok":true}"#;
    assert_eq!(store.ok(line), "Task t resumes with message 2.\n");
    assert_eq!(store.ok(line), "Duplicate: sent before as message 2 of task t.\n");
    let again = store.one(line);
    let expected =
        json!({ "task": "t", "seq": 2, "duplicate": true, "resumed": false, "buffered": false });
    assert_eq!(again, expected);
    assert_eq!(store.one("task show t")["state"], "resumable");
    store.ok("signal later --task t --delay 1h");
    let listed = store.ok("task messages t --limit 2");
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[2].contains("other") && lines[2].contains("pending"), "{listed}");
    assert!(lines[3].contains(r#"resumed the attempt   {"ok":true}"#), "{listed}");
    assert_eq!(lines[4..], ["There are more: --after 2"], "{listed}");
    let rest = store.one("task messages t --after 2");
    assert_eq!((&rest["name"], &rest["resumed_attempt"]), (&"later".into(), &false.into()));
    assert!(store.ok("task messages t --after 2").contains("visible in "));
    assert_eq!(store.ok("task messages t --after 3"), "There is no message.\n");
    let to_whom = store.run("signal go");
    assert_eq!(to_whom.code, 2);
    assert!(to_whom.err.contains("<--task <ID>|--token <TOKEN>>"), "{}", to_whom.err);
    assert_eq!(store.run("task messages missing").code, 4);
    let task = claim(&engine, "w", "default").await;
    let signals = engine.resuming_signals(&task.task_key()).await.unwrap();
    assert_eq!(signals[0].message.source, "ada");
    assert_eq!(&*signals[0].payload.as_ref().unwrap().bytes, br#"{"ok":true}"#);
    engine.shutdown().await.unwrap();
}

fn piped(store: &TestStore, words: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = store.command(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waitpoint_accepts_one_message_with_its_token() {
    let store = TestStore::empty();
    let engine = suspended(&store, Condition::signal("yes")).await;
    assert_eq!(store.ok("waitpoint list"), "There is no waitpoint.\n");
    let token = store.ok("waitpoint create t approval");
    assert!(token.starts_with("wl1.") && token.lines().count() == 1, "{token}");
    let created = store.one("waitpoint create t approval");
    assert_eq!(created["token"], token.trim(), "a repeated create returns the same token");
    assert_eq!(store.run("waitpoint create t approval --ttl 2d").code, 3);

    let both = ["signal", "yes", "--token", "-", "--payload-file", "-"];
    assert_eq!(piped(&store, &both, &token).0, Some(2), "two options read standard input");
    let (code, output) = piped(&store, &["signal", "yes", "--token", "-", "--json"], &token);
    assert_eq!(code, Some(0));
    let output: Value = serde_json::from_str(&output).unwrap();
    let expected =
        json!({ "task": "t", "seq": 1, "duplicate": false, "resumed": true, "buffered": false });
    assert_eq!(output, expected);
    let mut command = store.command(["signal", "yes"]);
    let again = command.env("WINDLASS_TOKEN", token.trim()).output().unwrap();
    assert_eq!(again.status.code(), Some(3));
    let complaint = String::from_utf8(again.stderr).unwrap();
    assert!(complaint.contains("[waitpoint_completed]"), "{complaint}");

    let listed = store.one("waitpoint list --task t");
    assert_eq!((&listed["state"], &listed["message"]), (&"completed".into(), &1.into()));
    let mac = token.trim().rsplit('.').next().unwrap();
    let all = [
        store.ok("waitpoint list"),
        listed.to_string(),
        store.ok("events"),
        store.ok("events --json"),
        store.ok("task show t"),
        store.ok("task show t --json"),
        complaint,
    ];
    assert!(all.iter().all(|text| !text.contains(mac)), "{all:?}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn waitpoints_are_listed_in_pages() {
    let store = TestStore::empty();
    store.ok("task create k --id t");
    for id in ["a", "b", "c"] {
        store.ok(&format!("waitpoint create t {id}"));
    }
    let first = store.ok("waitpoint list --limit 2");
    assert!(first.ends_with("There are more: --after b\n"), "{first}");
    let rest = store.json("waitpoint list --limit 2 --after b");
    assert_eq!(rest.iter().map(|w| w["id"].clone()).collect::<Vec<_>>(), ["c"]);
    assert!(!store.ok("waitpoint list --limit 3").contains("There are more"));
    assert!(store.json("waitpoint list --task missing").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_and_rotated_without_their_secrets() {
    let store = TestStore::empty();
    store.ok("task create k --id t");
    assert!(store.ok("signing-key list").starts_with("There is no signing key"));
    let token = store.ok("waitpoint create t p");
    assert_eq!(store.one("signing-key list")["active"], true);
    let fresh = store.one("signing-key rotate --grace 0s");
    let keys = store.json("signing-key list");
    assert_eq!(keys.last().unwrap()["id"], fresh["id"]);
    let row = store.ok("signing-key list");
    assert!(row.contains("active"), "{row}");
    for key in &keys {
        assert_eq!(key["fingerprint"].as_str().unwrap().len(), 32);
        assert!(key.get("secret").is_none(), "{key}");
    }
    let (code, _) = piped(&store, &["signal", "go", "--token", "-"], &token);
    assert_eq!(code, Some(3), "the grace period of its key is over");
    assert!(store.ok("signing-key rotate").contains("New tokens are signed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_waitpoint_is_reported_and_created_again() {
    let store = TestStore::empty();
    let engine = store.application().await;
    engine.create("k").id("t").await.unwrap();
    let old = store.ok("waitpoint create t approval --ttl 1s");
    let task = claim(&engine, "w", "default").await;
    let condition = Condition::waitpoint("approval");
    engine.suspend(Suspend::new(task.fence(), condition)).await.unwrap();
    let why = loop {
        let why = store.ok("task why t");
        if why.contains("Waitpoint approval has expired.") {
            break why;
        }
    };
    assert!(why.contains("windlass waitpoint create t approval"), "{why}");
    let token = store.ok("waitpoint create t approval");
    assert!(!store.ok("task why t").contains("has expired"));
    let signal = ["signal", "yes", "--token", "-"];
    assert_eq!(piped(&store, &signal, &old).0, Some(3));
    assert_eq!(piped(&store, &signal, &token).0, Some(0));
    assert_eq!(store.one("task show t")["state"], "resumable");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_resumes_a_task() {
    let store = TestStore::empty();
    let engine = suspended(&store, Condition::Operator).await;
    let why = store.ok("task why t");
    assert!(why.contains("it waits for an operator."), "{why}");
    assert!(why.contains("windlass task resume t"), "{why}");
    assert_eq!(store.ok("task resume t --by ada"), "Task t resumes on the next free worker.\n");
    assert_eq!(store.run("task resume t").code, 3);
    let printed = store.ok("events --category signal");
    assert!(printed.contains("by an operator, ada"), "{printed}");
    engine.shutdown().await.unwrap();
}
