//! Workers that run a program per task: payload in, result out, outcome by exit code.

mod exec;
mod group;
mod list;
mod options;
mod outage;
mod program;
mod report_writer;
mod start_backoff;
mod streams;
mod verdict;

pub(crate) use options::WorkerCommand;
