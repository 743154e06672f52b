use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

use super::union::{Union, key};
use super::verdict::Verdict;
use crate::Failure;
use crate::cargo::{Cargo, has_nextest, seconds};
use crate::options::Options;
use crate::proof::{Hash, Outcome, Part, Request, Results, tree_hash};

/// The folders that the results depend on.
const FOLDERS: &[&str] = &["crates", "adapters", "xtask"];

/// Three engine processes on one Postgres, through sixty faults.
const CHAOS: &str = "run --release -p windlass-sim --bin chaos";

/// Runs `cargo xtask prove` with these arguments.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let values = [&Request::VALUES[..], &["--seeds"]].concat();
    let options = Options::parse_with_flags(args, &values, &Request::FLAGS)?;
    let seeds = options.number("--seeds", 10_000)?;
    Ok(prove(seeds, &Request::read(&options)?)?)
}

fn prove(seeds: u64, request: &Request) -> Result<(), String> {
    let tree = tree_hash(FOLDERS)?;
    let results = Results::new("prove", tree);
    let shown = || Union::read(&results, seeds).print(tree, seeds);
    if request.report {
        return shown();
    }
    if !has_nextest() {
        return Err("cargo-nextest is missing: cargo install --locked cargo-nextest".into());
    }
    let start = Instant::now();
    let tested = keep_tests(&results, tree, seeds, request);
    // Run even if tests failed: its figures belong to the proofs, and it has a separate verdict.
    let survived =
        if request.part.is_last() { keep_chaos(&results, tree, request) } else { Ok(()) };
    let union = shown();
    println!("part {}, {}", request.part, seconds(start.elapsed()));
    tested.and(survived).and(union)
}

/// Runs the tests of a part, unless there is a result, and stores their verdicts.
fn keep_tests(results: &Results, tree: Hash, seeds: u64, request: &Request) -> Result<(), String> {
    let (part, key) = (request.part, key(seeds, request.part));
    if results.text(&key).is_some() && !request.again {
        println!("==> tests, part {part}: stored");
        return Ok(());
    }
    let tests = tests(seeds, part);
    println!("==> tests, part {part}: {tests}");
    let lines = watch(&tests).map_err(|problem| format!("{problem}\nreproduce: {tests}"))?;
    unchanged(tree)?;
    results.put_text(&key, &lines)
}

fn tests(seeds: u64, part: Part) -> Cargo {
    let line = "nextest run --workspace --release --run-ignored default --no-fail-fast";
    let tests = Cargo::new(line).env("WINDLASS_SEEDS", seeds.to_string());
    if part == Part::WHOLE {
        return tests;
    }
    tests.arg("--partition").arg(format!("count:{part}"))
}

/// Runs chaos, unless there is a result, and stores its verdict.
fn keep_chaos(results: &Results, tree: Hash, request: &Request) -> Result<(), String> {
    if results.get("chaos").is_some() && !request.again {
        println!("==> chaos: stored");
        return Ok(());
    }
    let chaos = Cargo::new(CHAOS);
    println!("\n==> {chaos}");
    let start = Instant::now();
    let survived = chaos.run();
    let figures = vec![survived.as_ref().err().cloned().unwrap_or_default()];
    let seconds = start.elapsed().as_secs_f64();
    unchanged(tree)?;
    results.put("chaos", "chaos", &Outcome { passed: survived.is_ok(), seconds, figures })?;
    survived.map_err(|problem| format!("chaos broke a rule: {problem}\nreproduce: {chaos}"))
}

/// Checks that the sources did not change: a result counts only for the sources it was found on.
fn unchanged(tree: Hash) -> Result<(), String> {
    if tree_hash(FOLDERS)? == tree {
        return Ok(());
    }
    Err("the sources changed during the run: its result is discarded".into())
}

/// Prints the output of nextest, and returns the verdicts as lines. Tests that were not run are
/// an error, failed tests are not.
fn watch(tests: &Cargo) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot run cargo: {error}");
    let mut child = tests.command().stderr(Stdio::piped()).spawn().map_err(failed)?;
    let (mut verdicts, mut summary) = (String::new(), None);
    for line in child.stderr.take().map(BufReader::new).into_iter().flat_map(BufReader::lines) {
        let line = line.map_err(failed)?;
        eprintln!("{line}");
        // After the summary, failures are listed a second time.
        if line.trim_start().starts_with("Summary") {
            summary = Some(line);
        } else if summary.is_none()
            && let Some(verdict) = Verdict::parse(&line)
        {
            verdicts.push_str(&verdict.line());
        }
    }
    let status = child.wait().map_err(failed)?;
    match summary.as_deref().and_then(tests_run) {
        Some(run) if run == verdicts.lines().count() => Ok(verdicts),
        _ => Err(format!("not all tests were run: {status}")),
    }
}

/// Parses `Summary [ 0.9s] 7 tests run: 6 passed, 1 failed, 2 skipped`; none for `5/7 tests run`,
/// where some were not run.
fn tests_run(summary: &str) -> Option<usize> {
    let (_, rest) = summary.split_once(']')?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_partition_of_nextest() {
        let line = |part| tests(9, Part::parse(part).unwrap()).to_string();
        let whole = "WINDLASS_SEEDS=9 cargo nextest run --workspace --release --run-ignored \
                     default --no-fail-fast";
        assert_eq!(line("1/1"), whole);
        assert_eq!(line("2/5"), format!("{whole} --partition count:2/5"));
    }

    #[test]
    fn tests_that_were_not_run_are_detected() {
        for (summary, expected) in [
            ("     Summary [   0.874s] 71 tests run: 70 passed, 1 failed, 0 skipped", Some(71)),
            ("     Summary [   0.010s] 1 test run: 1 passed, 3 skipped", Some(1)),
            ("     Summary [   0.874s] 3/71 tests run: 2 passed, 1 failed, 0 skipped", None),
            ("     Summary", None),
        ] {
            assert_eq!(tests_run(summary), expected, "{summary}");
        }
    }
}
