//! duroxide on its own provider, duroxide on Windlass, and Windlass: the same workflows, in turn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bench::target;
use crate::cargo::Cargo;
use crate::json::{number_of, text_of};
use crate::peers::{disk_under, load, median, remove};
use crate::table::{row, table};
use crate::tree;

const BUILDS: [&str; 3] = [
    "build --profile dist --locked --package windlass-cli --bin windlass",
    "build --profile dist --locked --package windlass-duroxide --example bench",
    "build --release --locked --manifest-path bench/peers/duroxide/Cargo.toml \
     --target-dir bench/peers/duroxide/target",
];
const PEER: &str = "bench/peers/duroxide/target/release/peer-duroxide";
const DURABLE: &str = "wal, synchronous=FULL";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Peer {
    /// In its default configuration.
    AsShipped,
    Duroxide,
    OnWindlass,
    /// duroxide on Windlass, with more concurrency than duroxide's own provider supports.
    ManyOnWindlass,
    Windlass,
}

const PEERS: [Peer; 5] =
    [Peer::AsShipped, Peer::Duroxide, Peer::OnWindlass, Peer::ManyOnWindlass, Peer::Windlass];

#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    workflows: u64,
    steps: u64,
    fan_out: bool,
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    workflows_per_s: f64,
    /// How many workflows did not complete, for peers where that happens.
    failed: f64,
    p50_ms: f64,
    /// The time of a step among the first hundred and the last, if there are as many.
    ends_ms: Option<(f64, f64)>,
    durability: String,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::AsShipped => "duroxide, as it ships",
            Peer::Duroxide => "duroxide",
            Peer::OnWindlass => "duroxide on windlass",
            Peer::ManyOnWindlass => "duroxide on windlass, 32 at once",
            Peer::Windlass => "windlass",
        }
    }

    fn program(self) -> PathBuf {
        match self {
            Peer::AsShipped | Peer::Duroxide => tree::root().join(PEER),
            Peer::OnWindlass | Peer::ManyOnWindlass => target().join("dist/examples/bench"),
            Peer::Windlass => target().join("dist/windlass"),
        }
    }

    fn args(self, work: Work, file: &str) -> Vec<String> {
        let Work { workflows, steps, fan_out, .. } = work;
        let mut line = format!("--workflows {workflows} --steps {steps}");
        if fan_out {
            line += " --fan-out";
        }
        line = match self {
            Peer::AsShipped => format!("{file} {line} --as-shipped"),
            Peer::Duroxide | Peer::OnWindlass => format!("{file} {line}"),
            Peer::ManyOnWindlass => format!("{file} {line} --dispatchers 32 --workers 32"),
            Peer::Windlass => format!("bench workflows --json --store sqlite://{file} {line}"),
        };
        line.split(' ').map(String::from).collect()
    }

    fn is_durable(self, durability: &str) -> bool {
        self == Peer::AsShipped || durability == DURABLE
    }
}

impl Run {
    fn read(json: &str) -> Result<Self, String> {
        let number = |key| number_of(json, key).ok_or_else(|| format!("no {key} in {json}"));
        let durability =
            text_of(json, "durability").ok_or_else(|| format!("no durability: {json}"))?;
        let ends = |first, last, of_ms: f64| {
            Some((number_of(json, first)? / of_ms, number_of(json, last)? / of_ms))
        };
        Ok(Self {
            workflows_per_s: number("workflows_per_s")?,
            failed: number_of(json, "failed").unwrap_or(0.0),
            p50_ms: number("p50_ms")?,
            ends_ms: ends("first_hundred_ms_a_step", "last_hundred_ms_a_step", 1.0)
                .or_else(|| ends("first_steps_us", "last_steps_us", 1_000.0)),
            durability: durability.to_owned(),
        })
    }
}

