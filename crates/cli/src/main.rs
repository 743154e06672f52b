//! The `windlass` command.

mod bench;
mod demo;
mod duration;
mod error;
mod output;
mod signals;
mod target;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::CliError;

/// Durable tasks on SQLite: queued, leased under a fence, settled once.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 something went wrong, 2 wrong arguments, \
    3 the rules say no, 4 not there.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
    /// Run workers: any program as the handler of a kind of task.
    Worker(worker::WorkerCommand),
    /// Measure this machine: throughput, claims against a backlog, an idle engine.
    Bench(bench::Bench),
}

impl Command {
    async fn run(self) -> Result<(), CliError> {
        match self {
            Command::Demo(demo) => Ok(demo.run().await?),
            Command::DemoWorker(worker) => Ok(worker.run().await?),
            Command::Worker(worker) => worker.run().await,
            Command::Bench(bench) => Ok(bench.run().await?),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match Cli::parse().command.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass: {error} [{}]", error.code());
            error.exit_code()
        }
    }
}
