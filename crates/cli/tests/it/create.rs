//! `task create`, and commands before it.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::place::Place;

#[test]
fn a_missing_database_is_not_created() {
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
        "dlq list",
        "dlq replay t",
        "dlq replay --all",
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
fn the_first_task_creates_the_database() {
    let place = Place::empty();
    let first = place.run("task create email");
    assert!(first.err.contains("did not exist and has been created"), "{first:?}");
    let id = first.out.trim();
    assert_eq!(place.one(&format!("task show {id}"))["kind"], "email");
    let second = place.run("task create email");
    assert_eq!((second.code, second.err.as_str()), (0, ""));
    assert_ne!(first.out, second.out);
}

#[test]
fn every_option_is_stored() {
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
fn a_repeated_create_is_a_duplicate() {
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
fn a_payload_is_read_from_a_file() {
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
fn a_payload_is_read_from_standard_input() {
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
fn a_rejection_is_reported_with_its_code() {
    let place = Place::empty();
    place.ok("task create email --lane mail");
    place.ok("lane drain mail");
    let closed = place.run("task create email --lane mail");
    assert!(closed.err.ends_with("[lane_closed]\n"), "{closed:?}");
}

#[test]
fn a_value_outside_its_limit_is_rejected_before_anything_is_created() {
    let place = Place::empty();
    let long = "x".repeat(300);
    let id = format!("--id {long}");
    let lane = format!("--lane {long}");
    for (options, expected) in [
        ("--attempts 0", "--attempts is outside 1 to 10000"),
        ("--priority 9999999", "--priority is outside -1000000 to 1000000"),
        ("--requires a,b", "--requires has a character"),
        ("--deadline 0s", "--deadline is outside 1ms to "),
        ("--after 9999d", "--after is outside 0ms to "),
        ("--attempt-timeout 0s", "--attempt-timeout is outside 1ms to "),
        ("--attempts 2 --backoff 999d", "--backoff is outside 0ms to "),
        (&id, "--id is longer than 255 bytes"),
        (&lane, "--lane is longer than 255 bytes"),
    ] {
        let line = format!("task create email {options}");
        for made in [false, true] {
            assert_eq!(place.file("app.db").exists(), made, "{line}");
            let said = place.run(&line);
            assert_eq!((said.code, said.out.as_str()), (2, ""), "{line}: {said:?}");
            assert!(said.err.starts_with(&format!("windlass: {expected}")), "{line}: {said:?}");
            assert!(said.err.ends_with("[invalid]\n"), "{line}: {said:?}");
            if !made {
                assert!(!place.file("app.db").exists(), "{line}");
                place.ok("task create email");
            }
        }
        std::fs::remove_file(place.file("app.db")).unwrap();
    }
}

#[test]
fn a_payload_that_is_too_long_is_rejected_before_anything_is_created() {
    let place = Place::empty();
    let most = usize::try_from(windlass::limits::PAYLOAD_BYTES.max).unwrap();
    std::fs::write(place.file("long"), vec![b'x'; most + 1]).unwrap();
    let said = place.run("task create import --payload-file long");
    assert_eq!(said.code, 2, "{said:?}");
    let expected = format!("windlass: --payload-file is longer than {most} bytes [invalid]\n");
    assert_eq!(said.err, expected);

    // An endless payload is rejected, too.
    let mut command = place.command(["task", "create", "import", "--payload-file", "-"]);
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let output = command.stdin(endless).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(crate::text(&output.stderr), expected);
    assert!(!place.file("app.db").exists());

    std::fs::write(place.file("long"), vec![b'x'; most]).unwrap();
    place.ok("task create import --payload-file long");
}

#[test]
fn a_label_given_twice_is_rejected() {
    let place = Place::empty();
    let said = place.run("task create email --label a=1 --label b=1 --label a=2");
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(said.err, "windlass: the label a is given twice [usage]\n");
    assert!(!place.file("app.db").exists());
}

#[test]
fn with_json_a_created_database_is_not_reported() {
    let place = Place::empty();
    let said = place.run("task create email --json");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn an_empty_file_is_not_a_database() {
    let place = Place::empty();
    std::fs::write(place.file("app.db"), b"").unwrap();
    for line in ["task list", "stats", "events --follow"] {
        let said = place.run(line);
        assert_eq!(said.code, 4, "{line}: {said:?}");
        assert!(said.err.ends_with("[no_database]\n"), "{line}: {said:?}");
    }
    assert_eq!(std::fs::metadata(place.file("app.db")).unwrap().len(), 0);
    place.ok("task create email");
    place.ok("task list");
}
