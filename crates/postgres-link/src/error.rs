use std::path::PathBuf;

/// Why a server cannot be reached with these settings.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("{0}")]
    Url(String),
    #[error("sslmode={0}: expected disable, prefer, require or verify-full")]
    Mode(String),
    #[error("sslrootcert needs sslmode=verify-full: other modes do not verify certificates")]
    RootsUnused,
    #[error("the certificates in {0:?}: {1}")]
    Roots(PathBuf, String),
    #[error("no certificate to trust was found: set sslrootcert=FILE")]
    NoRoots,
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}
