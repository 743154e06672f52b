//! Mutation rows that the test which guards the rule must notice, on Postgres.

use std::process::Stdio;

use super::copy::TreeCopy;
use super::rows_postgres::{Guard, ROWS};
use crate::cargo::Cargo;
use crate::proof::{Hash, Report, Request, Results, Row, run_rows};

const PROOF: &str = "mutate-postgres";

const TITLES: [&str; 3] = ["passed", "failed", "test"];

/// The tests of one run: how many passed and how many failed.
#[derive(Debug, PartialEq)]
struct Ran {
    passed: u64,
    failed: u64,
}

pub(super) fn run(request: &Request) -> Result<(), String> {
    let control = Row::control(Hash::new().field("nothing").field(tests().join(" ")).to_string());
    let rows = ROWS
        .iter()
        .map(|Guard { mutation, test }| Row::mutation(mutation.rule, mutation.key(test)));
    let rows: Vec<Row> = std::iter::once(control).chain(rows).collect();
    if request.report {
        let tree = TreeCopy::hash_of_tree()?;
        return Report::new(tree, &Results::new(PROOF, tree), &rows, &TITLES).print();
    }
    let copy = TreeCopy::update()?;
    let results = Results::new(PROOF, copy.hash);
    let ran = run_rows(&rows, request, &results, |row| match row.checked_sub(1) {
        None => control_row(&copy),
        Some(row) => guard_row(&copy, &ROWS[row]),
    });
    Report::new(copy.hash, &results, &rows, &TITLES).print().and(ran)
}

/// The tests of all rows, each once.
fn tests() -> Vec<&'static str> {
    let mut tests: Vec<&str> = ROWS.iter().map(|guard| guard.test).collect();
    tests.sort_unstable();
    tests.dedup();
    tests
}

/// Runs all these tests without a mutation.
fn control_row(copy: &TreeCopy) -> Result<(bool, Vec<String>), String> {
    let tests = tests();
    let ran = try_out(copy, &tests)?;
    let whole = ran.passed + ran.failed == tests.len() as u64;
    if !whole {
        return Err(format!("{ran:?}, expected {} tests", tests.len()));
    }
    Ok((ran.failed == 0, ran.figures("all of them")))
}

/// Runs the test that guards a rule, without the rule.
fn guard_row(copy: &TreeCopy, guard: &Guard) -> Result<(bool, Vec<String>), String> {
    let Guard { mutation, test } = guard;
    let ran = copy.without(mutation, || try_out(copy, &[test]))?;
    if ran.passed + ran.failed != 1 {
        return Err(format!("the test {test} does not exist"));
    }
    Ok((ran.failed == 1, ran.figures(test)))
}

/// Builds the copy and runs these tests.
fn try_out(copy: &TreeCopy, tests: &[&str]) -> Result<Ran, String> {
    const BUILD: &str = "test --quiet --package windlass-store-postgres --test it --no-run";
    const RUN: &str = "test --quiet --package windlass-store-postgres --test it -- --exact";
    let mut build = copy.command(Cargo::new(BUILD));
    let built = build.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !built.success() {
        return Err("the build failed".into());
    }
    let mut run = copy.command(Cargo::new(RUN));
    // The error output of failing tests is not needed.
    let output = run.args(tests).stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {run:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ran::read(&text).ok_or_else(|| format!("{run:?} ended early: {}", output.status))
}

impl Ran {
    /// Reads `test result: ok. 3 passed; 0 failed; ...`.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("test result: "))?;
        let count = |what: &str| {
            let before = line.split(what).next()?;
            before.trim_end().rsplit(' ').next()?.parse().ok()
        };
        Some(Self { passed: count(" passed")?, failed: count(" failed")? })
    }

    fn figures(&self, tests: &str) -> Vec<String> {
        vec![self.passed.to_string(), self.failed.to_string(), tests.to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn every_patch_fits_and_every_test_exists() {
        for Guard { mutation, test } in ROWS {
            let text = tree::read(mutation.file).unwrap();
            assert_ne!(mutation.patch(&text).unwrap(), text);
            let (file, name) = test.split_once("::").unwrap();
            let path = format!("crates/store-postgres/tests/it/{file}.rs");
            assert!(tree::read(&path).unwrap().contains(&format!("fn {name}()")), "{test}");
        }
    }

    #[test]
    fn the_test_summary_is_parsed() {
        let text = "\nrunning 1 test\nF\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        assert_eq!(Ran::read(text), Some(Ran { passed: 0, failed: 1 }));
        let text = "test result: ok. 31 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out\n";
        assert_eq!(Ran::read(text), Some(Ran { passed: 31, failed: 0 }));
        assert_eq!(Ran::read("error: no such thing"), None);
    }
}
