//! The chores of this repository: `cargo xtask <command>`.

#![allow(clippy::print_stdout, reason = "a program for a terminal: printing is what it does")]

mod bench;
mod bench_postgres;
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
mod sides;
mod source;
mod table;
mod tidy;
mod tree;

use std::process::ExitCode;

use options::Options;
use sides::Store;

const HELP: &str = "\
The chores of this repository.

usage: cargo xtask <command> [options]

commands:
  ci       everything a change must pass: tidy, fmt, clippy, tests, doctests, docs
  tidy     what of the house style can be checked
  matrix   how many rows the tables of core have, by command and state
  prove    the long proofs, in release, and 100,000 tasks through chaos on Postgres
             --seeds N      seeds per random test (10000)
  mutate   switches off one rule at a time and counts the simulator's seeds that notice
             workflows      only the rules of workflows
             foreign        only those for workflows of another runtime
             --seeds N      seeds for each rule at most (1000)
             --stop-after N seeds that notice, after which a rule needs no more (3)
             --every-seed   all seeds for each rule, to count how many notice
             --postgres     runs the tests on Postgres instead, each without its rule
           prove and mutate keep what they find for the sources it was found on:
             --part K/N     only this part; together, parts 1/N to N/N are the whole
             --again        runs what has a result, too
             --report       runs nothing, and prints the results of all parts
  bench    batched against unbatched, on a SQLite file
             --seconds N    how long each run lasts (10)
             --postgres     the measuring points on Postgres instead, each on a server of its own
  duroxide duroxide's own suite on SQLite and Postgres: run, passed, excluded and why
             examples       the examples that duroxide publishes instead, with the provider swapped
  peers    Windlass against others, all equally durable (see bench/README.md)
             sqlite         apalis, each on a file of its own (this one if none is named)
             postgres       apalis-postgres and graphile-worker, each on a server of its own
             workflows      duroxide on its own provider and on Windlass, and Windlass's workflows
                            --workflows N (2000), --steps N of the long one (1000), --rounds N (3)
             --bulk N       tasks pushed in bulk and drained (200000; postgres: 50000)
             --singles N    tasks pushed one by one and drained (15000; postgres: 50000)
             --rounds N     how often each is run, in turn (3)
  help     this text
";

/// Why a command did not succeed: one message, and whether the asking was at fault.
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
        "tidy" => Options::none(rest).and_then(|()| Ok(tidy::run()?)),
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
