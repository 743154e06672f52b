use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::{IdempotencyKey, Tenant};
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
    /// What the first request under this key produced: the id of a task, the number of a message or
    /// spent units; or the owner of an idempotent request.
    pub first: String,
    /// The creation time of the task that received the message of this key; none while the message
    /// is buffered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Timestamp>,
    /// When the present state expires.
    pub expires_at: Timestamp,
    /// The state of an idempotent request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
}

impl Admission {
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
