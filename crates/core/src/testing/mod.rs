//! Tables as tests: a state, a command, and its result.

mod after;
mod fixtures;
mod requests;
mod situations;
mod stage;
mod states;
mod table;
mod workers;

pub(crate) use fixtures::*;
pub(crate) use requests::{admit, asks, check_request, request};
pub(crate) use stage::Stage;
pub(crate) use states::*;
pub(crate) use table::{Args, check, check_lane, check_limit, check_node, check_task};
pub(crate) use workers::{check_bookmark, check_worker, grant, register};
