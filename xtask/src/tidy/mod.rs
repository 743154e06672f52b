//! The house style, as far as it can be checked.

mod comment;
mod function;
mod purity;
mod root;
mod rule;
mod run;
mod sample;
mod shape;
mod split;
mod vocabulary;
mod words;

pub(crate) use run::run;
pub(crate) use sample::sample;
