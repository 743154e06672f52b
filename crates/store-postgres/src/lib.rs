//! The Windlass store in a Postgres database, for any number of nodes.
//!
//! A batch is one transaction: its records are loaded in one pipeline, and its changes are checked,
//! written and committed in another, so that no round trip happens while the commit locks are held.
//! The tables are in `migrations/`; the Rust code only uses [`windlass_core::TableSpec`] and
//! contains no rules. Start at [`PostgresStore`].
//!
//! ```no_run
//! # async fn example() -> Result<(), windlass_store::StoreError> {
//! use windlass_store::Store;
//! let store = windlass_store_postgres::PostgresStore::open("postgres://app@localhost/app").await?;
//! assert_eq!(store.describe().await?.backend, "postgres");
//! # Ok(()) }
//! ```

mod error;
mod listen;
mod load;
mod migrate;
mod options;
mod pipeline;
mod read;
mod save;
mod sql;
mod store;
mod tx;

pub use migrate::{FORMAT, MIGRATIONS, read_format};
pub use options::{Options, connect};
pub use store::PostgresStore;
pub use windlass_postgres_link::Trust;
