//! TLS as libpq does it, on rustls.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer as Certificate, ServerName, UnixTime, pem::PemObject as _};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct as Signature, Error};
use tokio_postgres::config::{Config, Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres_rustls::MakeRustlsConnect;
use windlass_store::StoreError;

use crate::error::{Oddity, refused, translate, unavailable};
use crate::options::Options;

/// Who may answer a connection that is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Whoever does: `sslmode=prefer`, which is the default, and `require`.
    #[default]
    Anybody,
    /// Who can show that the host has this name, to the system: `sslmode=verify-full`.
    System,
    /// The same by a certificate in this file: `sslrootcert`.
    Roots(PathBuf),
}

/// Connects to the database of a URL without opening a store, for tools that look at it.
pub async fn connect(url: &str) -> Result<(tokio_postgres::Client, Options), StoreError> {
    let (mut config, options) = Options::parse(url)?;
    let tls = connector(&mut config, &options.trust)?;
    let (client, connection) = config.connect(tls).await.map_err(unavailable)?;
    tokio::spawn(connection);
    Ok((client, options))
}

/// Whether nobody lends connections to several clients in turn. Whoever does has made them before,
/// and a setting that is asked for when a connection is made gets lost or is refused.
pub(crate) async fn is_direct(to: &Config, tls: &MakeRustlsConnect) -> Result<bool, StoreError> {
    let mut config = to.clone();
    config.options(format!("{} -c windlass.asked=yes", to.get_options().unwrap_or_default()));
    let (client, connection) = match config.connect(tls.clone()).await {
        Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => return Ok(false),
        connected => connected.map_err(unavailable)?,
    };
    tokio::spawn(connection);
    let text = "SELECT current_setting('windlass.asked', true) IS NOT DISTINCT FROM 'yes'";
    let row = client.query_typed_one(text, &[]).await.map_err(translate)?;
    row.try_get(0).map_err(translate)
}

pub(crate) fn connector(to: &mut Config, trust: &Trust) -> Result<MakeRustlsConnect, StoreError> {
    if to.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
        // Nobody listens in on a socket, and the server takes no TLS there.
        to.ssl_mode(SslMode::Disable);
    } else if *trust != Trust::Anybody {
        to.ssl_mode(SslMode::Require);
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let anybody = Arc::new(Anybody(provider.signature_verification_algorithms));
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(unavailable)?;
    let builder = match roots(trust)? {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.dangerous().with_custom_certificate_verifier(anybody),
    };
    Ok(MakeRustlsConnect::new(builder.with_no_client_auth()))
}

fn roots(trust: &Trust) -> Result<Option<rustls::RootCertStore>, StoreError> {
    let found = match trust {
        Trust::Anybody => return Ok(None),
        Trust::System => rustls_native_certs::load_native_certs().certs,
        Trust::Roots(path) => Certificate::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| refused(Oddity::Roots(path.clone(), error.to_string())))?,
    };
    let mut roots = rustls::RootCertStore::empty();
    match roots.add_parsable_certificates(found) {
        (0, _) => Err(refused(Oddity::NoRoots)),
        _ => Ok(Some(roots)),
    }
}

/// Takes any certificate, but only from whoever has its key: a password that is bound to the
/// certificate is of no use to somebody in between.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

type Proof = Result<HandshakeSignatureValid, Error>;

/// A certificate of a form too old to be read is no reason to refuse to encrypt.
fn lenient(proof: Proof) -> Proof {
    match proof {
        Err(Error::InvalidCertificate(CertificateError::Other(_))) => {
            Ok(HandshakeSignatureValid::assertion())
        }
        other => other,
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &Certificate<'_>,
        _: &[Certificate<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(&self, m: &[u8], by: &Certificate<'_>, it: &Signature) -> Proof {
        lenient(crypto::verify_tls12_signature(m, by, it, &self.0))
    }

    fn verify_tls13_signature(&self, m: &[u8], by: &Certificate<'_>, it: &Signature) -> Proof {
        lenient(crypto::verify_tls13_signature(m, by, it, &self.0))
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.supported_schemes()
    }
}
