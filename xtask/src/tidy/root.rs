//! The files at the root, and the content of migrations.

use super::rule::Rule;
use crate::source::mentions;
use crate::tree;

const ROOT_FILES: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

const ARCHITECTURE_MAX: usize = 300;

/// Rules belong to core: the database runs no programs.
const PROGRAMS: &[&str] = &["trigger", "function", "procedure"];

pub(super) fn rules() -> Result<Vec<Rule>, String> {
    let missing = ROOT_FILES.iter().filter(|name| !tree::root().join(name).is_file());
    let mut root: Vec<String> = missing.map(|name| format!("{name} is missing")).collect();
    root.extend(tree::read("ARCHITECTURE.md").ok().and_then(|text| long_architecture(&text)));
    let mut programs = Vec::new();
    for path in tree::files("sql")? {
        programs.extend(programs_in_sql(&path, &tree::read(&path)?));
    }
    Ok(vec![
        Rule { title: "files at the root", findings: root },
        Rule { title: "triggers and procedures in SQL", findings: programs },
    ])
}

fn long_architecture(text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > ARCHITECTURE_MAX)
        .then(|| format!("ARCHITECTURE.md has {lines} lines, {ARCHITECTURE_MAX} at most"))
}

fn programs_in_sql(path: &str, sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in sql.lines().enumerate() {
        let code = line.split("--").next().unwrap_or_default().to_lowercase();
        for word in PROGRAMS {
            if mentions(&code, word).next().is_some() {
                found.push(format!("{path}:{} {word}", index + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_holds_no_programs() {
        let sql = "-- no trigger\nCREATE TRIGGER t;\ncreate or replace Function f;\nfunctions";
        assert_eq!(programs_in_sql("a.sql", sql), ["a.sql:2 trigger", "a.sql:3 function"]);
    }

    #[test]
    fn the_architecture_fits_on_a_few_pages() {
        assert_eq!(long_architecture(&"x\n".repeat(300)), None);
        let expected = "ARCHITECTURE.md has 301 lines, 300 at most";
        assert_eq!(long_architecture(&"x\n".repeat(301)).as_deref(), Some(expected));
    }
}
