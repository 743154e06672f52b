//! Mutation testing: disables one rule at a time, and shows that a seed of the simulator or a
//! test on Postgres fails.

mod command;
mod copy;
mod mutation;
mod postgres;
mod rows_core;
mod rows_external_runtime;
mod rows_postgres;
mod rows_requests;
mod rows_workflows;
mod simulator;

pub(crate) use command::run;
