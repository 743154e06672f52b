use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use windlass_store::{MemoryStore, Store, StoreError};
use windlass_store_postgres::PostgresStore;
use windlass_store_sqlite::SqliteStore;

/// The URL of a store. `Display` and `Debug` omit the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    Memory,
    Sqlite(PathBuf),
    Postgres(Secret),
}

/// A URL that may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The URL with the password.
    pub fn expose_secret(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum InvalidStoreUrl {
    #[error(
        "a store is sqlite://PATH (sqlite:///absolute, sqlite://relative), postgres:// or memory:"
    )]
    UnknownScheme,
    #[error("{0}")]
    Postgres(String),
    #[error("sqlite:// must be followed by the path of a file")]
    NoPath,
}

impl FromStr for StoreUrl {
    type Err = InvalidStoreUrl;

    fn from_str(text: &str) -> Result<Self, InvalidStoreUrl> {
        if matches!(text, "memory:" | "memory://") {
            return Ok(StoreUrl::Memory);
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let fault = |error: StoreError| match error {
                StoreError::Rejected(why) => InvalidStoreUrl::Postgres(why.to_string()),
                other => InvalidStoreUrl::Postgres(other.to_string()),
            };
            windlass_store_postgres::Options::parse(text).map_err(fault)?;
            return Ok(StoreUrl::Postgres(Secret(text.to_owned())));
        }
        match text.strip_prefix("sqlite://") {
            Some("") => Err(InvalidStoreUrl::NoPath),
            Some(path) => Ok(StoreUrl::Sqlite(PathBuf::from(path))),
            None => Err(InvalidStoreUrl::UnknownScheme),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory => f.write_str("memory:"),
            StoreUrl::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            StoreUrl::Postgres(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("//").unwrap_or(("", &self.0));
        // A password may contain any character; it ends before the last @.
        let (user, location) = rest.rsplit_once('@').map_or((None, rest), |(u, p)| (Some(u), p));
        let (host, query) = location.split_once('?').unwrap_or((location, ""));
        match user.map(|user| user.split(':').next().unwrap_or_default()) {
            Some(user) => write!(f, "{scheme}//{user}@{host}")?,
            None => write!(f, "{scheme}//{host}")?,
        }
        let mut shown = query.split('&').filter(|pair| !pair.starts_with("password"));
        match shown.next().filter(|first| !first.is_empty()) {
            Some(first) => shown.try_fold(write!(f, "?{first}")?, |(), pair| write!(f, "&{pair}")),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StoreUrl {
    /// Whether the store exists. A SQLite file without tables does not; a memory store is created
    /// on open, and for Postgres only the server knows, so both return true.
    pub fn exists(&self) -> bool {
        match self {
            StoreUrl::Memory | StoreUrl::Postgres(_) => true,
            StoreUrl::Sqlite(path) => !matches!(SqliteStore::format(path), Ok(None)),
        }
    }

    /// Redacts the password of a text that may be a URL.
    pub fn redacted(text: &str) -> String {
        if text.contains("//") { Secret(text.to_owned()).to_string() } else { text.to_owned() }
    }

    /// The URL with its password, to pass to another process. Never print it.
    pub fn expose_secret(&self) -> String {
        match self {
            StoreUrl::Postgres(url) => url.0.clone(),
            other => other.to_string(),
        }
    }

    /// The same store with one more setting. Only Postgres has settings.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let StoreUrl::Postgres(url) = self else { return self.clone() };
        let sign = if url.0.contains('?') { '&' } else { '?' };
        StoreUrl::Postgres(Secret(format!("{}{sign}{name}={value}", url.0)))
    }

    /// Starts a new incarnation of the log of a store restored from a backup, before any engine
    /// opens it. Readers with a cursor of the lost incarnation then get `cursor_expired`.
    pub async fn renew_incarnation(&self) -> Result<(), StoreError> {
        match self {
            StoreUrl::Memory => Ok(()),
            StoreUrl::Sqlite(path) => SqliteStore::renew_incarnation(path),
            StoreUrl::Postgres(url) => PostgresStore::renew_incarnation(&url.0).await,
        }
    }

    pub async fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        match self {
            StoreUrl::Memory => Ok(Arc::new(MemoryStore::new())),
            StoreUrl::Sqlite(path) => Ok(Arc::new(SqliteStore::open(path)?)),
            StoreUrl::Postgres(url) => Ok(Arc::new(PostgresStore::open(&url.0).await?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let secret = |text: &str| Ok(StoreUrl::Postgres(Secret(text.into())));
        for (text, expected) in [
            ("memory:", Ok(StoreUrl::Memory)),
            ("sqlite:///tmp/a.db", Ok(StoreUrl::Sqlite("/tmp/a.db".into()))),
            ("sqlite://a.db", Ok(StoreUrl::Sqlite("a.db".into()))),
            ("postgres://a@b/c", secret("postgres://a@b/c")),
            ("postgresql://a@b/c", secret("postgresql://a@b/c")),
            ("sqlite://", Err(InvalidStoreUrl::NoPath)),
            (
                "postgres://a@b/c?connections=none",
                Err(InvalidStoreUrl::Postgres(
                    "\"connections=none\" in the URL of the database: this is a number from 1 on"
                        .into(),
                )),
            ),
            ("mysql://x", Err(InvalidStoreUrl::UnknownScheme)),
            ("/tmp/a.db", Err(InvalidStoreUrl::UnknownScheme)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
    }

    #[test]
    fn a_setting_is_added_where_there_are_settings() {
        for (text, expected) in [
            ("memory:", "memory:"),
            ("sqlite://a.db", "sqlite://a.db"),
            ("postgres://a:p@h/d", "postgres://a:p@h/d?connections=2"),
            ("postgres://h/d?schema=a", "postgres://h/d?schema=a&connections=2"),
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(url.expose_secret(), text);
            assert_eq!(url.with("connections", "2").expose_secret(), expected);
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        for (text, shown) in [
            ("postgres://ada:s3cret@host:5432/db", "postgres://ada@host:5432/db"),
            ("postgres://ada:s3%40cr@et@host/db?schema=a", "postgres://ada@host/db?schema=a"),
            ("postgres://host/db?password=s3cret&schema=a", "postgres://host/db?schema=a"),
            (
                "postgres://host/db?schema=a&password=s3cret&user=bob",
                "postgres://host/db?schema=a&user=bob",
            ),
            ("postgres://host/db?password=s3cret", "postgres://host/db"),
            ("postgres://host/db", "postgres://host/db"),
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("cr"), "{url:?}");
        }
    }
}
