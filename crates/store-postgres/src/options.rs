use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use windlass_store::{Clock, StoreError};

use crate::error::Oddity;

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The schema that holds the tables. It is made when it is not there.
    pub schema: String,
    /// The most connections at once, without the one that listens.
    pub connections: usize,
    /// Prepare statements by name, which some poolers do not know: `prepare=off`.
    pub prepare: bool,
    /// How long a statement, a lock and an idle transaction may take: a stopped node holds nothing.
    pub patience: Duration,
    /// Whose time it is; that of the database unless another one is named.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: "windlass".into(),
            connections: 8,
            prepare: true,
            patience: Duration::from_secs(5),
            clock: None,
        }
    }
}

impl Options {
    /// Reads a URL. What is ours in it (`schema`, `connections`, `prepare`) is taken out, and the
    /// rest is for the driver.
    pub fn parse(url: &str) -> Result<(Config, Self), StoreError> {
        let mut options = Self::default();
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut theirs = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => options.schema = value.to_owned(),
                "connections" => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    options.connections =
                        number.ok_or_else(|| refused(Oddity::Url(pair.into())))?;
                }
                "prepare" => options.prepare = value != "off",
                _ => theirs.push(pair),
            }
        }
        let url =
            if theirs.is_empty() { base.into() } else { format!("{base}?{}", theirs.join("&")) };
        let config =
            Config::from_str(&url).map_err(|error| refused(Oddity::Url(error.to_string())))?;
        options.check()?;
        Ok((config, options))
    }

    /// After so long without an answer nobody is at the other end: the server itself loses its
    /// patience with every statement before.
    pub(crate) fn silence(&self) -> Duration {
        4 * self.patience
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

fn refused(oddity: Oddity) -> StoreError {
    StoreError::Refused(Box::new(oddity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let (_, options) = Options::parse("postgres://a@h/d?schema=jobs&connections=3").unwrap();
        assert_eq!((options.schema.as_str(), options.connections), ("jobs", 3));
        let (config, options) = Options::parse("postgres://h/d?prepare=off&user=ada").unwrap();
        assert_eq!((config.get_user(), options.prepare), (Some("ada"), false));
        for bad in [
            "postgres://h/d?schema=a\"b",
            "postgres://h/d?schema=",
            "postgres://h/d?connections=0",
            "postgres://h/d?unheard=of",
        ] {
            assert!(matches!(Options::parse(bad), Err(StoreError::Refused(_))), "{bad}");
        }
    }
}
