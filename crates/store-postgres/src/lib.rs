//! The Windlass store in a Postgres database, for any number of nodes.
//!
//! A batch is one transaction: what it needs is loaded in one flight of statements, and what it
//! changes is checked, written and committed in another, so that no round trip happens under
//! locks. The tables are in `migrations/`; the Rust code knows only
//! [`windlass_core::TableSpec`], and owns no rule. Start at [`PostgresStore`].
//!
//! ```no_run
//! use windlass_core::Table;
//! use windlass_store::{Query, Store};
//! use windlass_store_postgres::PostgresStore;
//!
//! # #[tokio::main] async fn main() -> Result<(), windlass_store::StoreError> {
//! let store = PostgresStore::open("postgres://app@localhost/app").await?;
//! println!("{}", store.query(&Query::all(Table::Lane, 10)).await?.len());
//! store.close().await
//! # }
//! ```

mod error;
mod flight;
mod listen;
mod load;
mod migrate;
mod options;
mod read;
mod save;
mod sql;
mod store;
mod tx;

pub use options::Options;
pub use store::PostgresStore;
