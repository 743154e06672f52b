//! Workers that are programs: payload in, result out, and the exit code decides.

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
