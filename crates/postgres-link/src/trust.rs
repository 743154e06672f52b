use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::error::LinkError;

/// Which servers an encrypted connection accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Any server: `sslmode=prefer`, which is the default, and `require`.
    #[default]
    AnyCertificate,
    /// A server with a certificate for its host name from a system root: `sslmode=verify-full`.
    System,
    /// The same with the root certificates of this file: `sslrootcert`.
    Roots(PathBuf),
}

impl Trust {
    /// Parses the URL parameters, in their encoded form.
    pub fn parse(sslmode: Option<&str>, sslrootcert: Option<&str>) -> Result<Self, LinkError> {
        let file = sslrootcert.map(|path| percent_decode_str(path).decode_utf8_lossy());
        match (sslmode.unwrap_or("prefer"), file) {
            ("verify-full", None) => Ok(Trust::System),
            ("verify-full", Some(path)) => Ok(Trust::Roots(path.as_ref().into())),
            // Otherwise an ignored `sslrootcert` would look as if it were verified.
            ("disable" | "prefer" | "require", Some(_)) => Err(LinkError::RootsUnused),
            ("disable" | "prefer" | "require", None) => Ok(Trust::AnyCertificate),
            (other, _) => Err(LinkError::Mode(other.to_owned())),
        }
    }

    /// The trusted root certificates; none if any server is accepted.
    pub(crate) fn roots(&self) -> Result<Option<RootCertStore>, LinkError> {
        let found =
            match self {
                Trust::AnyCertificate => return Ok(None),
                Trust::System => rustls_native_certs::load_native_certs().certs,
                Trust::Roots(path) => CertificateDer::pem_file_iter(path)
                    .and_then(Iterator::collect)
                    .map_err(|error| LinkError::Roots(path.clone(), error.to_string()))?,
            };
        let mut roots = RootCertStore::empty();
        match roots.add_parsable_certificates(found) {
            (0, _) => Err(LinkError::NoRoots),
            _ => Ok(Some(roots)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_parameters_select_the_trust() {
        for (sslmode, sslrootcert, trust) in [
            (None, None, Trust::AnyCertificate),
            (Some("disable"), None, Trust::AnyCertificate),
            (Some("require"), None, Trust::AnyCertificate),
            (Some("verify-full"), None, Trust::System),
            (Some("verify-full"), Some("/a%20b.pem"), Trust::Roots("/a b.pem".into())),
        ] {
            assert_eq!(Trust::parse(sslmode, sslrootcert).unwrap(), trust, "{sslmode:?}");
        }
        for (sslmode, sslrootcert) in [
            (Some("verify-ca"), None),
            (Some(""), None),
            (None, Some("/a.pem")),
            (Some("require"), Some("/a.pem")),
        ] {
            assert!(Trust::parse(sslmode, sslrootcert).is_err(), "{sslmode:?}");
        }
    }
}
