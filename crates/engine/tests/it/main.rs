//! The engine as its callers see it.

mod claims;
mod lifecycle;
mod load;
mod log;
mod rules;
mod stage;
