use std::fmt;
use std::sync::Arc;

use rustls::{ClientConfig, crypto};
use tokio_postgres::config::{Config, Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::accept_any_certificate::AcceptAnyCertificate;
use crate::error::LinkError;
use crate::trust::Trust;

type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// The connection settings of a server: its address and TLS.
#[derive(Clone)]
pub struct Link {
    pub config: Config,
    pub tls: MakeRustlsConnect,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration redacts its password.
        f.debug_struct("Link").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Link {
    pub fn new(mut config: Config, trust: &Trust) -> Result<Self, LinkError> {
        if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
            // A Unix socket cannot be intercepted, and the server does not support TLS on it.
            config.ssl_mode(SslMode::Disable);
        } else if *trust != Trust::AnyCertificate {
            config.ssl_mode(SslMode::Require);
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let verifier = Arc::new(AcceptAnyCertificate(provider.signature_verification_algorithms));
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions()?;
        let builder = match trust.roots()? {
            Some(roots) => builder.with_root_certificates(roots),
            None => builder.dangerous().with_custom_certificate_verifier(verifier),
        };
        Ok(Self { config, tls: MakeRustlsConnect::new(builder.with_no_client_auth()) })
    }

    pub async fn connect(&self) -> Result<(Client, Connection<Socket, Stream>), Error> {
        self.config.connect(self.tls.clone()).await
    }

    /// A client whose connection is driven in the background.
    pub async fn client(&self) -> Result<Client, Error> {
        let (client, connection) = self.connect().await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Whether connections are direct. A transaction pooler shares existing connections between
    /// clients, so a setting sent in the connection options gets lost or is rejected.
    pub async fn is_direct(&self) -> Result<bool, Error> {
        let mut probe = self.clone();
        let options = self.config.get_options().unwrap_or_default();
        probe.config.options(format!("{options} -c windlass.asked=yes"));
        let client = match probe.client().await {
            Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => return Ok(false),
            connected => connected?,
        };
        let text = "SELECT current_setting('windlass.asked', true) IS NOT DISTINCT FROM 'yes'";
        client.query_typed_one(text, &[]).await?.try_get(0)
    }
}
