//! Stores without tables: read-only commands leave them unchanged, others complete them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use windlass_store_test::postgres::Server;

use crate::place::Place;

/// Every read-only command except `doctor` and `migrate --check`, which report instead.
const READ_ONLY: &[&str] = &[
    "task list",
    "task list --all",
    "task show t",
    "task why t",
    "task wait t",
    "task messages t",
    "waitpoint list",
    "signing-key list",
    "worker list",
    "workflow list",
    "workflow show w",
    "workflow history w",
    "workflow tree w",
    "workflow replay-check w",
    "lane list",
    "quota list",
    "quota show --concurrency-key k",
    "session list",
    "node list",
    "dlq list",
    "events",
    "events --follow",
    "stats",
];

/// A file whose creation was interrupted after its first page.
fn without_tables(path: &Path) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
}

fn refuses(place: &Place, line: &str) {
    let said = place.run(line);
    assert_eq!(said.code, 4, "{line}: {said:?}");
    assert!(said.err.contains("there is no database at"), "{line}: {said:?}");
    assert!(said.err.contains("windlass migrate"), "{line}: {said:?}");
    assert!(said.err.ends_with("[no_database]\n"), "{line}: {said:?}");
    assert_eq!((said.err.lines().count(), said.out.as_str()), (1, ""), "{line}");
}

#[test]
fn commands_that_only_read_create_nothing() {
    let (missing, empty, half) = (Place::empty(), Place::empty(), Place::empty());
    std::fs::write(empty.file("app.db"), b"").unwrap();
    without_tables(&half.file("app.db"));
    let before = std::fs::read(half.file("app.db")).unwrap();
    for line in READ_ONLY {
        refuses(&missing, line);
        assert!(!missing.file("app.db").exists(), "{line}");
        refuses(&empty, line);
        assert_eq!(std::fs::metadata(empty.file("app.db")).unwrap().len(), 0, "{line}");
        refuses(&half, line);
        assert!(std::fs::read(half.file("app.db")).unwrap() == before, "{line}");
    }
    for (line, code) in [("migrate --check", 3), ("doctor", 1)] {
        for place in [&missing, &empty, &half] {
            let said = place.run(line);
            assert_eq!(said.code, code, "{line}: {said:?}");
            assert!(format!("{said:?}").contains("windlass migrate"), "{line}: {said:?}");
        }
        assert!(!missing.file("app.db").exists(), "{line}");
        assert_eq!(std::fs::metadata(empty.file("app.db")).unwrap().len(), 0, "{line}");
        assert!(std::fs::read(half.file("app.db")).unwrap() == before, "{line}");
    }
    assert!(half.ok("migrate").contains("created tables"));
    half.ok("task list");
}

#[test]
fn commands_that_only_read_create_nothing_in_a_database() {
    let server = Server::start();
    let place = Place::at(server.url());
    for line in ["task list", "stats", "events", "lane list"] {
        refuses(&place, line);
        assert_eq!(server.sql("SELECT to_regnamespace('windlass') IS NULL"), "t", "{line}");
    }
    place.ok("migrate");
    assert_eq!(place.ok("task list"), "There is no such task.\n");
}

#[test]
fn the_first_task_completes_a_file_without_tables() {
    let place = Place::empty();
    without_tables(&place.file("app.db"));
    let first = place.run("task create email");
    assert!(first.err.contains("did not exist and has been created"), "{first:?}");
    assert_eq!(place.json("task list").len(), 1);
}

/// Kills a command at different times; whatever it leaves behind is completed.
#[test]
fn a_creation_killed_at_any_time_is_completed() {
    for line in ["migrate", "task create k"] {
        for tenths in 0..40 {
            let place = Place::empty();
            let mut command = place.command(line.split_whitespace());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(tenths * 750));
            child.kill().unwrap();
            child.wait().unwrap();
            let done = place.run("migrate");
            assert_eq!(done.code, 0, "{line}, killed after {tenths}: {done:?}");
            place.ok("task create k --id probe");
            let listed = place.json("task list");
            assert!(listed.iter().any(|task| task["id"] == "probe"), "{line}: {listed:?}");
        }
    }
}
