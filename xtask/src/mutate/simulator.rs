//! Mutation rows that the simulator must notice.

use std::process::Stdio;

use super::copy::TreeCopy;
use super::mutation::Mutation;
use crate::cargo::Cargo;
use crate::proof::{Hash, Report, Request, Results, Row, run_rows};

const TITLES: [&str; 4] = ["seeds", "that notice", "first", "by what"];

/// The seeds of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeds {
    pub(super) most: u64,
    /// The row ends after this many violations: it is known to be noticed by then.
    pub(super) stop_after: Option<u64>,
}

/// The output of the simulator.
#[derive(Debug, Default, PartialEq)]
struct Found {
    seeds: u64,
    violations: u64,
    first: Option<u64>,
    kinds: Vec<String>,
}

pub(super) fn run(mutations: &[&Mutation], seeds: Seeds, request: &Request) -> Result<(), String> {
    let rows = rows(mutations, seeds);
    if request.report {
        let tree = TreeCopy::hash_of_tree()?;
        return Report::new(tree, &Results::new("mutate", tree), &rows, &TITLES).print();
    }
    let copy = TreeCopy::update()?;
    let results = Results::new("mutate", copy.hash);
    let ran = run_rows(&rows, request, &results, |row| {
        let found = match row.checked_sub(1) {
            None => simulate(&copy, seeds),
            Some(row) => copy.without(mutations[row], || simulate(&copy, seeds)),
        }?;
        Ok(((found.violations == 0) == (row == 0), found.figures()))
    });
    Report::new(copy.hash, &results, &rows, &TITLES).print().and(ran)
}

/// The row without a mutation comes first.
fn rows(mutations: &[&Mutation], seeds: Seeds) -> Vec<Row> {
    let how = format!("{seeds:?}");
    let control = Row::control(Hash::new().field("nothing").field(&how).to_string());
    let rows = mutations.iter().map(|row| Row::mutation(row.rule, row.key(&how)));
    std::iter::once(control).chain(rows).collect()
}

fn simulate(copy: &TreeCopy, seeds: Seeds) -> Result<Found, String> {
    // Fat link-time optimization would take longer than the seeds.
    let build = Cargo::new("build --release --quiet --package windlass-sim --bin windlass-sim")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    let status = copy.command(build).status();
    if !status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        return Err("the build failed".into());
    }
    let mut simulator = copy.program("release/windlass-sim");
    simulator.args(["--count", "--seeds", &seeds.most.to_string()]);
    if let Some(enough) = seeds.stop_after {
        simulator.args(["--stop-after", &enough.to_string()]);
    }
    // A disabled rule may well show as a panic.
    let output = simulator.stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {simulator:?}: {error}"))?;
    let found = Found::read(&String::from_utf8_lossy(&output.stdout));
    match found.is_whole(seeds) {
        true => Ok(found),
        false => Err(format!("{simulator:?} ended early: {}", output.status)),
    }
}

impl Found {
    fn read(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let number = || rest.parse().unwrap_or(0);
            match word {
                "seeds" => found.seeds = number(),
                "violations" => found.violations = number(),
                "first" => found.first = Some(number()),
                "kind" => found.kinds.push(rest.to_owned()),
                _ => {}
            }
        }
        found
    }

    /// Whether all seeds of the row were run.
    fn is_whole(&self, seeds: Seeds) -> bool {
        let enough = seeds.stop_after.is_some_and(|enough| self.violations >= enough);
        enough || self.seeds == seeds.most
    }

    fn figures(&self) -> Vec<String> {
        let first = self.first.map_or("-".into(), |seed| seed.to_string());
        let kinds = if self.kinds.is_empty() { "-".into() } else { self.kinds.join(", ") };
        vec![self.seeds.to_string(), self.violations.to_string(), first, kinds]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulator_output_is_parsed() {
        let text = "seeds 9\nevents 70\nviolations 2\nfirst 3\nkind Stuck 1\nkind Key 1\n";
        let kinds = vec!["Stuck 1".into(), "Key 1".into()];
        let expected = Found { seeds: 9, violations: 2, first: Some(3), kinds };
        assert_eq!(Found::read(text), expected);
        assert_eq!(expected.figures(), ["9", "2", "3", "Stuck 1, Key 1"]);
        assert_eq!(Found::default().figures(), ["0", "0", "-", "-"]);
    }

    #[test]
    fn a_run_is_whole_with_all_seeds_or_enough_violations() {
        for (most, stop_after, seeds, violations, expected) in [
            (9, None, 9, 0, true),
            (9, None, 8, 3, false),
            (9, Some(3), 4, 3, true),
            (9, Some(3), 4, 2, false),
            (9, Some(3), 9, 2, true),
        ] {
            let found = Found { seeds, violations, ..Found::default() };
            assert_eq!(found.is_whole(Seeds { most, stop_after }), expected, "{found:?}");
        }
    }

    #[test]
    fn results_are_for_as_many_seeds() {
        let row = &Mutation { rule: "r", file: "f.rs", from: "a", to: "b" };
        let keys = |most, stop_after| {
            let rows = rows(&[row], Seeds { most, stop_after });
            rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
        };
        let ten = keys(10, Some(3));
        assert_eq!(ten, keys(10, Some(3)));
        for other in [keys(20, Some(3)), keys(10, None)] {
            assert!(ten.iter().zip(&other).all(|(ten, other)| ten != other));
        }
    }
}
