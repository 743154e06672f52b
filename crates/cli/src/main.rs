//! The `windlass` command.

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Durable tasks on SQLite: queued, leased under a fence, settled once.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure this machine: throughput, claims against a backlog, an idle engine.
    Bench(bench::Bench),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Bench(bench) => bench.run().await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass: {error}");
            ExitCode::FAILURE
        }
    }
}
