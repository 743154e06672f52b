//! The tables of core: every command in every state.

use crate::source::{Source, mentions};
use crate::table::table;
use crate::tree;

const COMMANDS: &str = "crates/core/src/command";
const STATES: &str = "crates/core/src/testing/states.rs";

/// Commands without a table, and why.
const EXEMPT: &[(&str, &str)] = &[
    ("TrimLog", "acts on the log, on no task and no lane"),
    ("RotateSigningKey", "acts on the keys of a tenant, on no task and no lane"),
    ("Spend", "acts on limiters, which have no states"),
];

/// A kind of table: its check function, and the states of its first column.
struct Subject {
    name: &'static str,
    check: &'static str,
    states: Vec<String>,
}

struct Command {
    name: String,
    location: String,
    /// By subject: rows per state, or none without a table.
    rows: Vec<Option<Vec<usize>>>,
}

pub(crate) struct Matrix {
    subjects: Vec<Subject>,
    commands: Vec<Command>,
}

pub(crate) fn run() -> Result<(), String> {
    let matrix = Matrix::read(&tree::sources()?)?;
    print!("{}", matrix.shown());
    println!("{}", matrix.size());
    for (command, reason) in EXEMPT {
        println!("exempt: {command}, which {reason}");
    }
    Ok(())
}

impl Matrix {
    pub(crate) fn read(sources: &[Source]) -> Result<Self, String> {
        let source = |path: &str| {
            let found = sources.iter().find(|source| source.path == path);
            found.ok_or_else(|| format!("{path} is missing"))
        };
        let testing = source(STATES)?;
        let subject =
            |name, check, list| states(testing, list).map(|states| Subject { name, check, states });
        let subjects = vec![
            subject("task", "check_task(", "TASK_STATES")?,
            subject("lane", "check_lane(", "LANE_STATES")?,
            subject("node", "check_node(", "NODE_STATES")?,
            subject("limit", "check_limit(", "LIMIT_STATES")?,
            subject("worker", "check_worker(", "WORKER_STATES")?,
            subject("cursor", "check_cursor(", "CURSOR_STATES")?,
            subject("request", "check_request(", "REQUEST_STATES")?,
        ];
        let names = commands(sources)?;
        let command = |name: String| Command::read(name, sources, &subjects);
        let commands = names.into_iter().map(command).collect::<Result<_, _>>()?;
        Ok(Self { subjects, commands })
    }

    /// What is missing: an empty cell, a command without a table, an unnecessary exemption.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        for command in &self.commands {
            let exempt = EXEMPT.iter().any(|(name, _)| *name == command.name);
            let tabled = command.rows.iter().any(Option::is_some);
            if tabled == exempt {
                let problem = if exempt { "has a table, but is exempt" } else { "has no table" };
                gaps.push(format!("{} {} {problem}", command.location, command.name));
            }
            for (subject, rows) in self.subjects.iter().zip(&command.rows) {
                for (state, rows) in subject.states.iter().zip(rows.iter().flatten()) {
                    if *rows == 0 {
                        let cell = format!("{} x {} {state}", command.name, subject.name);
                        gaps.push(format!("{} {cell} has no row", command.location));
                    }
                }
            }
        }
        for (name, _) in EXEMPT {
            if !self.commands.iter().any(|command| command.name == *name) {
                gaps.push(format!("{COMMANDS}/mod.rs {name} is exempt, but not a command"));
            }
        }
        gaps
    }

    pub(crate) fn size(&self) -> String {
        let size = |(index, subject): (usize, &Subject)| {
            let tables = self.commands.iter().filter_map(|command| command.rows[index].as_ref());
            let rows: usize = tables.clone().flatten().sum();
            let (commands, states) = (tables.count(), subject.states.len());
            format!("{commands} commands x {states} {} states, {rows} rows", subject.name)
        };
        let sizes: Vec<String> = self.subjects.iter().enumerate().map(size).collect();
        format!("matrix: {}", sizes.join("; "))
    }

    fn shown(&self) -> String {
        let mut text = String::new();
        for (index, subject) in self.subjects.iter().enumerate() {
            let title = format!("by {} state", subject.name);
            let mut lines: Vec<Vec<String>> =
                vec![[title].into_iter().chain(subject.states.clone()).collect()];
            for command in &self.commands {
                if let Some(rows) = &command.rows[index] {
                    let cells = rows.iter().map(ToString::to_string);
                    lines.push([command.name.clone()].into_iter().chain(cells).collect());
                }
            }
            text.push_str(&table(&lines));
            text.push('\n');
        }
        text
    }
}

impl Command {
    fn read(name: String, sources: &[Source], subjects: &[Subject]) -> Result<Self, String> {
        let stem = format!("{COMMANDS}/{}", snake_case(&name));
        let (file, folder) = (format!("{stem}.rs"), format!("{stem}/"));
        let own = |source: &&Source| source.path == file || source.path.starts_with(&folder);
        let files: Vec<&Source> = sources.iter().filter(own).collect();
        if files.is_empty() {
            return Err(format!("{file} is missing: one command, one file"));
        }
        let location = if files[0].path == file { file } else { folder };
        let rows = |subject: &Subject| {
            let tables: Vec<&str> = files.iter().flat_map(|file| tables(file, subject)).collect();
            let count = |state: &String| {
                let lines = tables.iter().flat_map(|table| table.lines());
                lines.filter(|line| first_column(line) == Some(state)).count()
            };
            (!tables.is_empty()).then(|| subject.states.iter().map(count).collect())
        };
        Ok(Self { name, location, rows: subjects.iter().map(rows).collect() })
    }
}

