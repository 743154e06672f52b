//! The peers of Windlass on each store: how each is built, called and checked for durability.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::target;
use crate::cargo::Cargo;
use crate::tree;

const APALIS: &str = "bench/peers/apalis/target/release/peer-apalis";
const APALIS_POSTGRES: &str = "bench/peers/apalis-postgres/target/release/peer-apalis-postgres";
const GRAPHILE_WORKER: &str = "bench/peers/graphile-worker";

/// Handlers that do nothing, with the concurrency of the peer's fetches.
const DRAIN: &str = "bench drain --json --leave --handlers 1000";
/// The number of producers that push one by one.
const PRODUCERS: u64 = 64;

/// The store of all peers in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Peer {
    Apalis,
    ApalisPostgres,
    GraphileWorker,
    Windlass,
}

/// The work of all peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) tasks: u64,
    pub(crate) one_by_one: bool,
}

/// A build step of a peer; prints as the command to type.
pub(crate) enum Build {
    Cargo(&'static str),
    /// The packages of the lock file, in the folder of the peer.
    Npm(&'static str),
}

impl Store {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "sqlite" => Some(Store::Sqlite),
            "postgres" => Some(Store::Postgres),
            _ => None,
        }
    }

    /// The default numbers of tasks, in bulk and one by one.
    pub(crate) fn tasks(self) -> (u64, u64) {
        match self {
            Store::Sqlite => (200_000, 15_000),
            Store::Postgres => (50_000, 50_000),
        }
    }

    /// In the order of their turns, Windlass last.
    pub(crate) fn peers(self) -> &'static [Peer] {
        match self {
            Store::Sqlite => &[Peer::Apalis, Peer::Windlass],
            Store::Postgres => &[Peer::ApalisPostgres, Peer::GraphileWorker, Peer::Windlass],
        }
    }

    /// The durability that every peer must read back from the connections it used.
    pub(crate) fn durable(self) -> &'static str {
        match self {
            Store::Sqlite => "wal, synchronous=FULL",
            Store::Postgres => "fsync=on, synchronous_commit=on",
        }
    }

    pub(crate) fn builds(self) -> &'static [Build] {
        match self {
            Store::Sqlite => &[
                Build::Cargo("build --profile dist --locked --package windlass-cli --bin windlass"),
                Build::Cargo(
                    "build --release --locked --manifest-path bench/peers/apalis/Cargo.toml \
                     --target-dir bench/peers/apalis/target",
                ),
            ],
            Store::Postgres => &[
                Build::Cargo("build --profile dist --locked --package windlass-cli --bin windlass"),
                Build::Cargo("build --locked --package windlass-store-test --bin with-postgres"),
                Build::Cargo(
                    "build --release --locked \
                     --manifest-path bench/peers/apalis-postgres/Cargo.toml \
                     --target-dir bench/peers/apalis-postgres/target",
                ),
                Build::Npm(GRAPHILE_WORKER),
            ],
        }
    }

    /// The command of a peer. On Postgres each run starts a separate server, with the same
    /// settings for all; it replaces `{}` by the URL.
    pub(crate) fn command(self, peer: Peer, work: Work, file: &Path) -> Command {
        let (program, script) = peer.program();
        match self {
            Store::Sqlite => {
                let mut command = Command::new(program);
                command.args(script).args(peer.args(work, &file.display().to_string()));
                command
            }
            Store::Postgres => {
                let mut command = Command::new(target().join("debug/with-postgres"));
                command.arg("--").arg(program).args(script).args(peer.args(work, "{}"));
                command
            }
        }
    }
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Apalis => "apalis",
            Peer::ApalisPostgres => "apalis-postgres",
            Peer::GraphileWorker => "graphile-worker",
            Peer::Windlass => "windlass",
        }
    }

    /// The program, and the script that it runs, if any.
    fn program(self) -> (PathBuf, Option<PathBuf>) {
        let root = tree::root();
        match self {
            Peer::Apalis => (root.join(APALIS), None),
            Peer::ApalisPostgres => (root.join(APALIS_POSTGRES), None),
            Peer::GraphileWorker => {
                ("node".into(), Some(root.join(GRAPHILE_WORKER).join("main.mjs")))
            }
            Peer::Windlass => (target().join("dist/windlass"), None),
        }
    }

    fn args(self, work: Work, location: &str) -> Vec<String> {
        let tasks = work.tasks;
        let line = match (self, work.one_by_one) {
            (Peer::Apalis, true) => {
                format!("--json --jobs {tasks} --push one-by-one --concurrency {PRODUCERS}")
            }
            (Peer::ApalisPostgres | Peer::GraphileWorker, true) => {
                format!("--json --jobs {tasks} --push one-by-one --callers {PRODUCERS}")
            }
            (Peer::Apalis | Peer::ApalisPostgres | Peer::GraphileWorker, false) => {
                format!("--json --jobs {tasks} --push bulk")
            }
            (Peer::Windlass, true) => format!("{DRAIN} --tasks {tasks} --producers {PRODUCERS}"),
            (Peer::Windlass, false) => format!("{DRAIN} --tasks {tasks}"),
        };
        let (option, location) = match self {
            Peer::Apalis => ("--file", location.to_owned()),
            Peer::ApalisPostgres | Peer::GraphileWorker => ("--url", location.to_owned()),
            Peer::Windlass if location == "{}" => ("--store", location.to_owned()),
            Peer::Windlass => ("--store", format!("sqlite://{location}")),
        };
        line.split(' ').map(String::from).chain([option.to_owned(), location]).collect()
    }
}

