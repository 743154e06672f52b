//! Engine processes on one Postgres, through faults: killed and stopped processes, terminated
//! connections, crashes of the database. Every caller logs its answers, and a judge compares
//! them with the database in the end.
//!
//! The faults, their order and their times follow from the seed; their effects do not.

#![allow(clippy::print_stdout, reason = "a program for a terminal: printing is what it does")]

mod caller;
mod fault;
mod judge;
mod line;
mod log_state;
mod node;
mod options;
mod process;
mod process_log;
mod proxy;
mod reader;
mod report;
mod run;
mod stopped;
mod task_spec;
mod view;
mod watched;

use std::process::ExitCode;

use options::{HELP, Options};
use run::Verdict;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|arg| arg == "node") {
        return node(args.nth(1).as_deref());
    }
    if args.peek().is_some_and(|arg| arg == "stopped") {
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
    let folder = folder.expect("a temporary folder can be created");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be created");
    let verdict = runtime.block_on(run::run(&options, folder.path()));
    let passed = tell(&options, &verdict);
    if passed {
        return ExitCode::SUCCESS;
    }
    println!("the logs are in {}", folder.keep().display());
    ExitCode::FAILURE
}

/// Stops a process in each phase of its batch.
fn stopped() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be created");
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

/// Prints the verdict. Returns whether no rule was broken.
fn tell(options: &Options, verdict: &Result<Verdict, String>) -> bool {
    let reproduce = format!("cargo run --release -p windlass-sim --bin chaos -- {options}");
    let passed = match verdict {
        Err(problem) => {
            println!("the run did not end: {problem}");
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
