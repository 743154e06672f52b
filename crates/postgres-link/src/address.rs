use std::str::FromStr as _;

use tokio_postgres::Config;

use crate::error::LinkError;
use crate::trust::Trust;

/// A parsed URL: the server, the trust in its certificate, and parameters not for the driver.
#[derive(Clone, Debug)]
pub struct Address {
    pub config: Config,
    pub trust: Trust,
    /// Names and values in order.
    pub ours: Vec<(String, String)>,
}

impl Address {
    /// Parses a URL; parameters named in `ours` are separated from those of the driver.
    pub fn parse(url: &str, ours: &[&str]) -> Result<Self, LinkError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut own_parameters, mut rest) = (Vec::new(), Vec::new());
        let (mut mode, mut roots) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                name if ours.contains(&name) => own_parameters.push((name.into(), value.into())),
                "sslrootcert" => roots = Some(value),
                "sslmode" => {
                    mode = Some(value);
                    // The driver does not support this mode.
                    rest.extend(Some(pair).filter(|_| value != "verify-full"));
                }
                _ => rest.push(pair),
            }
        }
        let trust = Trust::parse(mode, roots)?;
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        let config = Config::from_str(&format!("{base}{query}"));
        let config = config.map_err(|error| LinkError::Url(error.to_string()))?;
        Ok(Self { config, trust, ours: own_parameters })
    }
}
