//! The `windlass` command.

mod bench;
mod completions;
mod demo;
mod dlq;
mod doctor;
mod duration;
mod error;
mod events;
mod formats;
mod lane;
mod log;
mod migrate;
mod node;
mod output;
mod payload;
mod quota;
mod session;
mod signal;
mod signal_args;
mod signals;
mod signing_key;
mod stats;
mod store;
mod target;
mod task;
mod usage;
mod waitpoint;
mod worker;
mod workflow;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use tokio::runtime::Runtime;

use crate::error::CliError;

/// Durable tasks on SQLite or Postgres: queued, leased under a fence, settled once.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success, 1 error, 2 wrong arguments, \
    3 rejected, 4 not found, 130 interrupted.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
    /// Run workers that execute a program per task; list registered workers.
    Worker(worker::WorkerCommand),
    /// Create, inspect and change tasks.
    Task(task::TaskCommand),
    /// Start, inspect and change workflows and their histories.
    Workflow(workflow::WorkflowArgs),
    /// List lanes; pause, resume, drain or limit them.
    Lane(lane::LaneCommand),
    /// List and set limits of concurrency keys, sessions, lanes and tenants.
    Quota(quota::QuotaCommand),
    /// List sessions and the workers that own them.
    Session(session::SessionCommand),
    /// List the engines that share a database.
    Node(node::NodeCommand),
    /// The dead letter queue: list failed tasks and replay them.
    Dlq(dlq::DlqCommand),
    Signal(signal::Signal),
    /// Create and list waitpoints: each accepts one message from outside.
    Waitpoint(waitpoint::WaitpointCommand),
    /// List and rotate the keys that sign tokens.
    SigningKey(signing_key::SigningKeyCommand),
    Events(events::Events),
    Stats(stats::Stats),
    Migrate(migrate::Migrate),
    Doctor(doctor::Doctor),
    Store(store::StoreCommand),
    Completions(completions::Completions),
    /// Run benchmarks: throughput, claims from a backlog, an idle engine.
    Bench(bench::Bench),
}

impl Command {
    async fn run(self) -> Result<(), CliError> {
        match self {
            Command::Task(task) => task.run().await,
            Command::Workflow(workflow) => workflow.run().await,
            Command::Lane(lane) => lane.run().await,
            Command::Quota(quota) => quota.run().await,
            Command::Session(session) => session.run().await,
            Command::Node(node) => node.run().await,
            Command::Dlq(dlq) => dlq.run().await,
            Command::Signal(signal) => signal.run().await,
            Command::Waitpoint(waitpoint) => waitpoint.run().await,
            Command::SigningKey(key) => key.run().await,
            Command::Events(events) => events.run().await,
            Command::Stats(stats) => stats.run().await,
            Command::Migrate(migrate) => migrate.run().await,
            Command::Doctor(doctor) => doctor.run().await,
            Command::Store(store) => store.run().await,
            Command::Completions(completions) => {
                completions.run::<Cli>();
                Ok(())
            }
            Command::Demo(demo) => Ok(demo.run().await?),
            Command::DemoWorker(worker) => Ok(worker.run().await?),
            Command::Worker(worker) => worker.run().await,
            Command::Bench(bench) => Ok(bench.run().await?),
        }
    }
}

fn main() -> ExitCode {
    let json = output::json_is_requested();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(wrong) if usage::is_help(&wrong) && !(json && wrong.use_stderr()) => {
            return usage::show_help(&wrong);
        }
        Err(wrong) => {
            let args = std::env::args_os().skip(1);
            let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
            output::complain("usage", &usage::summary(&wrong, Cli::command(), &args), json);
            return ExitCode::from(2);
        }
    };
    match runtime().and_then(|runtime| runtime.block_on(cli.command.run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(error.code(), &error.to_string(), json);
            error.exit_code()
        }
    }
}

/// How many file descriptors a runtime needs, with some reserve.
const DESCRIPTORS: usize = 12;

fn runtime() -> Result<Runtime, CliError> {
    let failed = |error| CliError::System { what: "starting", error };
    // Tokio panics without a descriptor for signals, so this fails early with an error.
    let open = || std::fs::File::open("/dev/null");
    let open: io::Result<Vec<_>> = std::iter::repeat_with(open).take(DESCRIPTORS).collect();
    drop(open.map_err(failed)?);
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)
}
