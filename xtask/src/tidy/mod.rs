//! The house style, as far as it can be checked.

mod comment;
mod function;
mod purity;
mod root;
mod rule;
mod run;
mod shape;
mod split;
mod words;

pub(crate) use run::run;
