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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    Input,
    Result,
}

impl Slot {
    pub const fn as_str(self) -> &'static str {
        match self {
            Slot::Input => "input",
            Slot::Result => "result",
        }
    }
}
