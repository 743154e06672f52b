//! Windlass and its peers: the same work, in turn, equally durable.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bench::target;
use crate::benchmark_peers::{Peer, Store, Work};
use crate::json::{number_of, text_of};
use crate::table::{row, table};

/// The result of one run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    push: f64,
    drain: f64,
    durability: String,
    batching: String,
}

impl Run {
    /// Any program that prints these four values can be a peer.
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

    /// Push all, then drain all: the cost of a task is the sum of both.
    fn end_to_end(&self) -> f64 {
        1.0 / (1.0 / self.push + 1.0 / self.drain)
    }
}

pub(crate) fn run(store: Store, bulk: u64, singles: u64, rounds: u64) -> Result<(), String> {
    for build in store.builds() {
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
    let report = disk_of(store, &folder).and_then(|disk| {
        let report = compare(store, &folder, &works, rounds)?;
        Ok(format!("{report}written to {disk}\n"))
    });
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        eprintln!("note: {} was not removed: {error}", folder.display());
    }
    print!("\n{}", report?);
    if let (Some(before), Some(after)) = (before, load()) {
        println!("load of the machine: {before} before, {after} after (1 minute average)");
    }
    Ok(())
}

/// The disk that the tasks are written to; an error if it is memory. The servers of
/// `with-postgres` are in /tmp, because the path of a socket must be short.
fn disk_of(store: Store, folder: &Path) -> Result<String, String> {
    disk_under(if store == Store::Postgres { Path::new("/tmp") } else { folder })
}

/// The disk of a folder; an error if it is memory.
pub(crate) fn disk_under(folder: &Path) -> Result<String, String> {
    let mut df = Command::new("df");
    let output = df.args(["--output=source,fstype"]).arg(folder).output();
    let output = output.map_err(|error| format!("cannot run {df:?}: {error}"))?;
    disk(&String::from_utf8_lossy(&output.stdout))
        .map_err(|problem| format!("{}: {problem}", folder.display()))
}

/// Parses the last line of `df`: a device and its file system type.
fn disk(printed: &str) -> Result<String, String> {
    let words: Vec<&str> = printed.lines().last().unwrap_or_default().split_whitespace().collect();
    match words[..] {
        [_, "tmpfs" | "ramfs"] => Err("memory, where a commit costs nothing".into()),
        [device, kind] => Ok(format!("{device} ({kind})")),
        _ => Err(format!("df printed {printed}")),
    }
}

/// The load of the machine: figures of a busy machine are worth less.
pub(crate) fn load() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next().map(String::from)
}

fn compare(store: Store, folder: &Path, works: &[Work], rounds: u64) -> Result<String, String> {
    let peers = store.peers();
    let mut found = vec![vec![Vec::new(); peers.len()]; works.len()];
    for round in 1..=rounds {
        for (work, runs) in works.iter().zip(&mut found) {
            for (peer, runs) in peers.iter().zip(runs) {
                let file = folder.join(format!("{}-{}-{round}.db", peer.name(), work.name));
                runs.push(measure(store, *peer, *work, &file)?);
                remove(&file)?;
            }
        }
    }
    let found: Vec<_> = works.iter().copied().zip(found).collect();
    Ok(report(peers, &found, rounds))
}

