use std::collections::BTreeMap;
use std::time::Duration;

use super::verdict::Verdict;
use crate::cargo::seconds;
use crate::proof::{Hash, Outcome, Part, Results};
use crate::table::{row, table};

/// The results of the tests of one row.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    passed: usize,
    failed: usize,
    time: Duration,
    slowest: (Duration, String),
}

/// All parts with results.
#[derive(Debug)]
pub(super) struct Union {
    tallies: BTreeMap<String, Tally>,
    /// The number of parts, and those without a result.
    of: usize,
    missing: Vec<usize>,
    chaos: Option<Outcome>,
    failed: Vec<String>,
}

/// The key of a part's result.
pub(super) fn key(seeds: u64, part: Part) -> String {
    format!("{seeds}-seeds-part-{}-of-{}", part.number, part.of)
}

fn part_of(key: &str, seeds: u64) -> Option<Part> {
    let part = key.strip_prefix(&format!("{seeds}-seeds-part-"))?;
    Part::parse(&part.replace("-of-", "/")).ok()
}

impl Union {
    /// Reads the parts of the partition with the largest share of results.
    pub(super) fn read(results: &Results, seeds: u64) -> Self {
        let mut cuts = BTreeMap::<usize, Vec<Part>>::new();
        for part in results.keys().iter().filter_map(|key| part_of(key, seeds)) {
            cuts.entry(part.of).or_default().push(part);
        }
        let share = |(of, parts): &(&usize, &Vec<Part>)| parts.len() * 1_000_000 / **of;
        let (of, parts) =
            cuts.iter().max_by_key(share).map_or((1, &[][..]), |(of, parts)| (*of, parts));
        let is_there = |number: &usize| parts.iter().any(|part| part.number == *number);
        let missing = (1..=of).filter(|number| !is_there(number)).collect();
        let chaos = results.get("chaos");
        let mut union = Self { tallies: BTreeMap::new(), of, missing, chaos, failed: Vec::new() };
        for part in cuts.values().flatten() {
            let text = results.text(&key(seeds, *part)).unwrap_or_default();
            for verdict in text.lines().filter_map(Verdict::read) {
                union.add(&verdict, *part);
            }
        }
        union.failed.sort();
        union.failed.dedup();
        if union.chaos.as_ref().is_some_and(|chaos| !chaos.passed) {
            union.failed.push("chaos".into());
        }
        union
    }

    /// A failure counts in any partition.
    fn add(&mut self, verdict: &Verdict<'_>, part: Part) {
        if part.of == self.of {
            self.tallies.entry(verdict.proof()).or_default().add(verdict);
        }
        if !verdict.passed {
            self.failed.push(format!("{} {}", verdict.binary, verdict.test));
        }
    }

    /// Prints it. A failed test is an error, a missing part is not.
    pub(super) fn print(&self, tree: Hash, seeds: u64) -> Result<(), String> {
        print!("\n{}", self.table());
        println!("tree {tree}, {seeds} seeds: {}", self.state());
        match self.failed[..] {
            [] => Ok(()),
            _ => Err(format!("these proofs failed:\n  {}", self.failed.join("\n  "))),
        }
    }

    fn table(&self) -> String {
        let titles = row([&"proof", &"passed", &"failed", &"time", &"slowest", &"which is"]);
        let mut rows = vec![titles];
        for (proof, tally) in &self.tallies {
            let (slowest, test) = &tally.slowest;
            let (time, slowest) = (seconds(tally.time), seconds(*slowest));
            rows.push(row([proof, &tally.passed, &tally.failed, &time, &slowest, test]));
        }
        if let Some(chaos) = &self.chaos {
            let time = format!("{:.1} s", chaos.seconds);
            let (passed, failed) = (usize::from(chaos.passed), usize::from(!chaos.passed));
            rows.push(row([&"chaos", &passed, &failed, &time, &time, &""]));
        }
        table(&rows)
    }

    fn state(&self) -> String {
        let (of, failed) = (self.of, self.failed.len());
        let done = of - self.missing.len();
        let mut missing: Vec<String> =
            self.missing.iter().map(|number| format!("part {number}/{of}")).collect();
        missing.extend(self.chaos.is_none().then(|| "chaos".into()));
        let state = if missing.is_empty() {
            "complete".to_owned()
        } else {
            format!("partial, without {}", missing.join(", "))
        };
        format!("{done} of {of} parts done, {failed} failed: {state}")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_by_their_keys() {
        let part = Part::parse("2/5").unwrap();
        assert_eq!(part_of(&key(9, part), 9), Some(part));
        assert_eq!(part_of(&key(9, part), 99), None);
        assert_eq!(part_of("chaos", 9), None);
    }

    #[test]
    fn a_union_names_missing_parts_and_failed_tests() {
        let folder = std::env::temp_dir().join(format!("xtask-union-{}", std::process::id()));
        let results = Results::in_folder(folder.clone());
        let state = || Union::read(&results, 9).state();
        let put = |part: &str, line: &str| {
            let verdict = Verdict::parse(line).unwrap().line();
            results.put_text(&key(9, Part::parse(part).unwrap()), &verdict).unwrap();
        };
        assert_eq!(state(), "0 of 1 parts done, 0 failed: partial, without part 1/1, chaos");
        put("1/3", "PASS [ 0.5s] (1/1) core a");
        put("3/3", "PASS [ 0.5s] (1/1) core b");
        put("1/9", "FAIL [ 0.5s] (1/1) core a");
        assert_eq!(state(), "2 of 3 parts done, 1 failed: partial, without part 2/3, chaos");
        put("2/3", "FAIL [ 1.5s] (1/1) core c");
        let outcome = Outcome { passed: true, seconds: 1.0, figures: vec![] };
        results.put("chaos", "chaos", &outcome).unwrap();
        assert_eq!(state(), "3 of 3 parts done, 2 failed: complete");
        let union = Union::read(&results, 9);
        assert_eq!(union.failed, ["core a", "core c"]);
        let slowest = (Duration::from_millis(1_500), "c".into());
        let tally = Tally { passed: 2, failed: 1, time: Duration::from_millis(2_500), slowest };
        assert_eq!(union.tallies["core"], tally);
        std::fs::remove_dir_all(folder).unwrap();
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
            if let Some(verdict) = Verdict::parse(line) {
                assert_eq!(verdict.binary, "windlass-core");
                tally.add(&verdict);
            }
        }
        let slowest = (Duration::from_millis(1_500), "why::tests::table".into());
        let time = Duration::from_secs(2);
        assert_eq!(tally, Tally { passed: 1, failed: 2, time, slowest });
    }
}
