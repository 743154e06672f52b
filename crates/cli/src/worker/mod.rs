//! Workers that run a program per task: payload in, result out, outcome by exit code.

mod exec;
mod group;
mod list;
mod options;
mod outage;
mod program;
mod starts;
mod streams;
mod told;
mod verdict;

pub(crate) use options::WorkerCommand;
