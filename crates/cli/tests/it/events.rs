//! `events`: past and new changes.

use serde_json::json;

use crate::test_store::{TestStore, claim};

#[test]
fn the_last_changes_and_the_cursor_after_them() {
    let store = TestStore::empty();
    for n in 0..60 {
        store.ok(&format!("task create k --id t{n:02} --lane {}", ["a", "b"][n % 2]));
    }
    store.ok("lane pause a");
    let seqs = |line: &str| {
        let rows = store.json(line);
        rows.iter().map(|row| row["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(seqs("events"), (12..=61).collect::<Vec<_>>());
    assert_eq!(seqs("events --limit 2"), [60, 61]);
    assert_eq!(seqs("events --limit 0").len(), 0);
    assert_eq!(seqs("events --category lane"), [61]);
    assert_eq!(seqs("events --lane b --limit 3"), [56, 58, 60]);
    assert_eq!(seqs("events --task t00"), [1]);
    assert_eq!(seqs("events --tenant other").len(), 0);

    let text = store.ok("events --limit 2");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("task        created             t59 (k in b)"), "{text}");
    assert!(lines[1].ends_with("lane_state_changed  lane a  to paused"), "{text}");
    let cursor = lines[2].strip_prefix("cursor ").unwrap();

    store.ok("task cancel t59 --reason enough");
    store.ok("lane resume a");
    assert_eq!(seqs(&format!("events --after {cursor}")), [62, 63]);
    assert_eq!(seqs(&format!("events --after {cursor} --limit 1")), [62]);
    let row = &store.json(&format!("events --after {cursor}"))[0];
    assert_eq!(row["details"], json!({ "reason": "enough" }));
    assert_eq!((&row["event"], &row["task"]), (&json!("cancelled"), &json!("t59")));

    // The cursor of a row points after that row, also where a filter hides later ones.
    let behind = row["cursor"].as_str().unwrap();
    assert_eq!(seqs(&format!("events --after {behind}")), [63]);
    let hidden = store.ok(&format!("events --after {behind} --task t00"));
    assert!(hidden.trim_end().ends_with(":63"), "{hidden}");
}

#[test]
fn events_are_filtered() {
    let store = TestStore::empty();
    store.ok("task create email --id a --lane mail --label customer=42 --label region=eu");
    store.ok("task create email --id b --lane bulk --label customer=42");
    store.ok("task create fax --id c --lane mail");
    store.ok("lane pause mail");
    let tasks = |line: &str| {
        let rows = store.json(line);
        let task = |row: &serde_json::Value| row["task"].as_str().unwrap_or("-").to_owned();
        rows.iter().map(task).collect::<Vec<_>>().join(" ")
    };
    for (line, expected) in [
        ("events --kind email", "a b"),
        ("events --kind email --kind fax", "a b c"),
        ("events --lane mail --kind fax", "c"),
        ("events --label customer=42", "a b"),
        ("events --label customer=42 --label region=eu", "a"),
        ("events --label customer=7", ""),
        ("events --category lane --category completion", "-"),
        ("events --lane mail --lane bulk", "a b c -"),
    ] {
        assert_eq!(tasks(line), expected, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_cursor_is_stored() {
    let store = TestStore::empty();
    let engine = store.application().await;
    for id in ["a", "b", "c"] {
        engine.create("k").id(id).await.unwrap();
    }
    let seqs = |line: &str| {
        let rows = store.json(line);
        rows.iter().map(|row| row["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(seqs("events --subscription audit --limit 2"), [1, 2]);
    assert_eq!(seqs("events --subscription audit"), [3]);
    assert!(seqs("events --subscription audit").is_empty());
    assert_eq!(seqs("events --subscription other"), [1, 2, 3]);
    assert_eq!(seqs("events"), [1, 2, 3], "without a name no cursor is stored");
    engine.create("k").id("d").lane("mail").await.unwrap();

    let mut mail = store.start("events --subscription audit --lane mail --follow");
    mail.until("d (k in mail)");
    engine.create("k").id("e").await.unwrap();
    engine.create("k").id("f").lane("mail").await.unwrap();
    mail.until("f (k in mail)");
    let (rest, code) = mail.interrupt();
    assert_eq!((code, rest.last().unwrap().ends_with(":6")), (0, true), "{rest:?}");
    assert!(
        seqs("events --subscription audit").is_empty(),
        "events hidden by the filter were read as well"
    );

    let cursor = store.json("events")[3]["cursor"].as_str().unwrap().to_owned();
    assert_eq!(seqs(&format!("events --subscription audit --after {cursor}")), [5, 6]);
    assert!(seqs("events --subscription audit").is_empty(), "the cursor only moves forward");
    let output = store.run_words(&["events", "--subscription", ""]);
    assert_eq!(
        (output.code, output.err.as_str()),
        (2, "windlass: --subscription is empty [invalid]\n")
    );
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_cursor_is_reported_with_the_oldest_one() {
    let store = TestStore::empty();
    let url = store.url().parse().unwrap();
    let config = windlass::Config {
        event_retention: std::time::Duration::ZERO,
        background: false,
        ..windlass::Config::default()
    };
    let engine = windlass::Engine::open_with(&url, config).await.unwrap();
    store.ok("task create k --id t");
    let first = store.json("events")[0]["cursor"].as_str().unwrap().to_owned();
    let incarnation = first.split_once(':').unwrap().0;
    store.ok("task cancel t");
    store.ok("task replay t");
    engine.trim_log().await.unwrap();
    store.ok("task cancel t");

    let output = store.run(&format!("events --after {first}"));
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains(&format!("--after {incarnation}:")), "{output:?}");
    assert!(output.err.ends_with("[cursor_expired]\n"), "{output:?}");
    let oldest = output.err.split("--after ").nth(1).unwrap().split(',').next().unwrap();
    let rows = store.json(&format!("events --after {oldest}"));
    assert_eq!(rows.last().unwrap()["event"], "cancelled");

    // Events of a task whose log was trimmed are not presented as complete.
    assert_eq!(store.one("task show t")["events_truncated"], true);
    assert!(store.ok("task show t").contains("Older events were trimmed from the log"));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn following_shows_changes_of_other_processes() {
    let store = TestStore::empty();
    let engine = store.application().await;
    engine.create("k").id("first").lane("mail").await.unwrap();

    let mut all = store.start("events --follow");
    let mut mail = store.start("events --follow --lane mail --json");
    all.until("first (k in mail)");
    mail.until(r#""task":"first""#);

    engine.create("k").id("other").await.unwrap();
    engine.create("k").id("second").lane("mail").await.unwrap();
    all.until("other (k in default)");
    all.until("second (k in mail)");
    let line = mail.until("task");
    assert!(line.contains(r#""task":"second""#), "nothing of another lane: {line}");

    // Changes of other commands are shown as well.
    store.ok("lane pause mail");
    all.until("lane mail  to paused");
    mail.until("lane_state_changed");
    store.ok("lane resume mail");
    claim(&engine, "worker-1", "mail").await;
    all.until("claimed             first (k in mail)  by worker-1, attempt 1");

    let (rest, code) = all.interrupt();
    assert_eq!(code, 0);
    let cursor = rest.last().unwrap().strip_prefix("cursor ").unwrap().to_owned();
    assert_eq!(mail.interrupt().1, 0);

    store.ok("task cancel second");
    let rows = store.json(&format!("events --after {cursor}"));
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["event"], "cancelled");
    engine.shutdown().await.unwrap();
}

#[test]
fn following_ends_when_the_pipe_is_closed() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    let store = TestStore::empty();
    store.ok("task create k --id t");
    let mut command = store.command(["events", "--follow"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert!(line.contains("created"), "{line}");
    drop(printed);
    // No write fails here: without polling the pipe this waits forever.
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(crate::text(&output.stderr), "");
}
