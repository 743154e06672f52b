//! Mutation testing: disables one rule at a time, and shows that a seed of the simulator or the
//! test that guards the rule fails.

mod command;
mod copy;
mod guarded;
mod jobs;
mod mutation;
mod rows_core;
mod rows_external_runtime;
mod rows_postgres;
mod rows_requests;
mod rows_tests;
mod rows_workflows;
mod simulator;
mod test_run;

pub(crate) use command::run;
