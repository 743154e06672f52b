use std::path::PathBuf;

/// Why a server cannot be reached in the way that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("{0}")]
    Url(String),
    #[error("sslmode={0}: this is disable, prefer, require or verify-full")]
    Mode(String),
    #[error("sslrootcert needs sslmode=verify-full: nothing else looks at certificates")]
    RootsUnused,
    #[error("the certificates in {0:?}: {1}")]
    Roots(PathBuf, String),
    #[error("there is no certificate to trust: name some with sslrootcert=FILE")]
    NoRoots,
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}
