use std::fmt;

use super::hash::Hash;
use super::results::Results;
use super::rows::Row;
use crate::table::table;

/// The union of all results on one tree.
pub(crate) struct Report {
    tree: Hash,
    lines: Vec<Vec<String>>,
    /// The number of rows with a result.
    done: usize,
    failed: Vec<String>,
    missing: usize,
}

impl Report {
    /// Reads the stored results of these rows. The titles name the figures of a row.
    pub(crate) fn new(tree: Hash, results: &Results, rows: &[Row], titles: &[&str]) -> Self {
        let titles = ["row", "verdict", "seconds"].iter().chain(titles);
        let lines = vec![titles.map(ToString::to_string).collect()];
        let mut report = Self { tree, lines, done: 0, failed: Vec::new(), missing: 0 };
        for row in rows {
            let Some(outcome) = results.get(&row.key) else {
                report.missing += 1;
                continue;
            };
            let verdict = if outcome.passed { row.passed } else { row.failed };
            let seconds = format!("{:.1}", outcome.seconds);
            let cells = [row.name.clone(), verdict.to_owned(), seconds].into_iter();
            report.lines.push(cells.chain(outcome.figures).collect());
            report.done += 1;
            if !outcome.passed {
                report.failed.push(format!("{}: {}", row.name, row.failed));
            }
        }
        report
    }

    /// Prints it. A failed row is an error, a missing one is not.
    pub(crate) fn print(&self) -> Result<(), String> {
        print!("\n{self}");
        if self.failed.is_empty() { Ok(()) } else { Err(self.failed.join("\n")) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table(&self.lines))?;
        let Self { tree, done, missing, failed, .. } = self;
        let all = done + missing;
        write!(f, "tree {tree}: {done} of {all} rows done, {} failed", failed.len())?;
        match missing {
            0 => writeln!(f, ": complete"),
            _ => writeln!(f, ", {missing} missing: partial"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::Outcome;

    #[test]
    fn a_report_is_the_union_and_names_failures() {
        let folder = std::env::temp_dir().join(format!("xtask-report-{}", std::process::id()));
        let results = Results::in_folder(folder.clone());
        let rows: Vec<Row> = ["a", "b", "c"].map(|name| Row::mutation(name, name.into())).into();
        let report = || Report::new(Hash::new().field("t"), &results, &rows, &["seeds"]);
        let last = || report().to_string().lines().last().unwrap_or_default().to_owned();
        let put = |key: &str, passed| {
            let outcome = Outcome { passed, seconds: 2.0, figures: vec!["9".into()] };
            results.put(key, key, &outcome).unwrap();
        };
        assert!(last().ends_with("0 of 3 rows done, 0 failed, 3 missing: partial"), "{}", last());
        put("b", true);
        assert!(last().ends_with("1 of 3 rows done, 0 failed, 2 missing: partial"), "{}", last());
        assert_eq!(report().print(), Ok(()));
        put("a", false);
        put("c", true);
        put("of another table", false);
        assert!(last().ends_with("3 of 3 rows done, 1 failed: complete"), "{}", last());
        assert!(last().starts_with(&format!("tree {}", Hash::new().field("t"))), "{}", last());
        assert_eq!(report().print(), Err("a: unnoticed".into()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
