//! Runs the tests that guard rules.

use std::collections::BTreeMap;
use std::process::Stdio;

use super::copy::TreeCopy;
use super::guarded::Test;
use crate::cargo::Cargo;

/// The tests of one run: how many passed and how many failed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TestCounts {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

/// Builds the copy and runs these tests. A test that does not exist is an error.
pub(super) fn run_tests(copy: &TreeCopy, tests: &[Test]) -> Result<TestCounts, String> {
    let mut by_binary: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
    for test in tests {
        by_binary.entry(test.binary()).or_default().push(test.name);
    }
    let mut all = TestCounts::default();
    for (binary, names) in by_binary {
        let counts = run_binary(copy, &binary, &names)?;
        if counts.passed + counts.failed != names.len() as u64 {
            return Err(format!("{counts:?}, expected the tests {}", names.join(", ")));
        }
        all = TestCounts { passed: all.passed + counts.passed, failed: all.failed + counts.failed };
    }
    Ok(all)
}

fn run_binary(copy: &TreeCopy, binary: &[&str], names: &[&str]) -> Result<TestCounts, String> {
    let call = || binary.iter().fold(Cargo::new("test --quiet"), |call, &arg| call.arg(arg));
    let built = copy.command(call().arg("--no-run")).status();
    if !built.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        return Err("the build failed".into());
    }
    let mut run = copy.command(call());
    // The error output of failing tests is not needed.
    let output = run.args(["--", "--exact"]).args(names).stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {run:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    TestCounts::read(&text).ok_or_else(|| format!("{run:?} ended early: {}", output.status))
}

impl TestCounts {
    /// Reads `test result: ok. 3 passed; 0 failed; ...`.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("test result: "))?;
        let count = |what: &str| {
            let before = line.split(what).next()?;
            before.trim_end().rsplit(' ').next()?.parse().ok()
        };
        Some(Self { passed: count(" passed")?, failed: count(" failed")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_summary_is_parsed() {
        let text = "\nrunning 1 test\nF\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        assert_eq!(TestCounts::read(text), Some(TestCounts { passed: 0, failed: 1 }));
        let text = "test result: ok. 31 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out\n";
        assert_eq!(TestCounts::read(text), Some(TestCounts { passed: 31, failed: 0 }));
        assert_eq!(TestCounts::read("error: no such thing"), None);
    }
}
