//! The development tasks of this repository: `cargo xtask <command>`.

#![allow(clippy::print_stdout, reason = "a program for a terminal: printing is what it does")]

mod bench;
mod bench_postgres;
mod benchmark_peers;
mod cargo;
mod ci;
mod duroxide;
mod duroxide_examples;
mod json;
mod matrix;
mod mutate;
mod options;
mod peers;
mod peers_workflows;
mod proof;
mod prove;
mod source;
mod table;
mod tidy;
mod tree;

use std::process::ExitCode;

use benchmark_peers::Store;
use options::Options;

const HELP: &str = "\
The development tasks of this repository.

usage: cargo xtask <command> [options]

commands:
  ci       everything a change must pass: tidy, fmt, clippy, tests, doctests, docs
  tidy     the checkable part of the house style
             --sample SEED  print 40 comments drawn by this seed instead, to read and judge
  matrix   the number of rows in the tables of core, by command and state
  prove    the long proofs, in release, and 100,000 tasks through chaos on Postgres
             --seeds N      seeds per random test (10000)
  mutate   disables one rule at a time: seeds of the simulator, or the guarding test, must fail
             workflows      only the rules of workflows
             external-runtime  only the rules of external runtimes
             --rule TEXT    only the rules that contain this text
             --seeds N      maximum number of seeds for each rule (1000)
             --stop-after N stop a rule after N seeds that detect it (3)
             --every-seed   all seeds for each rule, to count how many detect it
             --postgres     the rules that tests on Postgres guard instead
           prove and mutate store their results under the hash of the sources:
             --part K/N     only this part; parts 1/N to N/N together are everything
             --again        rerun rows that have a result
             --report       run nothing, and print the results of all parts
  bench    batched against unbatched, on a SQLite file
             --seconds N    duration of each run (10)
             --postgres     the benchmarks on Postgres instead, each on a fresh server
  duroxide duroxide's own suite on SQLite and Postgres: run, passed, excluded and why
             examples       the examples that duroxide publishes instead, with the provider swapped
  peers    Windlass against others, all equally durable (see bench/README.md)
             sqlite         apalis, each on a separate file (the default)
             postgres       apalis-postgres and graphile-worker, each on a separate server
             workflows      duroxide on its own provider and on Windlass, and Windlass's workflows
                            --workflows N (2000), --steps N of the long one (1000), --rounds N (3)
             --bulk N       tasks pushed in bulk and drained (200000; postgres: 50000)
             --singles N    tasks pushed one by one and drained (15000; postgres: 50000)
             --rounds N     runs of each, in turn (3)
  help     this text
";

/// Why a command failed: a message, and whether its usage was wrong.
pub(crate) enum Failure {
    Usage(String),
    Failed(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::Failed(message)
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (message, code) = match run(&args) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => (message, 2),
        Err(Failure::Failed(message)) => (message, 1),
    };
    eprintln!("xtask: {message}");
    ExitCode::from(code)
}

fn run(args: &[String]) -> Result<(), Failure> {
    let asks_for_help = |arg: &String| matches!(arg.as_str(), "-h" | "--help" | "help");
    let Some((command, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(());
    };
    if args.iter().any(asks_for_help) {
        print!("{HELP}");
        return Ok(());
    }
    match command.as_str() {
        "ci" => Options::none(rest).and_then(|()| Ok(ci::run()?)),
        "tidy" if rest.is_empty() => Ok(tidy::run()?),
        "tidy" => {
            let seed = Options::parse(rest, &["--sample"])?.number("--sample", 1)?;
            Ok(tidy::sample(seed)?)
        }
        "matrix" => Options::none(rest).and_then(|()| Ok(matrix::run()?)),
        "prove" => prove::run(rest),
        "mutate" => mutate::run(rest),
        "duroxide" if rest == ["examples"] => Ok(duroxide_examples::run()?),
        "duroxide" => Options::none(rest).and_then(|()| Ok(duroxide::run()?)),
        "bench" if rest == ["--postgres"] => Ok(bench_postgres::run()?),
        "bench" => {
            let seconds = Options::parse(rest, &["--seconds"])?.number("--seconds", 10)?;
            Ok(bench::run(seconds)?)
        }
        "peers" if rest.first().is_some_and(|what| what == "workflows") => {
            let options = Options::parse(&rest[1..], &["--workflows", "--steps", "--rounds"])?;
            let workflows = options.number("--workflows", 2_000)?;
            let steps = options.number("--steps", 1_000)?;
            Ok(peers_workflows::run(workflows, steps, options.number("--rounds", 3)?)?)
        }
        "peers" => {
            let named = rest.first().and_then(|name| Store::named(name));
            let rest = if named.is_some() { &rest[1..] } else { rest };
            let store = named.unwrap_or(Store::Sqlite);
            let options = Options::parse(rest, &["--bulk", "--singles", "--rounds"])?;
            let (bulk, singles) = store.tasks();
            let bulk = options.number("--bulk", bulk)?;
            let singles = options.number("--singles", singles)?;
            Ok(peers::run(store, bulk, singles, options.number("--rounds", 3)?)?)
        }
        other => Err(Failure::Usage(format!("no such command: {other} (see cargo xtask --help)"))),
    }
}
