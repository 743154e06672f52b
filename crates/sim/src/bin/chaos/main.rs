//! Engine processes on one Postgres, through faults: processes that are killed or stand still,
//! connections that are cut, a database that crashes. Every answer is written down by whoever got
//! it, and in the end a judge holds the answers against the database.
//!
//! The faults, their order and their times follow from the seed; what they hit does not.

#![allow(clippy::print_stdout, reason = "a program for a terminal: printing is what it does")]

mod caller;
mod fault;
mod journal;
mod judge;
mod line;
mod node;
mod options;
mod process;
mod proxy;
mod reader;
mod report;
mod run;
mod stopped;
mod told;
mod view;
mod watched;
mod wish;

use std::process::ExitCode;

use options::{HELP, Options};
use run::Verdict;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|word| word == "node") {
        return node(args.nth(1).as_deref());
    }
    if args.peek().is_some_and(|word| word == "stopped") {
        return stopped();
    }
    let options = match Options::read(args) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("chaos: {problem} (see --help)");
            return ExitCode::from(2);
        }
    };
    let folder = tempfile::Builder::new().prefix("windlass-chaos").tempdir();
    let folder = folder.expect("there is room for what is written down");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("there is room for a runtime");
    let verdict = runtime.block_on(run::run(&options, folder.path()));
    let passed = tell(&options, &verdict);
    if passed {
        return ExitCode::SUCCESS;
    }
    println!("what was written down is kept in {}", folder.keep().display());
    ExitCode::FAILURE
}

/// Stops a process in each phase of its batch.
fn stopped() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("there is room for a runtime");
    match runtime.block_on(stopped::run()) {
        Ok((table, broken)) => {
            print!("{table}");
            broken.iter().for_each(|what| println!("{what}"));
            if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            println!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Runs as one of the processes.
fn node(orders: Option<&str>) -> ExitCode {
    let orders = orders.and_then(|text| serde_json::from_str(text).ok());
    match node::run(orders.expect("the parent gives orders")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chaos node: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no rule was broken.
fn tell(options: &Options, verdict: &Result<Verdict, String>) -> bool {
    let reproduce = format!("cargo run --release -p windlass-sim --bin chaos -- {options}");
    let passed = match verdict {
        Err(problem) => {
            println!("the run came to no end: {problem}");
            false
        }
        Ok(Verdict { figures, broken }) => {
            if options.json {
                println!("{}", figures.json(broken.is_empty(), &reproduce));
                broken.iter().for_each(|what| eprintln!("{what}"));
            } else {
                print!("{}", figures.table());
                broken.iter().for_each(|what| println!("{what}"));
            }
            broken.is_empty()
        }
    };
    if !options.json {
        println!("{}: {reproduce}", if passed { "no rule was broken" } else { "reproduce" });
    }
    passed
}
