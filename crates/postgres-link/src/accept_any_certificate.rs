use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer as Certificate, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct as Signature, Error};

/// Accepts any certificate, but verifies that the server has its key: with channel binding, a
/// password is of no use to a man in the middle.
#[derive(Debug)]
pub(crate) struct AcceptAnyCertificate(pub(crate) WebPkiSupportedAlgorithms);

type Proof = Result<HandshakeSignatureValid, Error>;

/// An X.509 v1 certificate cannot be parsed, but the connection can still be encrypted.
fn lenient(proof: Proof) -> Proof {
    match proof {
        Err(Error::InvalidCertificate(CertificateError::Other(_))) => {
            Ok(HandshakeSignatureValid::assertion())
        }
        other => other,
    }
}

impl ServerCertVerifier for AcceptAnyCertificate {
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