fn first_column(line: &str) -> Option<&str> {
    line.split_once('|').map(|(state, _)| state.trim())
}

fn tables<'a>(source: &'a Source, subject: &Subject) -> Vec<&'a str> {
    let calls = mentions(source.code_and_tests(), subject.check);
    calls.filter_map(|at| source.literal_at(at + subject.check.len())).collect()
}

fn states(source: &Source, list: &str) -> Result<Vec<String>, String> {
    let code = source.code_and_tests();
    let start = mentions(code, &format!("const {list}")).next();
    let end = start.and_then(|start| code[start..].find(';').map(|length| start + length));
    let (Some(start), Some(end)) = (start, end) else {
        return Err(format!("{} has no list {list}", source.path));
    };
    let states: Vec<String> = source.literals_in(start, end).map(String::from).collect();
    if states.is_empty() { Err(format!("{}: {list} is empty", source.path)) } else { Ok(states) }
}

/// The names of all commands.
pub(crate) fn commands(sources: &[Source]) -> Result<Vec<String>, String> {
    let path = format!("{COMMANDS}/mod.rs");
    let found = sources.iter().find(|source| source.path == path);
    command_names(found.ok_or_else(|| format!("{path} is missing"))?)
}

fn command_names(source: &Source) -> Result<Vec<String>, String> {
    let list = source.code().split_once("\ncommands!(");
    let list = list.and_then(|(_, rest)| rest.split_once(')'));
    let Some((list, _)) = list else {
        return Err(format!("{} has no list commands!(...)", source.path));
    };
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(names.map(String::from).collect())
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTS: &str = "
        const TASK_STATES: &[&str] = &[\"absent\", \"waiting\"];
        const LANE_STATES: &[&str] =
            &[\"paused\"];
        const NODE_STATES: &[&str] = &[\"late\"];
        const LIMIT_STATES: &[&str] = &[\"full\"];
        const WORKER_STATES: &[&str] = &[\"dead\"];
        const CURSOR_STATES: &[&str] = &[\"there\"];
        const REQUEST_STATES: &[&str] = &[\"answered\"];
    ";

    fn tested(call: &str, rows: &[&str]) -> String {
        let rows = rows.join("\n        ");
        format!("\n#[cfg(test)]\nmod tests {{\n    {call}(\n\"\n        {rows}\n\", |_| x);\n}}\n")
    }

    fn matrix(files: &[(&str, String)]) -> Result<Matrix, String> {
        let exempt: Vec<&str> = EXEMPT.iter().map(|(name, _)| *name).collect();
        let exempt = exempt.join(",\n    ");
        let list =
            format!("mod x;\ncommands!(\n    Cancel,\n    LimitLane, // why\n    {exempt}\n);\n");
        let mut sources =
            vec![Source::new(STATES, LISTS), Source::new(&format!("{COMMANDS}/mod.rs"), &list)];
        for (name, _) in EXEMPT {
            sources.push(Source::new(&format!("{COMMANDS}/{}.rs", snake_case(name)), ""));
        }
        let path = |name: &str| format!("{COMMANDS}/{name}");
        sources.extend(files.iter().map(|(name, text)| Source::new(&path(name), text)));
        Matrix::read(&sources)
    }

    #[test]
    fn a_full_matrix_has_no_gaps() {
        let cancel = tested("check_task", &["absent | | x", "waiting | | y", "waiting | a | z"]);
        let limit = tested("check_lane", &["paused | | x"]);
        let matrix = matrix(&[("cancel.rs", cancel), ("limit_lane/run.rs", limit)]).unwrap();
        assert_eq!(matrix.gaps(), [""; 0]);
        let size = "matrix: 1 commands x 2 task states, 3 rows; 1 commands x 1 lane states, 1 rows; \
            0 commands x 1 node states, 0 rows; 0 commands x 1 limit states, 0 rows; \
            0 commands x 1 worker states, 0 rows; 0 commands x 1 cursor states, 0 rows; \
            0 commands x 1 request states, 0 rows";
        assert_eq!(matrix.size(), size);
        assert!(matrix.shown().contains("Cancel              1        2\n"), "{}", matrix.shown());
    }

    #[test]
    fn every_gap_is_named() {
        let cancel = tested("check_task", &["absent | waiting | x"]);
        let aside = "// check_lane(\"paused | | x\")\n".to_owned();
        let trim = tested("check_lane", &["paused | | x"]);
        let files = [("cancel.rs", cancel), ("limit_lane.rs", aside), ("trim_log/run.rs", trim)];
        let expected = [
            "cancel.rs Cancel x task waiting has no row",
            "limit_lane.rs LimitLane has no table",
            "trim_log.rs TrimLog has a table, but is exempt",
        ];
        let expected = expected.map(|gap| format!("{COMMANDS}/{gap}"));
        assert_eq!(matrix(&files).unwrap().gaps(), expected);
    }

    #[test]
    fn a_command_has_a_file() {
        let problem = matrix(&[]).err().unwrap();
        assert!(problem.contains("command/cancel.rs is missing"), "{problem}");
    }

    #[test]
    fn names_of_files() {
        assert_eq!(snake_case("Sweep"), "sweep");
        assert_eq!(snake_case("SetLaneState"), "set_lane_state");
    }
}
