use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Digester};
use crate::effect::EffectOwner;
use crate::limits;
use crate::name::Tenant;
use crate::record::{Record, StoredRecord};
use crate::rejection::{Problem, Rejection};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::time::Timestamp;
use crate::token;

/// The keys for the tokens of a tenant, the newest last. The newest signs; older ones verify their
/// signatures until their grace period ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyring {
    pub tenant: Tenant,
    pub keys: Vec<SigningKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKey {
    pub id: String,
    pub secret: Secret,
    pub added_at: Timestamp,
    /// When it stops verifying; none for the signing key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The secret of a signing key. It is stored, but never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(hex: impl Into<String>) -> Self {
        Self(hex.into())
    }

    /// Whether it is hexadecimal and long enough.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        let Some(bytes) = token::bytes(&self.0) else {
            return Err(Rejection::Invalid { field: "secret", problem: Problem::InvalidHex });
        };
        limits::SECRET_BYTES.check(bytes.len())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        token::bytes(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl SigningKey {
    pub(crate) fn verifies(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }

    /// A digest that identifies its secret without revealing it.
    pub fn fingerprint(&self) -> Digest {
        Digester::new("key").part(&self.secret.bytes()).finish()
    }
}

impl Keyring {
    pub fn key_of(tenant: &Tenant) -> RowKey {
        Self::row_key(vec![tenant.into()])
    }

    /// The signing key.
    pub(crate) fn signer(&self) -> Option<&SigningKey> {
        self.keys.last()
    }

    /// An idempotency key for one call to a provider, unique to its caller.
    pub fn derive(&self, owner: &EffectOwner, provider: &str, name: &str) -> Option<String> {
        let key = owner.key();
        let own = format!("{}/{key}/{name}", key.len());
        self.signer().map(|key| token::derive(key, provider, &own))
    }

    /// The key of this id, while it verifies signatures.
    pub(crate) fn verifying_key(&self, id: &str, now: Timestamp) -> Option<&SigningKey> {
        self.keys.iter().find(|key| key.id == id && key.verifies(now))
    }

    /// When the next key expires.
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        self.keys.iter().filter_map(|key| key.expires_at).min()
    }
}

impl Record for Keyring {
    const SPEC: TableSpec = TableSpec {
        name: "keyring",
        key: &["tenant"],
        columns: &["due_at"],
        numbers: &["due_at"],
        indexes: &[IndexSpec {
            index: Index::KeyringDue,
            columns: &["due_at", "tenant"],
            indexed_when: "due_at",
        }],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.due_at().into()]
    }
}
