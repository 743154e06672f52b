//! The long proofs: every test again, in release, with many more seeds.

mod run;
mod union;
mod verdict;

pub(crate) use run::run;
