//! Windlass and its peers side by side: the same work, in turn, equally durable.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bench::target;
use crate::cargo::Cargo;
use crate::json::{number_of, text_of};
use crate::table::{row, table};
use crate::tree;

const DURABLE: &str = "wal, synchronous=FULL";
const APALIS: &str = "bench/peers/apalis";
const BUILDS: &[&str] = &[
    "build --release --locked --package windlass-cli --bin windlass",
    "build --release --locked --manifest-path bench/peers/apalis/Cargo.toml \
     --target-dir bench/peers/apalis/target",
];

/// Handlers that do nothing, as many at once as the other side fetches.
const DRAIN: &str = "bench drain --json --handlers 1000";
/// How many push one by one at once.
const PRODUCERS: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Apalis,
    Windlass,
}

/// What both sides are asked to do.
#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    tasks: u64,
    one_by_one: bool,
}

/// What one run came to.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    push: f64,
    drain: f64,
    durability: String,
    batching: String,
}

impl Side {
    /// In the order they take turns; the first is what the others are compared with.
    const ALL: [Side; 2] = [Side::Apalis, Side::Windlass];

    fn name(self) -> &'static str {
        match self {
            Side::Apalis => "apalis",
            Side::Windlass => "windlass",
        }
    }

    fn program(self) -> PathBuf {
        match self {
            Side::Apalis => tree::root().join(APALIS).join("target/release/peer-apalis"),
            Side::Windlass => target().join("release/windlass"),
        }
    }

    fn args(self, work: Work, file: &Path) -> Vec<String> {
        let (tasks, file) = (work.tasks, file.display());
        let line = match (self, work.one_by_one) {
            (Side::Apalis, true) => {
                format!("--json --jobs {tasks} --push one-by-one --concurrency {PRODUCERS}")
            }
            (Side::Apalis, false) => format!("--json --jobs {tasks} --push bulk"),
            (Side::Windlass, true) => {
                format!("{DRAIN} --tasks {tasks} --producers {PRODUCERS}")
            }
            (Side::Windlass, false) => format!("{DRAIN} --tasks {tasks}"),
        };
        let (option, place) = match self {
            Side::Apalis => ("--file", file.to_string()),
            Side::Windlass => ("--store", format!("sqlite://{file}")),
        };
        line.split(' ').map(String::from).chain([option.to_owned(), place]).collect()
    }
}

impl Run {
    /// Any program that prints these four can stand on a side.
    fn read(json: &str) -> Result<Self, String> {
        let number = |key| number_of(json, key).ok_or_else(|| format!("no {key} in {json}"));
        let text = |key| text_of(json, key).ok_or_else(|| format!("no {key} in {json}"));
        Ok(Self {
            push: number("fill_per_s")?,
            drain: number("tasks_per_s")?,
            durability: text("durability")?.to_owned(),
            batching: text("batching")?.to_owned(),
        })
    }

    /// Push all, then drain all: what a task costs is the sum of both.
    fn end_to_end(&self) -> f64 {
        1.0 / (1.0 / self.push + 1.0 / self.drain)
    }
}

pub(crate) fn run(bulk: u64, singles: u64, rounds: u64) -> Result<(), String> {
    for line in BUILDS {
        let build = Cargo::new(line);
        println!("==> {build}");
        build
            .run()
            .map_err(|problem| format!("the build failed: {problem}\nreproduce: {build}"))?;
    }
    // Beside the build and not in /tmp, which is often memory: there a commit costs nothing.
    let folder = target().join(format!("peers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let works = [
        Work { name: "bulk", tasks: bulk, one_by_one: false },
        Work { name: "one by one", tasks: singles, one_by_one: true },
    ];
    let before = load();
    let report = compare(&folder, &works, rounds);
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        eprintln!("note: {} is left behind: {error}", folder.display());
    }
    print!("\n{}", report?);
    if let (Some(before), Some(after)) = (before, load()) {
        println!("load of the machine: {before} before, {after} after (1 minute average)");
    }
    Ok(())
}

/// What else the machine was doing: figures of a busy one are worth less.
fn load() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next().map(String::from)
}

fn compare(folder: &Path, works: &[Work], rounds: u64) -> Result<String, String> {
    let mut found = vec![[Vec::new(), Vec::new()]; works.len()];
    for round in 1..=rounds {
        for (work, runs) in works.iter().zip(&mut found) {
            for (side, runs) in Side::ALL.into_iter().zip(runs) {
                let file = folder.join(format!("{}-{}-{round}.db", side.name(), work.name));
                runs.push(measure(side, *work, &file)?);
                remove(&file)?;
            }
        }
    }
    let found: Vec<_> = works.iter().copied().zip(found).collect();
    Ok(report(&found, rounds))
}

