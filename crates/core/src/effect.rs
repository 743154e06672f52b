use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Digester};
use crate::name::{IdempotencyKey, TaskId, Tenant};
use crate::payload::{PayloadKey, Slot};
use crate::record::{Record, StoredRecord};
use crate::request::RequestKey;
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::task::{Fence, TaskKey};
use crate::time::Timestamp;

/// The record of an external call: its request id and its result. It is written before the call, so
/// that a retry can first look up that id at the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    pub tenant: Tenant,
    /// The task or request that it belongs to.
    pub owner: String,
    /// The external service.
    pub provider: String,
    /// Distinguishes the effects of one owner.
    pub name: String,
    /// The id of the call at the provider.
    pub request_id: IdempotencyKey,
    pub fingerprint: Digest,
    pub claimed_at: Timestamp,
    /// The result of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<EffectResult>,
    /// When it is deleted; none if that is with its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

/// The size and the digest of the result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectResult {
    pub bytes: u64,
    pub digest: Digest,
}

/// The owner of an effect. It must hold the lease of the task, or the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectOwner {
    Task(Fence),
    Request { request: RequestKey, owner: String },
}

impl EffectOwner {
    pub(crate) fn tenant(&self) -> &Tenant {
        match self {
            EffectOwner::Task(fence) => &fence.task.tenant,
            EffectOwner::Request { request, .. } => &request.tenant,
        }
    }

    /// The owner as the key of its effects. A digest identifies a request: its key is a secret.
    pub fn key(&self) -> String {
        match self {
            EffectOwner::Task(fence) => Effect::owner_of(&fence.task),
            EffectOwner::Request { request, .. } => format!("request/{}", request.digest()),
        }
    }
}

impl Effect {
    pub(crate) fn owner_of(task: &TaskKey) -> String {
        format!("task/{}", task.id)
    }

    pub fn key_of(tenant: &Tenant, owner: &str, provider: &str, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), owner.into(), provider.into(), name.into()])
    }

    pub(crate) fn of_task(task: &TaskKey) -> Range {
        let prefix = vec![(&task.tenant).into(), Self::owner_of(task).as_str().into()];
        Range { index: Index::EffectOfOwner, prefix, until: None }
    }

    /// The key of its result, if any.
    pub(crate) fn result_key(&self) -> Option<PayloadKey> {
        self.result.map(|_| self.payload_key())
    }

    pub(crate) fn payload_key(&self) -> PayloadKey {
        let digester = Digester::new("effect").part(self.owner.as_bytes());
        let digester = digester.part(self.provider.as_bytes()).part(self.name.as_bytes());
        PayloadKey {
            tenant: self.tenant.clone(),
            task: TaskId::from(digester.finish().to_string()),
            execution: 0,
            slot: Slot::EFFECT,
        }
    }
}

impl Record for Effect {
    const SPEC: TableSpec = TableSpec {
        name: "effect",
        key: &["tenant", "owner", "provider", "name"],
        columns: &["due_at"],
        numbers: &["due_at"],
        indexes: &[
            IndexSpec {
                index: Index::EffectOfOwner,
                columns: &["tenant", "owner", "provider", "name"],
                indexed_when: "owner",
            },
            IndexSpec {
                index: Index::EffectDue,
                columns: &["due_at", "tenant", "owner", "provider", "name"],
                indexed_when: "due_at",
            },
        ],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        let texts = [&self.owner, &self.provider, &self.name];
        let texts = texts.into_iter().map(|text| text.as_str().into());
        std::iter::once((&self.tenant).into()).chain(texts).collect()
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.due_at.into()]
    }
}
