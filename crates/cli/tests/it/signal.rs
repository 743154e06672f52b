//! `signal`, `waitpoint`, `key` and `task resume`.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use windlass::command::Suspend;
use windlass::{Condition, Engine};

use crate::place::{Place, claim};

/// Creates a task that is suspended on this condition.
async fn suspended(place: &Place, condition: Condition) -> Engine {
    let engine = place.application().await;
    engine.create("k").id("t").await.unwrap();
    let task = claim(&engine, "w", "default").await;
    engine.suspend(Suspend::new(task.fence(), condition)).await.unwrap();
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_signaled_by_its_id() {
    let place = Place::empty();
    let engine = suspended(&place, Condition::signal("go")).await;
    assert_eq!(place.ok("signal other --task t"), "Task t has message 1 in its mailbox.\n");
    let line = r#"signal go --task t --source ada --idempotency-key k --payload {"ok":true}"#;
    assert_eq!(place.ok(line), "Task t resumes with message 2.\n");
    assert_eq!(place.ok(line), "Duplicate: sent before as message 2 of task t.\n");
    let again = place.one(line);
    let expected =
        json!({ "task": "t", "seq": 2, "duplicate": true, "resumed": false, "buffered": false });
    assert_eq!(again, expected);
    assert_eq!(place.one("task show t")["state"], "resumable");
    place.ok("signal later --task t --after 1h");
    let listed = place.ok("task messages t --limit 2");
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[2].contains("other") && lines[2].contains("pending"), "{listed}");
    assert!(lines[3].contains(r#"resumed the attempt   {"ok":true}"#), "{listed}");
    assert_eq!(lines[4..], ["There are more: --after 2"], "{listed}");
    let rest = place.one("task messages t --after 2");
    assert_eq!((&rest["name"], &rest["resumed_attempt"]), (&"later".into(), &false.into()));
    assert!(place.ok("task messages t --after 2").contains("visible in "));
    assert_eq!(place.ok("task messages t --after 3"), "There is no message.\n");
    let to_whom = place.run("signal go");
    assert_eq!(to_whom.code, 2);
    assert!(to_whom.err.contains("<--task <ID>|--token <TOKEN>>"), "{}", to_whom.err);
    assert_eq!(place.run("task messages missing").code, 4);
    let task = claim(&engine, "w", "default").await;
    let signals = engine.resuming_signals(&task.task_key()).await.unwrap();
    assert_eq!(signals[0].message.source, "ada");
    assert_eq!(&*signals[0].payload.as_ref().unwrap().bytes, br#"{"ok":true}"#);
    engine.shutdown().await.unwrap();
}

fn piped(place: &Place, words: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = place.command(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waitpoint_accepts_one_message_with_its_token() {
    let place = Place::empty();
    let engine = suspended(&place, Condition::signal("yes")).await;
    assert_eq!(place.ok("waitpoint list"), "There is no waitpoint.\n");
    let token = place.ok("waitpoint create t approval");
    assert!(token.starts_with("wl1.") && token.lines().count() == 1, "{token}");
    let made = place.one("waitpoint create t approval");
    assert_eq!(made["token"], token.trim(), "a repeated create returns the same token");
    assert_eq!(place.run("waitpoint create t approval --expires 2d").code, 3);

    let both = ["signal", "yes", "--token", "-", "--payload-file", "-"];
    assert_eq!(piped(&place, &both, &token).0, Some(2), "two options read standard input");
    let (code, said) = piped(&place, &["signal", "yes", "--token", "-", "--json"], &token);
    assert_eq!(code, Some(0));
    let said: Value = serde_json::from_str(&said).unwrap();
    let expected =
        json!({ "task": "t", "seq": 1, "duplicate": false, "resumed": true, "buffered": false });
    assert_eq!(said, expected);
    let mut command = place.command(["signal", "yes"]);
    let again = command.env("WINDLASS_TOKEN", token.trim()).output().unwrap();
    assert_eq!(again.status.code(), Some(3));
    let complaint = String::from_utf8(again.stderr).unwrap();
    assert!(complaint.contains("[waitpoint_completed]"), "{complaint}");

    let listed = place.one("waitpoint list --task t");
    assert_eq!((&listed["state"], &listed["message"]), (&"completed".into(), &1.into()));
    let mac = token.trim().rsplit('.').next().unwrap();
    let all = [
        place.ok("waitpoint list"),
        listed.to_string(),
        place.ok("events"),
        place.ok("events --json"),
        place.ok("task show t"),
        place.ok("task show t --json"),
        complaint,
    ];
    assert!(all.iter().all(|text| !text.contains(mac)), "{all:?}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn waitpoints_are_listed_in_pages() {
    let place = Place::empty();
    place.ok("task create k --id t");
    for id in ["a", "b", "c"] {
        place.ok(&format!("waitpoint create t {id}"));
    }
    let first = place.ok("waitpoint list --limit 2");
    assert!(first.ends_with("There are more: --after b\n"), "{first}");
    let rest = place.json("waitpoint list --limit 2 --after b");
    assert_eq!(rest.iter().map(|w| w["id"].clone()).collect::<Vec<_>>(), ["c"]);
    assert!(!place.ok("waitpoint list --limit 3").contains("There are more"));
    assert!(place.json("waitpoint list --task missing").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_and_rotated_without_their_secrets() {
    let place = Place::empty();
    place.ok("task create k --id t");
    assert!(place.ok("signing-key list").starts_with("There is no signing key"));
    let token = place.ok("waitpoint create t p");
    assert_eq!(place.one("signing-key list")["active"], true);
    let fresh = place.one("signing-key rotate --grace 0s");
    let keys = place.json("signing-key list");
    assert_eq!(keys.last().unwrap()["id"], fresh["id"]);
    let row = place.ok("signing-key list");
    assert!(row.contains("active"), "{row}");
    for key in &keys {
        assert_eq!(key["fingerprint"].as_str().unwrap().len(), 32);
        assert!(key.get("secret").is_none(), "{key}");
    }
    let (code, _) = piped(&place, &["signal", "go", "--token", "-"], &token);
    assert_eq!(code, Some(3), "the grace period of its key is over");
    assert!(place.ok("signing-key rotate").contains("New tokens are signed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_waitpoint_is_reported_and_created_again() {
    let place = Place::empty();
    let engine = place.application().await;
    engine.create("k").id("t").await.unwrap();
    let old = place.ok("waitpoint create t approval --expires 1s");
    let task = claim(&engine, "w", "default").await;
    let condition = Condition::waitpoint("approval");
    engine.suspend(Suspend::new(task.fence(), condition)).await.unwrap();
    let why = loop {
        let why = place.ok("task why t");
        if why.contains("Waitpoint approval has expired.") {
            break why;
        }
    };
    assert!(why.contains("windlass waitpoint create t approval"), "{why}");
    let token = place.ok("waitpoint create t approval");
    assert!(!place.ok("task why t").contains("has expired"));
    let signal = ["signal", "yes", "--token", "-"];
    assert_eq!(piped(&place, &signal, &old).0, Some(3));
    assert_eq!(piped(&place, &signal, &token).0, Some(0));
    assert_eq!(place.one("task show t")["state"], "resumable");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_resumes_a_task() {
    let place = Place::empty();
    let engine = suspended(&place, Condition::Operator).await;
    let why = place.ok("task why t");
    assert!(why.contains("it waits for an operator."), "{why}");
    assert!(why.contains("windlass task resume t"), "{why}");
    assert_eq!(place.ok("task resume t --by ada"), "Task t resumes on the next free worker.\n");
    assert_eq!(place.run("task resume t").code, 3);
    let told = place.ok("events --category signal");
    assert!(told.contains("by an operator, ada"), "{told}");
    engine.shutdown().await.unwrap();
}