impl Build {
    pub(crate) fn run(&self) -> Result<(), String> {
        match self {
            Build::Cargo(line) => Cargo::new(line).run(),
            Build::Npm(folder) => {
                let mut npm = Command::new("npm");
                npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(tree::root().join(folder));
                let status = npm.status().map_err(|error| format!("cannot run npm: {error}"))?;
                if status.success() { Ok(()) } else { Err(status.to_string()) }
            }
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Build::Cargo(line) => Cargo::new(line).fmt(out),
            Build::Npm(folder) => write!(out, "npm ci --no-audit --no-fund --prefix {folder}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BULK: Work = Work { name: "bulk", tasks: 20, one_by_one: false };
    const SINGLES: Work = Work { name: "one by one", tasks: 10, one_by_one: true };

    #[test]
    fn all_peers_get_the_same_work() {
        let drain = "bench drain --json --leave --handlers 1000";
        for (peer, location, bulk, singles) in [
            (
                Peer::Apalis,
                "f.db",
                "--json --jobs 20 --push bulk --file f.db",
                "--json --jobs 10 --push one-by-one --concurrency 64 --file f.db",
            ),
            (
                Peer::ApalisPostgres,
                "{}",
                "--json --jobs 20 --push bulk --url {}",
                "--json --jobs 10 --push one-by-one --callers 64 --url {}",
            ),
            (
                Peer::GraphileWorker,
                "{}",
                "--json --jobs 20 --push bulk --url {}",
                "--json --jobs 10 --push one-by-one --callers 64 --url {}",
            ),
            (
                Peer::Windlass,
                "f.db",
                &format!("{drain} --tasks 20 --store sqlite://f.db"),
                &format!("{drain} --tasks 10 --producers 64 --store sqlite://f.db"),
            ),
            (
                Peer::Windlass,
                "{}",
                &format!("{drain} --tasks 20 --store {{}}"),
                &format!("{drain} --tasks 10 --producers 64 --store {{}}"),
            ),
        ] {
            assert_eq!(peer.args(BULK, location).join(" "), bulk);
            assert_eq!(peer.args(SINGLES, location).join(" "), singles);
        }
    }

    #[test]
    fn on_postgres_every_peer_has_a_separate_server() {
        for &peer in Store::Postgres.peers() {
            let command = Store::Postgres.command(peer, BULK, Path::new("f.db"));
            assert!(command.get_program().to_string_lossy().ends_with("with-postgres"));
            let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
            assert_eq!((args[0].as_ref(), args[args.len() - 1].as_ref()), ("--", "{}"));
        }
        let command = Store::Sqlite.command(Peer::Apalis, BULK, Path::new("f.db"));
        assert!(command.get_program().to_string_lossy().ends_with("peer-apalis"));
    }

    #[test]
    fn a_store_is_named() {
        assert_eq!(Store::named("sqlite"), Some(Store::Sqlite));
        assert_eq!(Store::named("postgres"), Some(Store::Postgres));
        assert_eq!(Store::named("--rounds"), None);
    }

    #[test]
    fn a_build_prints_as_the_command_to_type() {
        let lines: Vec<String> = Store::Postgres.builds().iter().map(Build::to_string).collect();
        assert_eq!(
            lines[1..],
            [
                "cargo build --locked --package windlass-store-test --bin with-postgres",
                "cargo build --release --locked \
                 --manifest-path bench/peers/apalis-postgres/Cargo.toml \
                 --target-dir bench/peers/apalis-postgres/target",
                "npm ci --no-audit --no-fund --prefix bench/peers/graphile-worker",
            ]
        );
    }
}
