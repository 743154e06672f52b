//! Proofs that take hours: their rows can be run in parts, and the results are stored under the
//! hash of the tree.

mod hash;
mod part;
mod report;
mod request;
mod results;
mod rows;

pub(crate) use hash::{Hash, tree_hash};
pub(crate) use part::Part;
pub(crate) use report::Report;
pub(crate) use request::Request;
pub(crate) use results::{Outcome, Results};
pub(crate) use rows::{Row, run_rows};
