use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::{IdempotencyKey, TaskId, Tenant};
use crate::record::{Record, StoredRecord};
use crate::request::Request;
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// The record of an accepted idempotency key: the request, and what it produced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub tenant: Tenant,
    pub scope: String,
    pub key: IdempotencyKey,
    pub fingerprint: Digest,
    /// What the first command under this key produced.
    pub produced: Produced,
    /// The creation time of the task that received the message of this key; none while the message
    /// is buffered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_created_at: Option<Timestamp>,
    /// When the present state expires.
    pub expires_at: Timestamp,
    /// The state of an idempotent request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
}

/// What the first command under an idempotency key produced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Produced {
    Task(TaskId),
    /// A message, by its sequence number.
    Message(u64),
    /// The owner of an idempotent request.
    Owner(String),
    /// Spent units of a rate limiter.
    Units(u32),
}

impl Admission {
    /// Whether this is an idempotent request of this owner.
    pub fn is_owned_by(&self, owner: &str) -> bool {
        matches!(&self.produced, Produced::Owner(name) if name == owner)
    }

    pub fn key_of(tenant: &Tenant, scope: &str, key: &IdempotencyKey) -> RowKey {
        Self::row_key(vec![tenant.into(), scope.into(), key.into()])
    }
}

impl Record for Admission {
    const SPEC: TableSpec = TableSpec {
        name: "admission",
        key: &["tenant", "scope", "key"],
        columns: &["due_at"],
        numbers: &["due_at"],
        indexes: &[IndexSpec {
            index: Index::AdmissionDue,
            columns: &["due_at", "tenant", "scope", "key"],
            indexed_when: "due_at",
        }],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), self.scope.as_str().into(), (&self.key).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.expires_at.into()]
    }
}
