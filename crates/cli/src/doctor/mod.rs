//! `windlass doctor`: looks at a store and at what it stands on, and changes nothing.

mod durability;
mod finding;
mod indexes;
mod options;
mod plan;
mod pooler;
mod postgres;
mod records;
mod server;
mod sqlite;
mod tables;
mod transactions;

pub(crate) use options::Doctor;
