use std::time::Duration;

use windlass_core::command::RotateSigningKey;
use windlass_core::{
    Command, Digest, Keyring, Outcome, Rejection, Secret, SigningKey, Tenant, Timestamp,
};
use windlass_store::StoreError;

use crate::engine::Engine;
use crate::error::Error;

/// Length of a secret: the output length of HMAC-SHA-256.
const SECRET_BYTES: usize = 32;
const ID_BYTES: usize = 4;

/// A token signing key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKeyInfo {
    pub id: String,
    /// Identifies the secret without revealing it.
    pub fingerprint: Digest,
    pub added_at: Timestamp,
    /// When tokens signed with it become invalid; none for the current signing key.
    pub expires_at: Option<Timestamp>,
}

impl From<&SigningKey> for SigningKeyInfo {
    fn from(key: &SigningKey) -> Self {
        let (id, fingerprint) = (key.id.clone(), key.fingerprint());
        Self { id, fingerprint, added_at: key.added_at, expires_at: key.expires_at }
    }
}

impl Engine {
    /// The signing keys of a tenant; the last one is current.
    pub async fn signing_keys(&self, tenant: &Tenant) -> Result<Vec<SigningKeyInfo>, Error> {
        let ring = self.one::<Keyring>(Keyring::key_of(tenant)).await?;
        Ok(ring.map_or(Vec::new(), |ring| ring.keys.iter().map(SigningKeyInfo::from).collect()))
    }

    /// Signs with a generated key from this commit on. Tokens of the previous key stay valid for
    /// the grace period. Returns the id of the generated key.
    pub async fn rotate_signing_key(
        &self,
        tenant: &Tenant,
        grace: Duration,
    ) -> Result<String, Error> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let rotation = RotateSigningKey { grace_ms, ..fresh(tenant)? };
        let id = rotation.id.clone();
        self.submit(rotation).await?;
        Ok(id)
    }

    /// Creates a signing key for a tenant that has none.
    pub(crate) async fn ensure_key(&self, tenant: &Tenant) -> Result<(), Error> {
        if self.one::<Keyring>(Keyring::key_of(tenant)).await?.is_none() {
            self.submit(RotateSigningKey { if_absent: true, ..fresh(tenant)? }).await?;
        }
        Ok(())
    }

    /// Decides a command that signs tokens. Creates the tenant's first key if needed; concurrent
    /// callers end up with the same key.
    pub(crate) async fn submit_signed(
        &self,
        tenant: &Tenant,
        command: impl Into<Command>,
    ) -> Result<Outcome, Error> {
        let command = command.into();
        match self.submit(command.clone()).await {
            Err(Error::Rejected(Rejection::NoSigningKey)) => {}
            other => return other,
        }
        self.submit(RotateSigningKey { if_absent: true, ..fresh(tenant)? }).await?;
        self.submit(command).await
    }
}

fn fresh(tenant: &Tenant) -> Result<RotateSigningKey, Error> {
    let mut random = [0; ID_BYTES + SECRET_BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| Error::from(StoreError::Unavailable(error.into())))?;
    let (id, secret) = random.split_at(ID_BYTES);
    Ok(RotateSigningKey {
        tenant: tenant.clone(),
        id: hex(id),
        secret: Secret::new(hex(secret)),
        grace_ms: 0,
        if_absent: false,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
