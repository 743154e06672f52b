//! duroxide's own suite on every store: how many functions ran, passed, and were excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::cargo::{Cargo, has_nextest};
use crate::table::{row, table};
use crate::tree;

const SUITE: &str = "adapters/duroxide/tests/it/suite.rs";
/// The list of excluded functions, which are for another kind of provider.
const EXCLUDED: &str = "const OF_SHORT_POLLS";
const STORES: [&str; 2] = ["sqlite", "postgres"];

/// Whether tests passed, by store, module and, on SQLite, function.
#[derive(Debug, Default)]
struct Tests(BTreeMap<String, bool>);

pub(crate) fn run() -> Result<(), String> {
    if !has_nextest() {
        return Err("cargo-nextest is missing: cargo install --locked cargo-nextest".into());
    }
    let suite = tree::root().join(SUITE);
    let source = std::fs::read_to_string(&suite);
    let source = source.map_err(|error| format!("{}: {error}", suite.display()))?;
    let tests =
        Cargo::new("nextest run --locked --package windlass-duroxide --no-fail-fast suite::");
    println!("==> {tests}");
    let mut running = tests.command();
    let mut running = running
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run {tests}: {error}"))?;
    let mut found = Tests::default();
    for line in running.stderr.take().into_iter().flat_map(|err| BufReader::new(err).lines()) {
        let line = line.map_err(|error| error.to_string())?;
        found.read(&line);
        eprintln!("{line}");
    }
    let status = running.wait().map_err(|error| error.to_string())?;
    print!("\n{}", found.report(&excluded(&source)));
    if status.success() { Ok(()) } else { Err(format!("the suite: {status}")) }
}

/// The excluded functions, as the suite names them.
fn excluded(source: &str) -> Vec<&str> {
    let list = source.split_once(EXCLUDED).map_or("", |(_, rest)| rest);
    let list = list.split_once("];").map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

impl Tests {
    fn read(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let passed = match words.next() {
            Some("PASS") => true,
            Some("FAIL" | "TIMEOUT" | "SIGABRT" | "SIGSEGV") => false,
            _ => return,
        };
        if let Some(name) = words.next_back().and_then(|name| name.strip_prefix("suite::")) {
            self.0.insert(name.to_owned(), passed);
        }
    }

    /// The functions of a store, and how many of them passed. On Postgres a test runs all
    /// functions of a module, as many as there are on SQLite.
    fn count(&self, store: &str) -> (usize, usize) {
        let of = |store: &str, module: &str| {
            let prefix = format!("{store}::{module}");
            self.0.iter().filter(move |(name, _)| name.starts_with(&prefix))
        };
        if store == STORES[0] {
            let passed = of(store, "").filter(|(_, passed)| **passed);
            return (of(store, "").count(), passed.count());
        }
        let (mut ran, mut passes) = (0, 0);
        for (name, passed) in of(store, "") {
            let module = name.rsplit("::").next().unwrap_or_default();
            let functions = of(STORES[0], &format!("{module}::")).count();
            ran += functions;
            passes += if *passed { functions } else { 0 };
        }
        (ran, passes)
    }

    fn report(&self, excluded: &[&str]) -> String {
        let mut rows = vec![row([&"store", &"run", &"passed", &"excluded"])];
        for store in STORES {
            let (ran, passed) = self.count(store);
            rows.push(row([&store, &ran, &passed, &excluded.len()]));
        }
        let failed: BTreeSet<&str> =
            self.0.iter().filter(|(_, passed)| !**passed).map(|(name, _)| name.as_str()).collect();
        let mut text = table(&rows);
        for name in failed {
            text += &format!("failed: {name}\n");
        }
        for name in excluded {
            text += &format!("excluded: {name} (for providers that never wait for work)\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 5] = [
        "        PASS [   0.1s] (1/5) windlass-duroxide::it suite::sqlite::prune::test_prune_bulk",
        "        PASS [   0.1s] (2/5) windlass-duroxide::it suite::sqlite::prune::test_prune_safety",
        "        FAIL [   0.1s] (3/5) windlass-duroxide::it suite::sqlite::sessions::test_one",
        "        PASS [   1.1s] (4/5) windlass-duroxide::it suite::postgres::prune",
        "     Summary [   1.1s] 5 tests run",
    ];

    #[test]
    fn functions_are_counted_on_every_store() {
        let mut tests = Tests::default();
        LINES.iter().for_each(|line| tests.read(line));
        assert_eq!((tests.count("sqlite"), tests.count("postgres")), ((3, 2), (2, 2)));
        let report = tests.report(&["test_short"]);
        assert!(report.contains("failed: sqlite::sessions::test_one"), "{report}");
        assert!(report.contains("excluded: test_short"), "{report}");
    }

    #[test]
    fn excluded_functions_are_listed_by_the_suite() {
        let source = std::fs::read_to_string(tree::root().join(SUITE)).unwrap();
        let short = excluded(&source);
        assert_eq!(short.len(), 2, "{short:?}");
        assert!(short.iter().all(|name| name.starts_with("test_short_poll")));
    }
}
