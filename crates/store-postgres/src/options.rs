use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, Config};
use windlass_postgres_link::{Address, Link, Trust};
use windlass_store::{Clock, StoreError};

use crate::error::{DecodeError, rejected, unavailable};

/// Settings for opening a database.
#[derive(Clone, Debug)]
pub struct Options {
    /// The schema of the tables, created if it does not exist.
    pub schema: String,
    /// Maximum number of connections, not counting the listening one.
    pub connections: usize,
    /// Use prepared statements and LISTEN. Not possible through a transaction pooler:
    /// `prepare=off`. By default poolers are detected; a session pooler looks like a transaction
    /// pooler and needs `prepare=on`.
    pub prepare: Option<bool>,
    /// Which server certificates are accepted: `sslmode`, `sslrootcert`.
    pub trust: Trust,
    /// Timeout of statements, locks and idle transactions, so that a stopped node holds no locks.
    /// Also the interval at which waiting claims check without a notification.
    pub patience: Duration,
    /// Only for measurements, set by `contended=optimistic`: takes no locks on contended records,
    /// and relies on conflicts and retries.
    pub optimistic: bool,
    /// The time source; the database's clock by default.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: "windlass".into(),
            connections: 8,
            prepare: None,
            trust: Trust::AnyCertificate,
            patience: Duration::from_secs(5),
            optimistic: false,
            clock: None,
        }
    }
}

impl Options {
    /// Parses a URL. Our parameters (`schema`, `connections`, `prepare`, ..) are taken out; the
    /// others are for the driver.
    pub fn parse(url: &str) -> Result<(Config, Self), StoreError> {
        let ours = ["schema", "connections", "prepare", "contended"];
        let Address { config, trust, ours } = Address::parse(url, &ours).map_err(rejected)?;
        let mut options = Self { trust, ..Self::default() };
        for (name, value) in ours {
            let wrong =
                |wanted| rejected(DecodeError::Value { pair: format!("{name}={value}"), wanted });
            match (name.as_str(), value.as_str()) {
                ("schema", schema) => options.schema = schema.to_owned(),
                ("prepare", "on") => options.prepare = Some(true),
                ("prepare", "off") => options.prepare = Some(false),
                ("prepare", _) => return Err(wrong("on or off")),
                ("contended", "optimistic") => options.optimistic = true,
                ("contended", _) => return Err(wrong("optimistic, or absent")),
                (_, number) => match number.parse() {
                    Ok(number) if number > 0 => options.connections = number,
                    _ => return Err(wrong("a number from 1 on")),
                },
            }
        }
        options.check()?;
        Ok((config, options))
    }

    /// Client-side timeout: the server times out every statement earlier, so a longer silence means
    /// a dead connection. The caller closes it.
    pub(crate) async fn in_time<T>(&self, it: impl Future<Output = T>) -> Result<T, StoreError> {
        timeout(4 * self.patience, it).await.map_err(|_| unavailable(DecodeError::Silent))
    }

    /// How much earlier than its predecessor a log entry may be, in microseconds.
    pub(crate) fn most_behind(&self) -> i64 {
        i64::try_from(self.patience.as_micros()).unwrap_or(i64::MAX)
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let named = (1..=54).contains(&self.schema.len()) && self.schema.chars().all(fits);
        if named { Ok(()) } else { Err(rejected(DecodeError::Schema(self.schema.clone()))) }
    }
}

/// Connects to the database of a URL without opening a store, for inspection tools.
pub async fn connect(url: &str) -> Result<(Client, Options), StoreError> {
    let (config, options) = Options::parse(url)?;
    let link = Link::new(config, &options.trust).map_err(rejected)?;
    Ok((link.client().await.map_err(unavailable)?, options))
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::SslMode;

    use super::*;

    #[test]
    fn urls() {
        let (_, options) = Options::parse("postgres://a@h/d?schema=jobs&connections=3").unwrap();
        assert_eq!((options.schema.as_str(), options.connections), ("jobs", 3));
        let (config, options) = Options::parse("postgres://h/d?prepare=off&user=ada").unwrap();
        assert!(!options.optimistic);
        assert!(Options::parse("postgres://h/d?contended=optimistic").unwrap().1.optimistic);
        assert_eq!((config.get_user(), options.prepare), (Some("ada"), Some(false)));
        let (config, options) = Options::parse("postgres://h/d?sslmode=verify-full").unwrap();
        assert_eq!((config.get_ssl_mode(), options.trust), (SslMode::Prefer, Trust::System));
        let (config, options) = Options::parse("postgres://h/d?sslmode=require").unwrap();
        assert_eq!(
            (config.get_ssl_mode(), options.trust),
            (SslMode::Require, Trust::AnyCertificate)
        );
        for bad in [
            "postgres://h/d?sslmode=verify-ca",
            "postgres://h/d?sslrootcert=/a.pem",
            "postgres://h/d?contended=no",
            "postgres://h/d?prepare=no",
            "postgres://h/d?schema=a\"b",
            "postgres://h/d?schema=",
            // The NOTIFY channel has a prefix, and identifiers are limited to 63 bytes.
            "postgres://h/d?schema=a123456789b123456789c123456789d123456789e123456789f1234",
            "postgres://h/d?connections=0",
            "postgres://h/d?unheard=of",
        ] {
            assert!(matches!(Options::parse(bad), Err(StoreError::Rejected(_))), "{bad}");
        }
    }
}
