//! `task create`, and commands before it.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::test_store::TestStore;

#[test]
fn a_missing_database_is_not_created() {
    let store = TestStore::empty();
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
        "dlq list",
        "dlq replay t",
        "dlq replay --all",
        "events",
        "events --follow",
        "stats",
    ] {
        let output = store.run(line);
        assert_eq!(output.code, 4, "{line}: {output:?}");
        assert!(output.err.contains("there is no database at sqlite://"), "{line}: {output:?}");
        assert!(output.err.ends_with("[no_database]\n"), "{line}: {output:?}");
        assert_eq!((output.err.lines().count(), output.out.as_str()), (1, ""), "{line}");
        assert!(!store.file("app.db").exists(), "{line}");
    }
}

#[test]
fn the_first_task_creates_the_database() {
    let store = TestStore::empty();
    let first = store.run("task create email");
    assert!(first.err.contains("did not exist and has been created"), "{first:?}");
    let id = first.out.trim();
    assert_eq!(store.one(&format!("task show {id}"))["kind"], "email");
    let second = store.run("task create email");
    assert_eq!((second.code, second.err.as_str()), (0, ""));
    assert_ne!(first.out, second.out);
}

#[test]
fn every_option_is_stored() {
    let store = TestStore::empty();
    store.ok("task create report --id r1 --lane slow --priority -5 --delay 5m --deadline 1h \
         --attempts 5 --backoff 1s..1h --attempt-timeout 30s --label customer=42 --label a=b=c \
         --requires gpu --requires cuda --tag eu --payload {\"n\":1}");
    let task = store.one("task show r1");
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
    store.ok("task create plain --id r2 --attempts 2 --backoff 10s");
    let retry = store.one("task show r2")["policy"]["retry"].clone();
    assert_eq!((&retry["backoff_ms"], &retry["backoff_cap_ms"]), (&json!(10_000), &Value::Null));
}

#[test]
fn a_repeated_create_is_a_duplicate() {
    let store = TestStore::empty();
    assert_eq!(store.ok("task create email --id t"), "t\n");
    assert_eq!(store.ok("task create email --id t"), "t (duplicate: it was created before)\n");
    let other = store.run("task create sms --id t");
    assert_eq!(other.code, 3);
    assert!(other.err.ends_with("[conflict]\n"), "{other:?}");

    let first = store.one("task create email --idempotency-key k");
    let second = store.one("task create email --idempotency-key k");
    assert_eq!((&first["duplicate"], &second["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(first["id"], second["id"]);
    assert_eq!(store.run("task create sms --idempotency-key k").code, 3);
}

#[test]
fn a_payload_is_read_from_a_file() {
    let store = TestStore::empty();
    std::fs::write(store.file("picture"), b"\x89PNG\0\xff").unwrap();
    std::fs::write(store.file("data.json"), b"[1, 2]").unwrap();
    std::fs::write(store.file("data.csv"), b"a,b\n1,2\n").unwrap();
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
        let id = store.ok(&format!("task create import {line}"));
        let task = store.one(&format!("task show {}", id.trim()));
        assert_eq!(task["payload"], expected, "{line}");
    }
    let unreadable = store.run("task create import --payload-file nowhere");
    assert_eq!(unreadable.code, 1);
    assert!(unreadable.err.contains("cannot be read from nowhere"), "{unreadable:?}");
    assert!(unreadable.err.ends_with("[payload_file]\n"), "{unreadable:?}");
}

#[test]
fn a_payload_is_read_from_standard_input() {
    let store = TestStore::empty();
    let args = ["task", "create", "sum", "--id", "t", "--payload-file", "-"];
    let mut child =
        store.command(args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"plain text").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(store.one("task show t")["payload"]["text"], "plain text");
    assert!(store.ok("task show t").contains("payload   plain text"));
}

#[test]
fn a_rejection_is_reported_with_its_code() {
    let store = TestStore::empty();
    store.ok("task create email --lane mail");
    store.ok("lane drain mail");
    let closed = store.run("task create email --lane mail");
    assert!(closed.err.ends_with("[lane_closed]\n"), "{closed:?}");
}

#[test]
fn a_value_outside_its_limit_is_rejected_before_anything_is_created() {
    let store = TestStore::empty();
    let long = "x".repeat(300);
    let id = format!("--id {long}");
    let lane = format!("--lane {long}");
    for (options, expected) in [
        ("--attempts 0", "--attempts is outside 1 to 10000"),
        ("--priority 9999999", "--priority is outside -1000000 to 1000000"),
        ("--requires a,b", "--requires has a character"),
        ("--deadline 0s", "--deadline is outside 1ms to "),
        ("--delay 9999d", "--delay is outside 0ms to "),
        ("--attempt-timeout 0s", "--attempt-timeout is outside 1ms to "),
        ("--attempts 2 --backoff 999d", "--backoff is outside 0ms to "),
        (&id, "--id is longer than 255 bytes"),
        (&lane, "--lane is longer than 255 bytes"),
    ] {
        let line = format!("task create email {options}");
        for exists in [false, true] {
            assert_eq!(store.file("app.db").exists(), exists, "{line}");
            let output = store.run(&line);
            assert_eq!((output.code, output.out.as_str()), (2, ""), "{line}: {output:?}");
            assert!(output.err.starts_with(&format!("windlass: {expected}")), "{line}: {output:?}");
            assert!(output.err.ends_with("[invalid]\n"), "{line}: {output:?}");
            if !exists {
                assert!(!store.file("app.db").exists(), "{line}");
                store.ok("task create email");
            }
        }
        std::fs::remove_file(store.file("app.db")).unwrap();
    }
}

#[test]
fn a_payload_that_is_too_long_is_rejected_before_anything_is_created() {
    let store = TestStore::empty();
    let most = usize::try_from(windlass::limits::PAYLOAD_BYTES.max).unwrap();
    std::fs::write(store.file("long"), vec![b'x'; most + 1]).unwrap();
    let output = store.run("task create import --payload-file long");
    assert_eq!(output.code, 2, "{output:?}");
    let expected = format!("windlass: --payload-file is longer than {most} bytes [invalid]\n");
    assert_eq!(output.err, expected);

    // An endless payload is rejected, too.
    let mut command = store.command(["task", "create", "import", "--payload-file", "-"]);
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let output = command.stdin(endless).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(crate::text(&output.stderr), expected);
    assert!(!store.file("app.db").exists());

    std::fs::write(store.file("long"), vec![b'x'; most]).unwrap();
    store.ok("task create import --payload-file long");
}

#[test]
fn a_label_given_twice_is_rejected() {
    let store = TestStore::empty();
    let output = store.run("task create email --label a=1 --label b=1 --label a=2");
    assert_eq!(output.code, 2, "{output:?}");
    assert_eq!(output.err, "windlass: the label a is given twice [usage]\n");
    assert!(!store.file("app.db").exists());
}

#[test]
fn with_json_a_created_database_is_not_reported() {
    let store = TestStore::empty();
    let output = store.run("task create email --json");
    assert_eq!((output.code, output.err.as_str()), (0, ""));
}

#[test]
fn an_empty_file_is_not_a_database() {
    let store = TestStore::empty();
    std::fs::write(store.file("app.db"), b"").unwrap();
    for line in ["task list", "stats", "events --follow"] {
        let output = store.run(line);
        assert_eq!(output.code, 4, "{line}: {output:?}");
        assert!(output.err.ends_with("[no_database]\n"), "{line}: {output:?}");
    }
    assert_eq!(std::fs::metadata(store.file("app.db")).unwrap().len(), 0);
    store.ok("task create email");
    store.ok("task list");
}
