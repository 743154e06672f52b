use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use windlass_store::{MemoryStore, Store, StoreError};
use windlass_store_sqlite::SqliteStore;

/// Which store to use, as people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    Memory,
    Sqlite(PathBuf),
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadUrl {
    #[error("a store is sqlite://PATH (sqlite:///absolute, sqlite://relative) or memory:")]
    UnknownScheme,
    #[error("sqlite:// must be followed by the path of a file")]
    NoPath,
}

impl FromStr for StoreUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if matches!(text, "memory:" | "memory://") {
            return Ok(StoreUrl::Memory);
        }
        match text.strip_prefix("sqlite://") {
            Some("") => Err(BadUrl::NoPath),
            Some(path) => Ok(StoreUrl::Sqlite(PathBuf::from(path))),
            None => Err(BadUrl::UnknownScheme),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory => f.write_str("memory:"),
            StoreUrl::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
        }
    }
}

impl StoreUrl {
    /// Whether there is something to open. What is in memory is made by opening it.
    pub fn exists(&self) -> bool {
        match self {
            StoreUrl::Memory => true,
            StoreUrl::Sqlite(path) => path.exists(),
        }
    }

    pub fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        match self {
            StoreUrl::Memory => Ok(Arc::new(MemoryStore::new())),
            StoreUrl::Sqlite(path) => Ok(Arc::new(SqliteStore::open(path)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, expected) in [
            ("memory:", Ok(StoreUrl::Memory)),
            ("sqlite:///tmp/a.db", Ok(StoreUrl::Sqlite("/tmp/a.db".into()))),
            ("sqlite://a.db", Ok(StoreUrl::Sqlite("a.db".into()))),
            ("sqlite://", Err(BadUrl::NoPath)),
            ("mysql://x", Err(BadUrl::UnknownScheme)),
            ("/tmp/a.db", Err(BadUrl::UnknownScheme)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
    }
}
