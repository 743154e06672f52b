//! `task create`, and what there is before it.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::place::Place;

#[test]
fn what_is_not_there_is_not_made() {
    let place = Place::empty();
    for line in [
        "task list",
        "task show t",
        "task why t",
        "task cancel t",
        "task replay t",
        "task priority t 1",
        "task wait t",
        "lane list",
        "lane pause l",
        "lane limit l 5",
        "dead list",
        "dead replay t",
        "dead replay --all",
        "events",
        "events --follow",
        "stats",
    ] {
        let said = place.run(line);
        assert_eq!(said.code, 4, "{line}: {said:?}");
        assert!(said.err.contains("there is no database at sqlite://"), "{line}: {said:?}");
        assert!(said.err.ends_with("[no_database]\n"), "{line}: {said:?}");
        assert_eq!((said.err.lines().count(), said.out.as_str()), (1, ""), "{line}");
        assert!(!place.file("app.db").exists(), "{line}");
    }
}

#[test]
fn the_first_task_makes_the_database() {
    let place = Place::empty();
    let first = place.run("task create email");
    assert!(first.err.contains("was not there and has been made"), "{first:?}");
    let id = first.out.trim();
    assert_eq!(place.one(&format!("task show {id}"))["kind"], "email");
    let second = place.run("task create email");
    assert_eq!((second.code, second.err.as_str()), (0, ""));
    assert_ne!(first.out, second.out);
}

#[test]
fn everything_that_can_be_said_is_kept() {
    let place = Place::empty();
    place.ok("task create report --id r1 --lane slow --priority -5 --after 5m --deadline 1h \
         --attempts 5 --backoff 1s..1h --attempt-timeout 30s --label customer=42 --label a=b=c \
         --requires gpu --requires cuda --tag eu --payload {\"n\":1}");
    let task = place.one("task show r1");
    for (field, expected) in [
        ("state", json!("delayed")),
        ("lane", json!("slow")),
        ("priority", json!(-5)),
        ("max_attempts", json!(5)),
        ("labels", json!({ "customer": "42", "a": "b=c" })),
        ("capabilities", json!(["cuda", "gpu"])),
        ("tag", json!("eu")),
    ] {
        assert_eq!(task[field], expected, "{field}");
    }
    assert!(task["deadline"].as_str().unwrap() > task["until"].as_str().unwrap());
    assert_eq!(task["policy"]["attempt_timeout_ms"], 30_000);
    let retry = &task["policy"]["retry"];
    assert_eq!(
        (&retry["backoff_ms"], &retry["backoff_cap_ms"]),
        (&json!(1_000), &json!(3_600_000))
    );
    let payload = json!({ "content_type": "application/json", "bytes": 7, "json": { "n": 1 } });
    assert_eq!(task["payload"], payload);
    place.ok("task create plain --id r2 --attempts 2 --backoff 10s");
    let retry = place.one("task show r2")["policy"]["retry"].clone();
    assert_eq!((&retry["backoff_ms"], &retry["backoff_cap_ms"]), (&json!(10_000), &Value::Null));
}

#[test]
fn the_same_again_is_a_duplicate() {
    let place = Place::empty();
    assert_eq!(place.ok("task create email --id t"), "t\n");
    assert_eq!(place.ok("task create email --id t"), "t (duplicate: it was created before)\n");
    let other = place.run("task create sms --id t");
    assert_eq!(other.code, 3);
    assert!(other.err.ends_with("[conflict]\n"), "{other:?}");

    let first = place.one("task create email --idempotency-key k");
    let second = place.one("task create email --idempotency-key k");
    assert_eq!((&first["duplicate"], &second["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(first["id"], second["id"]);
    assert_eq!(place.run("task create sms --idempotency-key k").code, 3);
}

#[test]
fn a_payload_comes_from_a_file_as_it_is() {
    let place = Place::empty();
    std::fs::write(place.file("picture"), b"\x89PNG\0\xff").unwrap();
    std::fs::write(place.file("data.json"), b"[1, 2]").unwrap();
    std::fs::write(place.file("data.csv"), b"a,b\n1,2\n").unwrap();
    for (line, expected) in [
        (
            "--payload-file picture",
            json!({ "content_type": "application/octet-stream", "bytes": 6 }),
        ),
        (
            "--payload-file data.json",
            json!({ "content_type": "application/json", "bytes": 6, "json": [1, 2] }),
        ),
        (
            "--payload-file data.csv --content-type text/csv",
            json!({ "content_type": "text/csv", "bytes": 8, "text": "a,b\n1,2\n" }),
        ),
    ] {
        let id = place.ok(&format!("task create import {line}"));
        let task = place.one(&format!("task show {}", id.trim()));
        assert_eq!(task["payload"], expected, "{line}");
    }
    let gone = place.run("task create import --payload-file nowhere");
    assert_eq!(gone.code, 1);
    assert!(gone.err.contains("cannot be read from nowhere"), "{gone:?}");
    assert!(gone.err.ends_with("[payload_file]\n"), "{gone:?}");
}

#[test]
fn a_payload_comes_from_standard_input() {
    let place = Place::empty();
    let args = ["task", "create", "sum", "--id", "t", "--payload-file", "-"];
    let mut child =
        place.command(args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"plain text").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.one("task show t")["payload"]["text"], "plain text");
    assert!(place.ok("task show t").contains("payload   plain text"));
}

#[test]
fn the_rules_are_told_by_their_code() {
    let place = Place::empty();
    for (line, code) in [
        ("task create email --attempts 0", "invalid"),
        ("task create email --priority 9999999", "invalid"),
        ("task create email --requires a,b", "invalid"),
    ] {
        let said = place.run(line);
        assert_eq!(said.code, 3, "{line}: {said:?}");
        assert!(said.err.contains(&format!("[{code}]")), "{line}: {said:?}");
    }
    place.ok("task create email --lane mail");
    place.ok("lane drain mail");
    let closed = place.run("task create email --lane mail");
    assert!(closed.err.ends_with("[lane_closed]\n"), "{closed:?}");
}
