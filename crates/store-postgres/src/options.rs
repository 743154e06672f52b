use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, Config};
use windlass_postgres_link::{Address, Link, Trust};
use windlass_store::{Clock, StoreError};

use crate::error::{Oddity, refused, unavailable};

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The schema that holds the tables. It is made when it is not there.
    pub schema: String,
    /// The most connections at once, without the one that listens.
    pub connections: usize,
    /// Prepare statements by name, and listen. Not through a pooler that lends its connections for
    /// a transaction at a time: `prepare=off`. Where nothing is said it is found out, and a pooler
    /// of sessions is taken for such a one: `prepare=on`.
    pub prepare: Option<bool>,
    /// Who may answer where the connection is encrypted: `sslmode`, `sslrootcert`.
    pub trust: Trust,
    /// How long a statement, a lock and an idle transaction may take: a stopped node holds nothing.
    /// Who waits looks as often for what nobody told of.
    pub patience: Duration,
    /// Only to measure what it costs, by `contended=optimistic`: lock nothing ahead, and run again
    /// what somebody else was faster with.
    pub optimistic: bool,
    /// Whose time it is; that of the database unless another one is named.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: "windlass".into(),
            connections: 8,
            prepare: None,
            trust: Trust::Anybody,
            patience: Duration::from_secs(5),
            optimistic: false,
            clock: None,
        }
    }
}

impl Options {
    /// Reads a URL. What is ours in it (`schema`, `connections`, `prepare`) is taken out, and the
    /// rest is for the driver.
    pub fn parse(url: &str) -> Result<(Config, Self), StoreError> {
        let ours = ["schema", "connections", "prepare", "contended"];
        let Address { config, trust, ours } = Address::parse(url, &ours).map_err(refused)?;
        let mut options = Self { trust, ..Self::default() };
        for (name, value) in ours {
            let wrong = |wanted| refused(Oddity::Value { pair: format!("{name}={value}"), wanted });
            match (name.as_str(), value.as_str()) {
                ("schema", schema) => options.schema = schema.to_owned(),
                ("prepare", "on") => options.prepare = Some(true),
                ("prepare", "off") => options.prepare = Some(false),
                ("prepare", _) => return Err(wrong("on or off")),
                ("contended", "optimistic") => options.optimistic = true,
                ("contended", _) => return Err(wrong("optimistic, or left out")),
                (_, number) => match number.parse() {
                    Ok(number) if number > 0 => options.connections = number,
                    _ => return Err(wrong("a number from 1 on")),
                },
            }
        }
        options.check()?;
        Ok((config, options))
    }

    /// A connection on which nothing comes for so long is not waited for: the server itself loses
    /// its patience with every statement before. Whoever has it closes it.
    pub(crate) async fn in_time<T>(&self, it: impl Future<Output = T>) -> Result<T, StoreError> {
        timeout(4 * self.patience, it).await.map_err(|_| unavailable(Oddity::Silent))
    }

    /// How much earlier than an entry before it an entry of the log may be, in microseconds.
    pub(crate) fn most_behind(&self) -> i64 {
        i64::try_from(self.patience.as_micros()).unwrap_or(i64::MAX)
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let named = (1..=54).contains(&self.schema.len()) && self.schema.chars().all(fits);
        if named { Ok(()) } else { Err(refused(Oddity::Schema(self.schema.clone()))) }
    }
}

/// Connects to the database of a URL without opening a store, for tools that look at it.
pub async fn connect(url: &str) -> Result<(Client, Options), StoreError> {
    let (config, options) = Options::parse(url)?;
    let link = Link::new(config, &options.trust).map_err(refused)?;
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
        assert_eq!((config.get_ssl_mode(), options.trust), (SslMode::Require, Trust::Anybody));
        for bad in [
            "postgres://h/d?sslmode=verify-ca",
            "postgres://h/d?sslrootcert=/a.pem",
            "postgres://h/d?contended=no",
            "postgres://h/d?prepare=no",
            "postgres://h/d?schema=a\"b",
            "postgres://h/d?schema=",
            // The channel of a schema has a longer name, which is at most 63.
            "postgres://h/d?schema=a123456789b123456789c123456789d123456789e123456789f1234",
            "postgres://h/d?connections=0",
            "postgres://h/d?unheard=of",
        ] {
            assert!(matches!(Options::parse(bad), Err(StoreError::Refused(_))), "{bad}");
        }
    }
}