fn measure(side: Side, work: Work, file: &Path) -> Result<Run, String> {
    let mut command = Command::new(side.program());
    command.args(side.args(work, file));
    println!("==> {command:?}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let run = Run::read(&String::from_utf8_lossy(&output.stdout))?;
    require_durable(side, &run)?;
    let (push, drain) = (run.push, run.drain);
    println!("    {push:.0} pushed a second, {drain:.0} drained a second, {}", run.durability);
    Ok(run)
}

fn require_durable(side: Side, run: &Run) -> Result<(), String> {
    if run.durability == DURABLE {
        return Ok(());
    }
    let (name, found) = (side.name(), &run.durability);
    Err(format!("{name} ran with {found} where {DURABLE} was asked for: nothing to compare"))
}

/// The database with what SQLite keeps beside it.
fn remove(file: &Path) -> Result<(), String> {
    for ending in ["", "-wal", "-shm"] {
        let path = PathBuf::from(format!("{}{ending}", file.display()));
        if path.exists() {
            let failed = |error| format!("{}: {error}", path.display());
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

fn report(found: &[(Work, [Vec<Run>; 2])], rounds: u64) -> String {
    let titles: [&dyn std::fmt::Display; 9] = [
        &"work",
        &"tasks",
        &"side",
        &"read back",
        &"push/s",
        &"drain/s",
        &"end to end/s",
        &"ratio",
        &"batches",
    ];
    let mut rows = vec![row(titles)];
    for (work, sides) in found {
        let base = median(&sides[0], Run::end_to_end);
        for (side, runs) in Side::ALL.into_iter().zip(sides) {
            let ratio = format!("{:.2}", median(runs, Run::end_to_end) / base);
            let first = runs.first();
            rows.push(row([
                &work.name,
                &work.tasks,
                &side.name(),
                &first.map_or("", |run| &run.durability),
                &spread(runs, |run| run.push),
                &spread(runs, |run| run.drain),
                &spread(runs, Run::end_to_end),
                &ratio,
                &first.map_or("", |run| &run.batching),
            ]));
        }
    }
    let rounds = if rounds == 1 { "1 round".into() } else { format!("{rounds} rounds in turn") };
    format!("{}\nmedian (lowest-highest) of {rounds}; ratio: end to end\n", table(&rows))
}

fn sorted(runs: &[Run], figure: impl Fn(&Run) -> f64) -> Vec<f64> {
    let mut figures: Vec<f64> = runs.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures
}

fn median(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    let figures = sorted(runs, figure);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(runs: &[Run], figure: impl Fn(&Run) -> f64 + Copy) -> String {
    let (middle, figures) = (median(runs, figure), sorted(runs, figure));
    match (figures.first(), figures.last()) {
        (Some(lowest), Some(highest)) => format!("{middle:.0} ({lowest:.0}-{highest:.0})"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BULK: Work = Work { name: "bulk", tasks: 20, one_by_one: false };
    const SINGLES: Work = Work { name: "one by one", tasks: 10, one_by_one: true };

    fn some_run(push: f64, drain: f64) -> Run {
        Run { push, drain, durability: DURABLE.into(), batching: "1 a push".into() }
    }

    #[test]
    fn both_sides_are_asked_for_the_same() {
        for (side, work, expected) in [
            (Side::Apalis, BULK, "--json --jobs 20 --push bulk --file f.db"),
            (
                Side::Apalis,
                SINGLES,
                "--json --jobs 10 --push one-by-one --concurrency 64 --file f.db",
            ),
            (
                Side::Windlass,
                BULK,
                "bench drain --json --handlers 1000 --tasks 20 --store sqlite://f.db",
            ),
            (
                Side::Windlass,
                SINGLES,
                "bench drain --json --handlers 1000 --tasks 10 --producers 64 --store sqlite://f.db",
            ),
        ] {
            assert_eq!(side.args(work, Path::new("f.db")).join(" "), expected);
        }
    }

    #[test]
    fn a_run_is_read_or_refused() {
        let json = r#"{"fill_per_s":300.0,"tasks_per_s":600,"durability":"wal, synchronous=FULL","batching":"1 a push"}"#;
        let run = Run::read(json).unwrap();
        assert_eq!(run, some_run(300.0, 600.0));
        assert_eq!(run.end_to_end(), 200.0);
        for key in ["fill_per_s", "tasks_per_s", "durability", "batching"] {
            let without = json.replace(key, "other");
            assert!(Run::read(&without).unwrap_err().starts_with(&format!("no {key} ")), "{key}");
        }
    }

    #[test]
    fn what_is_not_durable_is_not_compared() {
        let run = some_run(1.0, 1.0);
        assert_eq!(require_durable(Side::Windlass, &run), Ok(()));
        for durability in [
            "wal, synchronous=OFF",
            "wal, synchronous=NORMAL",
            "wal, synchronous=FULL / wal, synchronous=OFF",
            "memory",
            "",
        ] {
            let run = Run { durability: durability.into(), ..run.clone() };
            let refused = require_durable(Side::Apalis, &run).unwrap_err();
            assert!(refused.starts_with(&format!("apalis ran with {durability} ")), "{refused}");
        }
    }

    #[test]
    fn a_report_shows_the_median_and_the_spread() {
        let apalis = vec![some_run(100.0, 100.0), some_run(300.0, 300.0), some_run(200.0, 200.0)];
        let windlass = vec![some_run(400.0, 400.0); 3];
        let text = report(&[(BULK, [apalis, windlass])], 3);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let figures = |line: usize| lines[line][5..12].join(" ");
        assert_eq!(figures(1), "200 (100-300) 200 (100-300) 100 (50-150) 1.00");
        assert_eq!(figures(2), "400 (400-400) 400 (400-400) 200 (200-200) 2.00");
    }
}
