use std::time::Duration;

/// The tests that start processes.
const PROCESSES: &str = "windlass-sim::it";

/// The verdict of nextest on one test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict<'a> {
    pub(super) passed: bool,
    pub(super) time: Duration,
    pub(super) binary: &'a str,
    pub(super) test: &'a str,
}

impl<'a> Verdict<'a> {
    /// Reads `PASS [   0.005s] (1/9) binary test`.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (status, rest) = line.trim_start().split_once(" [")?;
        let passed = match status.trim() {
            "PASS" | "LEAK" => true,
            "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL" => false,
            status if status.starts_with("SIG") => false,
            _ => return None,
        };
        let (time, rest) = rest.split_once("s]")?;
        let time = Duration::try_from_secs_f64(time.trim().parse().ok()?).ok()?;
        let rest = rest.trim_start();
        let rest = if rest.starts_with('(') { rest.split_once(')')?.1 } else { rest };
        let (binary, test) = rest.trim().split_once(' ')?;
        Some(Self { passed, time, binary, test })
    }

    /// Its stored form: verdict, seconds, binary and test, separated by tabs.
    pub(super) fn line(&self) -> String {
        let Self { passed, time, binary, test } = self;
        let verdict = if *passed { "passed" } else { "failed" };
        format!("{verdict}\t{:.3}\t{binary}\t{test}\n", time.as_secs_f64())
    }

    /// Parses the output of [`Self::line`].
    pub(super) fn read(line: &'a str) -> Option<Self> {
        let [verdict, time, binary, test] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        let time = Duration::try_from_secs_f64(time.parse().ok()?).ok()?;
        Some(Self { passed: verdict == "passed", time, binary, test })
    }

    /// The row it counts in: its binary, or for tests that start processes, its subject.
    pub(super) fn proof(&self) -> String {
        match self.test.split_once("::") {
            Some((subject, _)) if self.binary == PROCESSES => format!("{PROCESSES} {subject}"),
            _ => self.binary.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_have_a_separate_row() {
        for (line, proof) in [
            ("PASS [ 0.1s] (1/3) windlass-core name::tests::table", "windlass-core"),
            ("PASS [ 0.1s] (2/3) windlass-sim::it requests::a_kill", "windlass-sim::it requests"),
            (
                "PASS [ 9.5s] (3/3) windlass-sim::it workflows::outlive",
                "windlass-sim::it workflows",
            ),
        ] {
            assert_eq!(Verdict::parse(line).map(|verdict| verdict.proof()).as_deref(), Some(proof));
        }
    }

    #[test]
    fn a_verdict_is_stored_as_a_line() {
        for line in ["PASS [ 0.1s] (1/3) core a::b", "FAIL [ 0.25s] windlass-sim::it kill::c d"] {
            let verdict = Verdict::parse(line).unwrap();
            assert_eq!(Verdict::read(verdict.line().trim_end()), Some(verdict));
        }
        assert_eq!(Verdict::read("passed\t1.0\tcore"), None);
    }
}
