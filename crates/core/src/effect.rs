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
    pub parent: String,
    /// The external service.
    pub provider: String,
    /// Distinguishes the effects of one parent.
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

    /// The parent key of its effects. A request is identified by a digest: its key is a secret.
    pub fn parent(&self) -> String {
        match self {
            EffectOwner::Task(fence) => Effect::parent_of(&fence.task),
            EffectOwner::Request { request, .. } => format!("request/{}", request.digest()),
        }
    }
}

impl Effect {
    pub(crate) fn parent_of(task: &TaskKey) -> String {
        format!("task/{}", task.id)
    }

    pub fn key_of(tenant: &Tenant, parent: &str, provider: &str, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), parent.into(), provider.into(), name.into()])
    }

    pub(crate) fn of_task(task: &TaskKey) -> Range {
        let prefix = vec![(&task.tenant).into(), Self::parent_of(task).as_str().into()];
        Range { index: Index::EffectOfParent, prefix, until: None }
    }

    /// The key of its result, if any.
    pub(crate) fn result_key(&self) -> Option<PayloadKey> {
        self.result.map(|_| self.payload_key())
    }

    pub(crate) fn payload_key(&self) -> PayloadKey {
        let digester = Digester::new("effect").part(self.parent.as_bytes());
        let digester = digester.part(self.provider.as_bytes()).part(self.name.as_bytes());
        PayloadKey {
            tenant: self.tenant.clone(),
            task: TaskId::from(digester.finish().to_string()),
            generation: 0,
            slot: Slot::EFFECT,
        }
    }
}

impl Record for Effect {
    const SPEC: TableSpec = TableSpec {
        name: "effect",
        key: &["tenant", "parent", "provider", "name"],
        columns: &["due_at"],
        numbers: &["due_at"],
        indexes: &[
            IndexSpec {
                index: Index::EffectOfParent,
                columns: &["tenant", "parent", "provider", "name"],
                indexed_when: "parent",
            },
            IndexSpec {
                index: Index::EffectDue,
                columns: &["due_at", "tenant", "parent", "provider", "name"],
                indexed_when: "due_at",
            },
        ],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        let texts = [&self.parent, &self.provider, &self.name];
        let texts = texts.into_iter().map(|text| text.as_str().into());
        std::iter::once((&self.tenant).into()).chain(texts).collect()
    }

    fn columns(&self) -> Vec<Value> {
        vec![self.due_at.into()]
    }
}
