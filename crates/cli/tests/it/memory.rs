//! Long lists are printed page by page: memory does not grow with their length.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::test_store::TestStore;

const TASKS: u64 = 30_000;
/// A tenth of the size of all records of such a list.
const MOST_KIB: u64 = 70_000;

/// The columns of a table, with some of them replaced.
fn columns(conn: &rusqlite::Connection, table: &str, replaced: &[(&str, &str)]) -> String {
    let mut names = conn.prepare("SELECT name FROM pragma_table_info(?)").unwrap();
    let names = names.query_map([table], |row| row.get::<_, String>(0)).unwrap();
    let names = names.map(|name| {
        let name = name.unwrap();
        let found = replaced.iter().find(|(column, _)| *column == name);
        found.map_or(name.clone(), |(_, by)| (*by).to_owned())
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Copies the only task and the only event.
fn multiply(conn: &rusqlite::Connection) {
    let id = "printf('t%06d', n)";
    let body = "replace(replace(body, 't000000', printf('t%06d', n)), 'BIG', hex(zeroblob(2000)))";
    for (table, replaced) in [
        ("task", &[("id", id), ("body", body)][..]),
        ("event", &[("task", id), ("body", body), ("seq", "n + 1")]),
    ] {
        let copied = columns(conn, table, replaced);
        let sql = format!(
            "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < {}) \
             INSERT INTO {table} SELECT {copied} FROM {table}, count",
            TASKS - 1
        );
        conn.execute_batch(&sql).unwrap();
    }
    conn.execute(&format!("UPDATE meta SET last_seq = {TASKS}"), []).unwrap();
}

fn peak_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_long_list_takes_no_more_memory_than_a_page() {
    let store = TestStore::empty();
    store.ok("task create k --id t000000 --label size=BIG");
    multiply(&rusqlite::Connection::open(store.file("app.db")).unwrap());
    for line in [
        "task list --json --limit 1000000",
        "task list --limit 1000000",
        "events --json --limit 1000000",
    ] {
        let mut command = store.command(line.split_whitespace());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // Still printing: by then it has allocated all memory that it needs for the list.
        let shown = lines.by_ref().take(TASKS as usize / 2).filter(|line| line.contains("t0"));
        let shown = shown.count() as u64;
        let peak = peak_kib(child.id());
        assert!(peak < MOST_KIB, "{line}: {peak} KiB");
        let shown = shown + lines.filter(|line| line.contains("t0")).count() as u64;
        assert!(child.wait().unwrap().success(), "{line}");
        assert_eq!(shown, TASKS, "{line}");
    }
}

#[test]
fn a_list_over_several_pages_ends_at_its_limit() {
    let store = TestStore::empty();
    store.ok("task create k --id t000000");
    multiply(&rusqlite::Connection::open(store.file("app.db")).unwrap());
    for limit in [999, 1_000, 1_001, 2_000, 2_001] {
        let shown = store.json(&format!("task list --limit {limit}"));
        assert_eq!(shown.len(), limit);
        let printed = store.ok(&format!("task list --limit {limit}"));
        let last = format!("--after t{:06},", limit - 1);
        assert!(printed.lines().last().unwrap().contains(&last), "{limit}");
        let entries = store.json(&format!("events --limit {limit}"));
        let seqs: Vec<u64> = entries.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (TASKS - limit as u64 + 1..=TASKS).collect::<Vec<_>>());
    }
    let rest = store.ok(&format!("task list --after t{:06} --limit 5", TASKS - 6));
    assert!(!rest.contains("There are more"), "{rest}");
}