pub(crate) fn run(workflows: u64, steps: u64, rounds: u64) -> Result<(), String> {
    for line in BUILDS {
        let build = Cargo::new(line);
        println!("==> {build}");
        build.run().map_err(|problem| format!("the build failed: {problem}"))?;
    }
    let folder = target().join(format!("peers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let works = [
        Work { name: "one by one", workflows, steps: 5, fan_out: false },
        Work { name: "a long one", workflows: 1, steps, fan_out: false },
        Work { name: "side by side", workflows: workflows.div_ceil(10), steps: 50, fan_out: true },
    ];
    let before = load();
    let report = disk_under(&folder).and_then(|disk| {
        let report = compare(&folder, &works, rounds)?;
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

fn compare(folder: &Path, works: &[Work], rounds: u64) -> Result<String, String> {
    let mut found = vec![vec![Vec::new(); PEERS.len()]; works.len()];
    for round in 1..=rounds {
        for (work, runs) in works.iter().zip(&mut found) {
            for (peer, runs) in PEERS.iter().zip(runs) {
                let file = folder.join(format!("{peer:?}-{}-{round}.db", work.workflows));
                runs.push(measure(*peer, *work, &file)?);
                remove(&file)?;
            }
        }
    }
    Ok(report(works, &found, rounds))
}

fn measure(peer: Peer, work: Work, file: &Path) -> Result<Run, String> {
    let mut command = Command::new(peer.program());
    command.args(peer.args(work, &file.display().to_string()));
    println!("==> {command:?}");
    // duroxide writes its log to stdout, like the report.
    command.env("RUST_LOG", "off");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let run = Run::read(printed.trim_end().lines().last().unwrap_or_default())?;
    if !peer.is_durable(&run.durability) {
        return Err(format!("{} ran with {}: not comparable", peer.name(), run.durability));
    }
    println!("    {:.1} workflows a second, {}", run.workflows_per_s, run.durability);
    Ok(run)
}

fn report(works: &[Work], found: &[Vec<Vec<Run>>], rounds: u64) -> String {
    let titles: [&dyn std::fmt::Display; 9] = [
        &"work",
        &"workflows x steps",
        &"peer",
        &"read back",
        &"workflows/s",
        &"failed",
        &"p50 ms",
        &"ms a step, first / last 100",
        &"ratio",
    ];
    let mut rows = vec![row(titles)];
    for (work, peers) in works.iter().zip(found) {
        let per_s = |runs: &[Run]| median(runs, |run| run.workflows_per_s);
        let base = peers.get(1).map_or(f64::NAN, |runs| per_s(runs));
        for (peer, runs) in PEERS.iter().zip(peers) {
            let Some(first) = runs.first() else { continue };
            let ends = first.ends_ms.map_or(String::new(), |_| {
                let end = |which: fn((f64, f64)) -> f64| {
                    median(runs, |run| run.ends_ms.map_or(f64::NAN, which))
                };
                format!("{:.2} / {:.2}", end(|ends| ends.0), end(|ends| ends.1))
            });
            rows.push(row([
                &work.name,
                &format!("{} x {}", work.workflows, work.steps),
                &peer.name(),
                &first.durability,
                &format!("{:.2}", per_s(runs)),
                &format!("{:.0}", median(runs, |run| run.failed)),
                &format!("{:.1}", median(runs, |run| run.p50_ms)),
                &ends,
                &format!("{:.1}", per_s(runs) / base),
            ]));
        }
    }
    let rounds = if rounds == 1 { "1 round".into() } else { format!("{rounds} rounds in turn") };
    format!(
        "{}\nmedian of {rounds}; ratio: workflows/s that completed, to duroxide at FULL\n",
        table(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work { name: "w", workflows: 20, steps: 5, fan_out: true };

    #[test]
    fn all_peers_get_the_same_work() {
        let args_of = |peer: Peer| peer.args(WORK, "f.db").join(" ");
        assert_eq!(args_of(Peer::Duroxide), "f.db --workflows 20 --steps 5 --fan-out");
        assert_eq!(args_of(Peer::OnWindlass), args_of(Peer::Duroxide));
        assert_eq!(args_of(Peer::AsShipped), format!("{} --as-shipped", args_of(Peer::Duroxide)));
        let windlass =
            "bench workflows --json --store sqlite://f.db --workflows 20 --steps 5 --fan-out";
        assert_eq!(args_of(Peer::Windlass), windlass);
    }

    #[test]
    fn a_run_is_parsed_or_rejected() {
        let json = r#"{"workflows_per_s":40.0,"p50_ms":6.5,"durability":"wal, synchronous=FULL"}"#;
        let run = Run::read(json).unwrap();
        assert_eq!((run.workflows_per_s, run.ends_ms), (40.0, None));
        let own = json.replace('}', r#","first_steps_us":500.0,"last_steps_us":1000.0}"#);
        assert_eq!(Run::read(&own).unwrap().ends_ms, Some((0.5, 1.0)));
        assert!(Run::read("{}").unwrap_err().starts_with("no durability"));
    }

    #[test]
    fn only_the_shipped_configuration_may_be_less_durable() {
        for peer in PEERS {
            assert!(peer.is_durable(DURABLE));
            assert_eq!(peer.is_durable("wal, synchronous=NORMAL"), peer == Peer::AsShipped);
        }
    }
}
