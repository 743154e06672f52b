//! `windlass doctor`: checks a store and its database server, and changes nothing.

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
