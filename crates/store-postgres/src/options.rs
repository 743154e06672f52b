use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use windlass_store::{Clock, StoreError};

use crate::error::{Oddity, refused};
use crate::tls::Trust;

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
    /// Reads a URL. What is ours in it (`schema`, `connections`, `prepare`, `sslrootcert`) is taken
    /// out, and the rest is for the driver.
    pub fn parse(url: &str) -> Result<(Config, Self), StoreError> {
        let mut options = Self::default();
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut theirs, mut roots) = (Vec::new(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = |wanted| refused(Oddity::Value { pair: pair.to_owned(), wanted });
            match name {
                "schema" => options.schema = value.to_owned(),
                "connections" => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    options.connections = number.ok_or_else(|| wrong("a number from 1 on"))?;
                }
                "prepare" if value == "on" => options.prepare = Some(true),
                "prepare" if value == "off" => options.prepare = Some(false),
                "prepare" => return Err(wrong("on or off")),
                "sslmode" if value == "verify-full" => options.trust = Trust::System,
                "sslmode" if !["disable", "prefer", "require"].contains(&value) => {
                    return Err(wrong("disable, prefer, require or verify-full"));
                }
                "sslrootcert" => roots = Some(percent_decode_str(value).decode_utf8_lossy()),
                "contended" => options.optimistic = value == "optimistic",
                _ => theirs.push(pair),
            }
        }
        let url =
            if theirs.is_empty() { base.into() } else { format!("{base}?{}", theirs.join("&")) };
        let config =
            Config::from_str(&url).map_err(|error| refused(Oddity::Url(error.to_string())))?;
        match roots {
            // Otherwise it would look as if somebody checked them.
            Some(_) if options.trust == Trust::Anybody => return Err(refused(Oddity::RootsUnused)),
            Some(path) => options.trust = Trust::Roots(path.as_ref().into()),
            None => {}
        }
        options.check()?;
        Ok((config, options))
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let named = !self.schema.is_empty() && self.schema.len() <= 63;
        if !named || !self.schema.chars().all(fits) {
            return Err(refused(Oddity::Schema(self.schema.clone())));
        }
        Ok(())
    }
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
        assert_eq!((config.get_user(), options.prepare), (Some("ada"), Some(false)));
        let (config, options) = Options::parse("postgres://h/d?sslmode=verify-full").unwrap();
        assert_eq!((config.get_ssl_mode(), options.trust), (SslMode::Prefer, Trust::System));
        let url = "postgres://h/d?sslrootcert=/a%20b.pem&sslmode=verify-full";
        assert_eq!(Options::parse(url).unwrap().1.trust, Trust::Roots("/a b.pem".into()));
        let (config, options) = Options::parse("postgres://h/d?sslmode=require").unwrap();
        assert_eq!((config.get_ssl_mode(), options.trust), (SslMode::Require, Trust::Anybody));
        for bad in [
            "postgres://h/d?sslmode=verify-ca",
            "postgres://h/d?sslmode=",
            "postgres://h/d?sslrootcert=/a.pem",
            "postgres://h/d?sslmode=require&sslrootcert=/a.pem",
            "postgres://h/d?prepare=no",
            "postgres://h/d?schema=a\"b",
            "postgres://h/d?schema=",
            "postgres://h/d?connections=0",
            "postgres://h/d?unheard=of",
        ] {
            assert!(matches!(Options::parse(bad), Err(StoreError::Refused(_))), "{bad}");
        }
    }
}
