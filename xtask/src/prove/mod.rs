//! The long proofs: every test again, in release, with as many seeds as it takes to believe it.

mod run;
mod union;
mod verdict;

pub(crate) use run::run;
