use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::Digester;
use crate::limits;
use crate::name::{TaskId, Tenant};
use crate::rejection::Rejection;

/// Bytes that only travel: no rule reads them.
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

    /// Whether it is within its limits.
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

/// Names a payload. It is written once and never changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadKey {
    pub tenant: Tenant,
    pub task: TaskId,
    pub generation: u32,
    pub slot: Slot,
}

/// Which of a task's payloads it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(Cow<'static, str>);

impl Slot {
    /// What the task was created with.
    pub const INPUT: Slot = Slot(Cow::Borrowed("input"));
    /// What came of it.
    pub const RESULT: Slot = Slot(Cow::Borrowed("result"));

    /// What a request was answered with.
    pub(crate) const ANSWER: Slot = Slot(Cow::Borrowed("answer"));

    /// What a call to somebody else was answered with.
    pub(crate) const EFFECT: Slot = Slot(Cow::Borrowed("effect"));

    /// What came along to an execution of a workflow from the one before.
    pub(crate) const CARRIED: Slot = Slot(Cow::Borrowed("carried"));

    /// A row of the history of a workflow.
    pub(crate) fn turn(turn: u32) -> Self {
        Self(Cow::Owned(format!("turn/{turn:010}")))
    }

    /// What a message to it carries.
    pub(crate) fn message(seq: u64) -> Self {
        Self(Cow::Owned(format!("message/{seq}")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}
