//! The Windlass store in one SQLite file.
//!
//! One thread owns the write connection and runs one batch at a time as one transaction; reads use
//! separate connections. A successful commit is on disk. The tables are in `migrations/`; the Rust
//! code only uses [`windlass_core::TableSpec`] and contains no rules. Start at [`SqliteStore`].
//!
//! ```
//! use windlass_core::Table;
//! use windlass_store::{Query, Store};
//! use windlass_store_sqlite::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let folder = tempfile::tempdir().unwrap();
//! let store = SqliteStore::open(folder.path().join("windlass.db")).unwrap();
//! assert!(store.query(&Query::all(Table::Lane, 10)).await.unwrap().is_empty());
//! assert_eq!(store.describe().await.unwrap().durability, "wal, synchronous=FULL");
//! store.close().await.unwrap();
//! # }
//! ```

mod error;
mod load;
mod open;
mod outcome;
mod read;
mod save;
mod sql;
mod store;
mod writer;

pub use open::{FORMAT, MIGRATIONS, Options};
pub use store::SqliteStore;
