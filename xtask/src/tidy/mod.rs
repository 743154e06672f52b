//! The house style, as far as it can be checked.

mod comment;
mod function;
mod purity;
mod root;
mod rule;
mod run;
mod shape;

pub(crate) use run::run;
