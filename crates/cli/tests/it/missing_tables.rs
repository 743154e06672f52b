//! Stores without tables: read-only commands leave them unchanged, others complete them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use windlass_store_test::postgres::Server;

use crate::test_store::TestStore;

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
    "workflow check-history w",
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

fn rejects(store: &TestStore, line: &str) {
    let output = store.run(line);
    assert_eq!(output.code, 4, "{line}: {output:?}");
    assert!(output.err.contains("there is no database at"), "{line}: {output:?}");
    assert!(output.err.contains("windlass migrate"), "{line}: {output:?}");
    assert!(output.err.ends_with("[no_database]\n"), "{line}: {output:?}");
    assert_eq!((output.err.lines().count(), output.out.as_str()), (1, ""), "{line}");
}

#[test]
fn commands_that_only_read_create_nothing() {
    let (missing, empty, half) = (TestStore::empty(), TestStore::empty(), TestStore::empty());
    std::fs::write(empty.file("app.db"), b"").unwrap();
    without_tables(&half.file("app.db"));
    let before = std::fs::read(half.file("app.db")).unwrap();
    for line in READ_ONLY {
        rejects(&missing, line);
        assert!(!missing.file("app.db").exists(), "{line}");
        rejects(&empty, line);
        assert_eq!(std::fs::metadata(empty.file("app.db")).unwrap().len(), 0, "{line}");
        rejects(&half, line);
        assert!(std::fs::read(half.file("app.db")).unwrap() == before, "{line}");
    }
    for (line, code) in [("migrate --check", 3), ("doctor", 1)] {
        for store in [&missing, &empty, &half] {
            let output = store.run(line);
            assert_eq!(output.code, code, "{line}: {output:?}");
            assert!(format!("{output:?}").contains("windlass migrate"), "{line}: {output:?}");
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
    let store = TestStore::at(server.url());
    for line in ["task list", "stats", "events", "lane list"] {
        rejects(&store, line);
        assert_eq!(server.sql("SELECT to_regnamespace('windlass') IS NULL"), "t", "{line}");
    }
    store.ok("migrate");
    assert_eq!(store.ok("task list"), "There is no such task.\n");
}

#[test]
fn the_first_task_completes_a_file_without_tables() {
    let store = TestStore::empty();
    without_tables(&store.file("app.db"));
    let first = store.run("task create email");
    assert!(first.err.contains("did not exist and has been created"), "{first:?}");
    assert_eq!(store.json("task list").len(), 1);
}

/// Kills a command at different times; whatever it leaves behind is completed.
#[test]
fn a_creation_killed_at_any_time_is_completed() {
    for line in ["migrate", "task create k"] {
        for tenths in 0..40 {
            let store = TestStore::empty();
            let mut command = store.command(line.split_whitespace());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(tenths * 750));
            child.kill().unwrap();
            child.wait().unwrap();
            let done = store.run("migrate");
            assert_eq!(done.code, 0, "{line}, killed after {tenths}: {done:?}");
            store.ok("task create k --id probe");
            let listed = store.json("task list");
            assert!(listed.iter().any(|task| task["id"] == "probe"), "{line}: {listed:?}");
        }
    }
}
