use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::Tenant;
use crate::record::{Filed, Record};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// The record that a key was accepted: what was asked, and what it came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub tenant: Tenant,
    pub scope: String,
    pub key: String,
    pub fingerprint: Digest,
    /// What the first request under this key made: the id of a task, the number of a message.
    pub first: String,
    pub expires_at: Timestamp,
}

impl Admission {
    pub fn key_of(tenant: &Tenant, scope: &str, key: &str) -> RowKey {
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
            present: "due_at",
        }],
        listed_by: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), self.scope.as_str().into(), self.key.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.expires_at.into()]
    }
}