fn measure(store: Store, peer: Peer, work: Work, file: &Path) -> Result<Run, String> {
    let mut command = store.command(peer, work, file);
    println!("==> {command:?}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let run = Run::read(&String::from_utf8_lossy(&output.stdout))?;
    require_durable(store, peer, &run)?;
    let (push, drain) = (run.push, run.drain);
    println!("    {push:.0} pushed a second, {drain:.0} drained a second, {}", run.durability);
    Ok(run)
}

fn require_durable(store: Store, peer: Peer, run: &Run) -> Result<(), String> {
    let expected = store.durable();
    if run.durability == expected {
        return Ok(());
    }
    let (name, found) = (peer.name(), &run.durability);
    Err(format!("{name} ran with {found} instead of {expected}: not comparable"))
}

/// Removes a database and the files that SQLite puts beside it.
pub(crate) fn remove(file: &Path) -> Result<(), String> {
    for ending in ["", "-wal", "-shm"] {
        let path = PathBuf::from(format!("{}{ending}", file.display()));
        if path.exists() {
            let failed = |error| format!("{}: {error}", path.display());
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

fn report(peers: &[Peer], found: &[(Work, Vec<Vec<Run>>)], rounds: u64) -> String {
    let titles: [&dyn std::fmt::Display; 9] = [
        &"work",
        &"tasks",
        &"peer",
        &"read back",
        &"push/s",
        &"drain/s",
        &"end to end/s",
        &"ratio",
        &"batches",
    ];
    let mut rows = vec![row(titles)];
    for (work, runs) in found {
        let base = fastest_peer(peers, runs);
        for (peer, runs) in peers.iter().zip(runs) {
            let ratio = format!("{:.2}", median(runs, Run::end_to_end) / base);
            let first = runs.first();
            rows.push(row([
                &work.name,
                &work.tasks,
                &peer.name(),
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
    format!(
        "{}\nmedian (lowest-highest) of {rounds}; ratio: end to end, to the fastest peer\n",
        table(&rows)
    )
}

fn fastest_peer(peers: &[Peer], runs: &[Vec<Run>]) -> f64 {
    let peers = peers.iter().zip(runs).filter(|(peer, _)| **peer != Peer::Windlass);
    peers.map(|(_, runs)| median(runs, Run::end_to_end)).fold(0.0, f64::max)
}

fn sorted<R>(runs: &[R], figure: impl Fn(&R) -> f64) -> Vec<f64> {
    let mut figures: Vec<f64> = runs.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures
}

pub(crate) fn median<R>(runs: &[R], figure: impl Fn(&R) -> f64) -> f64 {
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
    const DURABLE: &str = "wal, synchronous=FULL";

    fn some_run(push: f64, drain: f64) -> Run {
        Run { push, drain, durability: DURABLE.into(), batching: "1 a push".into() }
    }

    #[test]
    fn a_run_is_parsed_or_rejected() {
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
    fn a_run_that_is_not_durable_is_rejected() {
        let run = some_run(1.0, 1.0);
        assert_eq!(require_durable(Store::Sqlite, Peer::Windlass, &run), Ok(()));
        for durability in [
            "wal, synchronous=OFF",
            "wal, synchronous=NORMAL",
            "wal, synchronous=FULL / wal, synchronous=OFF",
            "fsync=on, synchronous_commit=on",
            "memory",
            "",
        ] {
            let run = Run { durability: durability.into(), ..run.clone() };
            let rejected = require_durable(Store::Sqlite, Peer::Apalis, &run).unwrap_err();
            assert!(rejected.starts_with(&format!("apalis ran with {durability} ")), "{rejected}");
        }
        for (durability, durable) in [
            ("fsync=on, synchronous_commit=on", true),
            ("fsync=on, synchronous_commit=off", false),
            ("fsync=off, synchronous_commit=on", false),
            ("fsync=on, synchronous_commit=off / fsync=on, synchronous_commit=on", false),
        ] {
            let run = Run { durability: durability.into(), ..run.clone() };
            let found = require_durable(Store::Postgres, Peer::GraphileWorker, &run);
            assert_eq!(found.is_ok(), durable, "{durability}");
        }
    }

    #[test]
    fn memory_is_not_a_disk() {
        let printed = |line: &str| disk(&format!("Filesystem     Type\n{line}\n"));
        assert_eq!(printed("/dev/vda       ext4"), Ok("/dev/vda (ext4)".into()));
        for memory in ["tmpfs          tmpfs", "none ramfs"] {
            assert!(printed(memory).unwrap_err().starts_with("memory"), "{memory}");
        }
        assert!(disk("").is_err());
    }

    #[test]
    fn a_report_shows_the_median_and_the_spread() {
        let slow = vec![some_run(100.0, 100.0), some_run(300.0, 300.0), some_run(200.0, 200.0)];
        let fast = vec![some_run(300.0, 600.0); 3];
        let windlass = vec![some_run(800.0, 800.0); 3];
        let found = [(BULK, vec![slow, fast, windlass])];
        let text = report(Store::Postgres.peers(), &found, 3);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let figures = |line: usize| lines[line][5..12].join(" ");
        assert_eq!(figures(1), "200 (100-300) 200 (100-300) 100 (50-150) 0.50");
        assert_eq!(figures(2), "300 (300-300) 600 (600-600) 200 (200-200) 1.00");
        assert_eq!(figures(3), "800 (800-800) 800 (800-800) 400 (400-400) 2.00");
    }
}
