//! Runs the seeds of the simulator.

use std::process::Stdio;

use super::copy::TreeCopy;
use crate::cargo::Cargo;

/// The seeds of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeds {
    pub(super) most: u64,
    /// The row ends after this many violations: it is known to be noticed by then.
    pub(super) stop_after: Option<u64>,
}

/// The output of the simulator.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    seeds: u64,
    violations: u64,
    first: Option<u64>,
    kinds: Vec<String>,
}

pub(super) fn simulate(copy: &TreeCopy, seeds: Seeds) -> Result<Found, String> {
    // The release profile would take longer to build than the seeds to run. An incremental build
    // with small codegen units compiles little more than the changed function.
    let build = Cargo::new("build --release --quiet --package windlass-sim --bin windlass-sim")
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    let status = copy.command(build).status();
    if !status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        return Err("the build failed".into());
    }
    let mut simulator = copy.program("release/windlass-sim");
    simulator.args(["--count", "--seeds", &seeds.most.to_string()]);
    if let Some(enough) = seeds.stop_after {
        simulator.args(["--stop-after", &enough.to_string()]);
    }
    // A disabled rule may cause panics; their messages are not needed.
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
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            let number = || rest.parse().unwrap_or(0);
            match key {
                "seeds" => found.seeds = number(),
                "violations" => found.violations = number(),
                "first" => found.first = Some(number()),
                "kind" => found.kinds.push(rest.to_owned()),
                _ => {}
            }
        }
        found
    }

    pub(super) fn is_violated(&self) -> bool {
        self.violations > 0
    }

    /// Whether all seeds of the row were run.
    fn is_whole(&self, seeds: Seeds) -> bool {
        let enough = seeds.stop_after.is_some_and(|enough| self.violations >= enough);
        enough || self.seeds == seeds.most
    }

    pub(super) fn figures(&self) -> Vec<String> {
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
}
