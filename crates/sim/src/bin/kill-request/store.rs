//! The store of a process, by name.

use std::sync::Arc;

use windlass_store::{Store, StoreError};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_sqlite::SqliteStore;

const CONNECTIONS: usize = 3;

/// Opens a SQLite file or a `postgres://` URL.
pub(crate) async fn open(store: &str) -> Result<Arc<dyn Store>, StoreError> {
    if !store.starts_with("postgres://") {
        return Ok(Arc::new(SqliteStore::open(store)?));
    }
    let (config, options) = Options::parse(store).expect("the server's URL is valid");
    let options = Options { connections: CONNECTIONS, ..options };
    Ok(Arc::new(PostgresStore::open_with(config, options).await?))
}
