use std::time::{Duration, Instant};

use super::request::Request;
use super::results::{Outcome, Results};

/// A row of a proof.
pub(crate) struct Row {
    pub(crate) name: String,
    /// The hash of all that the result depends on besides the tree.
    pub(crate) key: String,
    /// The names of its verdicts.
    pub(crate) passed: &'static str,
    pub(crate) failed: &'static str,
}

impl Row {
    pub(crate) fn mutation(name: &str, key: String) -> Self {
        Self { name: name.to_owned(), key, passed: "noticed", failed: "unnoticed" }
    }

    /// The row that runs the tree without a mutation.
    pub(crate) fn control(name: &str, key: String) -> Self {
        Self { name: name.to_owned(), key, passed: "clean", failed: "breaks a rule" }
    }

    fn verdict(&self, outcome: &Outcome) -> &'static str {
        if outcome.passed { self.passed } else { self.failed }
    }
}

/// Runs the rows of a part, and stores their results. A row that cannot be run has no result, and
/// does not stop the next ones.
pub(crate) fn run_rows(
    rows: &[Row],
    request: &Request,
    results: &Results,
    mut run: impl FnMut(usize) -> Result<(bool, Vec<String>), String>,
) -> Result<(), String> {
    let part: Vec<usize> = (0..rows.len()).filter(|row| request.part.has(*row)).collect();
    let (mut problems, mut spent, mut tried) = (Vec::new(), Duration::ZERO, 0_u32);
    for (position, &index) in part.iter().enumerate() {
        let row = &rows[index];
        let position_text = format!("{} of {}, part {}", position + 1, part.len(), request.part);
        if let Some(stored) = results.get(&row.key).filter(|_| !request.again) {
            println!("==> row {position_text}: {}: stored: {}", row.name, row.verdict(&stored));
            continue;
        }
        println!("==> row {position_text}: {}", row.name);
        let start = Instant::now();
        let ran = run(index);
        let took = start.elapsed();
        (spent, tried) = (spent + took, tried + 1);
        let behind = &part[position + 1..];
        let is_open = |row: &&usize| request.again || results.get(&rows[**row].key).is_none();
        let remaining = remaining(spent, tried, behind.iter().filter(is_open).count());
        match ran {
            Ok((passed, figures)) => {
                let seconds = took.as_secs_f64();
                let outcome = Outcome { passed, seconds, figures };
                results.put(&row.key, &row.name, &outcome)?;
                let figures = outcome.figures.join(", ");
                println!("    {}: {figures}; {seconds:.0} s{remaining}", row.verdict(&outcome));
            }
            Err(problem) => {
                println!("    no result: {problem}{remaining}");
                problems.push(format!("{}: {problem}", row.name));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// An estimate from the rows of this session.
fn remaining(spent: Duration, tried: u32, open: usize) -> String {
    if open == 0 {
        return String::new();
    }
    let seconds = spent.as_secs_f64() / f64::from(tried) * open as f64;
    format!("; {open} rows left, about {:.0} min", (seconds / 60.0).ceil())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::Part;

    #[test]
    fn a_part_runs_its_rows_once() {
        let folder = std::env::temp_dir().join(format!("xtask-rows-{}", std::process::id()));
        let results = Results::in_folder(folder.clone());
        let rows: Vec<Row> = (0..5).map(|row| Row::mutation("r", row.to_string())).collect();
        let run = |part: &str, again: bool| {
            let request = Request { part: Part::parse(part).unwrap(), again, report: false };
            let mut ran = Vec::new();
            let done = run_rows(&rows, &request, &results, |row| {
                ran.push(row);
                if row == 3 { Err("no build".into()) } else { Ok((row != 2, vec![])) }
            });
            (ran, done)
        };
        assert_eq!(run("1/2", false), (vec![0, 2, 4], Ok(())));
        assert_eq!(run("1/2", false), (vec![], Ok(())));
        assert_eq!(run("1/2", true), (vec![0, 2, 4], Ok(())));
        // Only rows without a result are run again.
        assert_eq!(run("1/1", false), (vec![1, 3], Err("r: no build".into())));
        assert_eq!(run("2/2", false), (vec![3], Err("r: no build".into())));
        assert!(results.get("2").is_some_and(|outcome| !outcome.passed));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_remaining_time_is_estimated() {
        assert_eq!(remaining(Duration::from_secs(90), 3, 4), "; 4 rows left, about 2 min");
        assert_eq!(remaining(Duration::from_secs(90), 3, 0), "");
    }
}
