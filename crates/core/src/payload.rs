use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::Digester;
use crate::limits;
use crate::name::{TaskId, Tenant};
use crate::rejection::Rejection;

/// Opaque bytes with a content type.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    pub content_type: String,
    pub bytes: Arc<[u8]>,
}

impl Payload {
    pub fn new(content_type: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        Self { content_type: content_type.into(), bytes: bytes.into() }
    }

    pub fn json(text: impl AsRef<str>) -> Self {
        Self::new("application/json", text.as_ref().as_bytes())
    }

    /// Checks it against the limits.
    pub fn check(&self) -> Result<(), Rejection> {
        limits::CONTENT_TYPE.check(&self.content_type)?;
        limits::PAYLOAD_BYTES.check(self.bytes.len())
    }

    pub(crate) fn digest(payload: Option<&Payload>, digester: Digester) -> Digester {
        match payload {
            None => digester.number(0),
            Some(p) => digester.number(1).part(p.content_type.as_bytes()).part(&p.bytes),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({}, {} bytes)", self.content_type, self.bytes.len())
    }
}

/// The key of a payload, which is written once and never changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadKey {
    pub tenant: Tenant,
    pub task: TaskId,
    pub execution: u32,
    pub slot: Slot,
}

/// The role of a payload of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(Cow<'static, str>);

impl Slot {
    /// The input of the task.
    pub const INPUT: Slot = Slot(Cow::Borrowed("input"));
    /// The result of the task.
    pub const RESULT: Slot = Slot(Cow::Borrowed("result"));

    /// The response of a request.
    pub(crate) const RESPONSE: Slot = Slot(Cow::Borrowed("response"));

    /// The result of an effect.
    pub(crate) const EFFECT: Slot = Slot(Cow::Borrowed("effect"));

    /// The messages carried over to an execution of a workflow.
    pub(crate) const CARRIED: Slot = Slot(Cow::Borrowed("carried"));

    /// A row of the history of a workflow.
    pub(crate) fn turn(turn: u32) -> Self {
        Self(Cow::Owned(format!("turn/{turn:010}")))
    }

    /// The payload of a message to the task.
    pub(crate) fn message(seq: u64) -> Self {
        Self(Cow::Owned(format!("message/{seq}")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}
