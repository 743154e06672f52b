use std::path::PathBuf;

use super::hash::Hash;
use crate::tree;

/// The result of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
    /// The cells of its line in the table, after its name.
    pub(crate) figures: Vec<String>,
}

impl Outcome {
    /// One line: verdict, seconds, the row's name, and the figures, separated by tabs.
    fn line(&self, name: &str) -> String {
        let verdict = if self.passed { "passed" } else { "failed" };
        let seconds = format!("{:.1}", self.seconds);
        let figures = self.figures.iter().map(String::as_str);
        let cells = [verdict, &seconds, name].into_iter().chain(figures);
        let cells: Vec<String> = cells.map(|cell| cell.replace(['\t', '\n'], " ")).collect();
        format!("{}\n", cells.join("\t"))
    }

    fn read(line: &str) -> Option<Self> {
        let mut cells = line.strip_suffix('\n')?.split('\t');
        let passed = match cells.next()? {
            "passed" => true,
            "failed" => false,
            _ => return None,
        };
        let seconds = cells.next()?.parse().ok()?;
        let _name = cells.next()?;
        Some(Self { passed, seconds, figures: cells.map(String::from).collect() })
    }
}

/// The results of a proof on one tree, a small file for each row.
pub(crate) struct Results {
    folder: PathBuf,
}

impl Results {
    pub(crate) fn new(proof: &str, tree: Hash) -> Self {
        Self { folder: tree::target().join("proofs").join(proof).join(tree.to_string()) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Outcome> {
        Outcome::read(&self.text(key)?)
    }

    pub(crate) fn put(&self, key: &str, name: &str, outcome: &Outcome) -> Result<(), String> {
        self.put_text(key, &outcome.line(name))
    }

    pub(crate) fn text(&self, key: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join(key)).ok()
    }

    /// Renames a complete file, so that a killed run leaves no partial result.
    pub(crate) fn put_text(&self, key: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(key);
        let started = self.folder.join(format!(".{key}"));
        let written = std::fs::create_dir_all(&self.folder)
            .and_then(|()| std::fs::write(&started, text))
            .and_then(|()| std::fs::rename(&started, &path));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The keys of all results, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut keys: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        keys.sort();
        keys
    }

    #[cfg(test)]
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: bool) -> Outcome {
        Outcome { passed, seconds: 1.5, figures: vec!["3".into(), String::new(), "Key 1".into()] }
    }

    #[test]
    fn an_outcome_is_one_line() {
        for passed in [true, false] {
            let line = outcome(passed).line("a\tname");
            assert_eq!(line.lines().count(), 1);
            assert!(line.contains("a name"), "{line}");
            assert_eq!(Outcome::read(&line), Some(outcome(passed)));
        }
        for torn in ["", "passed\t1.5", "passed\t1.5\tname", "perhaps\t1\tname\n", "passed\tx\tn\n"]
        {
            assert_eq!(Outcome::read(torn), None, "{torn}");
        }
    }

    #[test]
    fn results_are_stored_by_tree_and_row() {
        let proof = format!("test-{}", std::process::id());
        let (tree, other) = (Hash::new().field("tree"), Hash::new().field("other tree"));
        let results = Results::new(&proof, tree);
        assert_eq!((results.get("row"), results.keys()), (None, vec![]));
        results.put("row", "a row", &outcome(true)).unwrap();
        results.put("row", "a row", &outcome(false)).unwrap();
        assert_eq!(results.get("row"), Some(outcome(false)));
        assert_eq!(results.get("another row"), None);
        assert_eq!(Results::new(&proof, tree).keys(), ["row"]);
        assert_eq!(Results::new(&proof, other).get("row"), None);
        std::fs::remove_dir_all(results.folder.parent().unwrap()).unwrap();
    }
}
