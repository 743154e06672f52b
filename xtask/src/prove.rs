//! The long proofs: every test again, in release, with as many seeds as it takes to believe it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cargo::{Cargo, has_nextest, seconds};
use crate::table::{row, table};

/// Three engine processes on one Postgres, through sixty faults.
const CHAOS: &str = "run --release -p windlass-sim --bin chaos";

/// The tests with processes of their own.
const PROCESSES: &str = "windlass-sim::it";

/// What the tests of one row came to.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    passed: usize,
    failed: usize,
    time: Duration,
    slowest: (Duration, String),
}

pub(crate) fn run(seeds: u64) -> Result<(), String> {
    if !has_nextest() {
        return Err("cargo-nextest is missing: cargo install --locked cargo-nextest".into());
    }
    let line = "nextest run --workspace --release --run-ignored default --no-fail-fast";
    let tests = Cargo::new(line).env("WINDLASS_SEEDS", seeds.to_string());
    println!("==> {tests}");
    let begun = Instant::now();
    let (tallies, passed) = watch(&tests)?;
    // Whatever the tests say: its figures belong to the proofs, and it is judged by itself.
    let chaos = Cargo::new(CHAOS);
    println!("\n==> {chaos}");
    let survived = chaos.run();
    print!("\n{}", shown(&tallies));
    println!("{seeds} seeds, {}", seconds(begun.elapsed()));
    if !passed {
        return Err(format!("a proof failed\nreproduce: {tests}"));
    }
    survived.map_err(|problem| format!("chaos broke a rule: {problem}\nreproduce: {chaos}"))
}

/// Passes on what nextest says while counting its verdicts.
fn watch(tests: &Cargo) -> Result<(BTreeMap<String, Tally>, bool), String> {
    let failed = |error: std::io::Error| format!("cannot run cargo: {error}");
    let mut child = tests.command().stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut tallies = BTreeMap::<String, Tally>::new();
    let mut counting = true;
    for line in child.stderr.take().map(BufReader::new).into_iter().flat_map(BufReader::lines) {
        let line = line.map_err(failed)?;
        eprintln!("{line}");
        // After the summary, failures are named a second time.
        counting &= !line.trim_start().starts_with("Summary");
        if let Some(verdict) = verdict(&line).filter(|_| counting) {
            tallies.entry(verdict.proof()).or_default().add(&verdict);
        }
    }
    let status = child.wait().map_err(failed)?;
    Ok((tallies, status.success()))
}

struct Verdict<'a> {
    passed: bool,
    time: Duration,
    binary: &'a str,
    test: &'a str,
}

/// Reads `PASS [   0.005s] (1/9) binary test`.
fn verdict(line: &str) -> Option<Verdict<'_>> {
    let (word, rest) = line.trim_start().split_once(" [")?;
    let passed = match word.trim() {
        "PASS" | "LEAK" => true,
        "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL" => false,
        word if word.starts_with("SIG") => false,
        _ => return None,
    };
    let (time, rest) = rest.split_once("s]")?;
    let time = Duration::try_from_secs_f64(time.trim().parse().ok()?).ok()?;
    let rest = rest.trim_start();
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1 } else { rest };
    let (binary, test) = rest.trim().split_once(' ')?;
    Some(Verdict { passed, time, binary, test })
}

impl Verdict<'_> {
    /// The row it counts in: its binary, or where processes are killed and stopped, its subject.
    fn proof(&self) -> String {
        match self.test.split_once("::") {
            Some((subject, _)) if self.binary == PROCESSES => format!("{PROCESSES} {subject}"),
            _ => self.binary.to_owned(),
        }
    }
}

impl Tally {
    fn add(&mut self, verdict: &Verdict<'_>) {
        if verdict.passed {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        self.time += verdict.time;
        if verdict.time >= self.slowest.0 {
            self.slowest = (verdict.time, verdict.test.to_owned());
        }
    }
}

fn shown(tallies: &BTreeMap<String, Tally>) -> String {
    let mut rows = vec![row([&"proof", &"passed", &"failed", &"time", &"slowest", &"which is"])];
    for (binary, tally) in tallies {
        let (slowest, test) = &tally.slowest;
        let (time, slowest) = (seconds(tally.time), seconds(*slowest));
        rows.push(row([binary, &tally.passed, &tally.failed, &time, &slowest, test]));
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_have_a_row_of_their_own() {
        for (line, proof) in [
            ("PASS [ 0.1s] (1/3) windlass-core name::tests::table", "windlass-core"),
            ("PASS [ 0.1s] (2/3) windlass-sim::it requests::a_kill", "windlass-sim::it requests"),
            (
                "PASS [ 9.5s] (3/3) windlass-sim::it workflows::outlive",
                "windlass-sim::it workflows",
            ),
        ] {
            assert_eq!(verdict(line).map(|verdict| verdict.proof()).as_deref(), Some(proof));
        }
    }

    #[test]
    fn verdicts_are_counted() {
        let mut tally = Tally::default();
        for line in [
            "    Starting 3 tests across 2 binaries",
            "        PASS [   0.250s] (1/3) windlass-core command::claim::tests::table",
            "        FAIL [   1.500s] (2/3) windlass-core why::tests::table",
            "        SLOW [> 60.000s] (─────) windlass-core name::tests::table",
            "     SIGABRT [   0.250s] ( 3/3) windlass-core name::tests::table",
            "  stderr ───",
        ] {
            if let Some(verdict) = verdict(line) {
                assert_eq!(verdict.binary, "windlass-core");
                tally.add(&verdict);
            }
        }
        let slowest = (Duration::from_millis(1_500), "why::tests::table".into());
        let time = Duration::from_secs(2);
        assert_eq!(tally, Tally { passed: 1, failed: 2, time, slowest });
    }
}
