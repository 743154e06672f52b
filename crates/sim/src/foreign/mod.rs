//! Workflows of another runtime than Windlass's own, in scripts: clients send to them, receive what
//! was sent, make their turns or give them back, and do the work that turns make, some of it bound
//! to whoever has a lock.
//!
//! They live in a tenant of their own, as the workflows of Windlass's runtime do.

mod client;
mod finish;
mod generate;
mod wish;

pub(crate) use client::{is_foreign, made_by};
pub(crate) use finish::finish;
pub(crate) use generate::Guest;
pub use wish::ForeignWish;
pub(crate) use wish::{SENDER, TENANT};
