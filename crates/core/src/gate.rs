use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::name::{LaneName, Tenant, WorkerId};
use crate::record::{Filed, Record};
use crate::row::{Index, IndexSpec, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// What a task must pass before it may run: one key of its choice, or a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateKey {
    /// Tasks of one key run one at a time, or as its limits say.
    Key(String),
    /// Tasks of one session run at the worker that owns it.
    Session(String),
}

/// What a gate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    Key,
    Session,
    /// All tasks of a lane, asked when they are claimed.
    Lane,
    /// All tasks of a tenant, asked when they are claimed.
    Tenant,
}

/// A limit that admits so many at once, or so many per time.
///
/// A task that is behind it waits in the gate's own line. Only as many as may run stand in the
/// queue of their lane, so that a million behind a full gate cost a claim nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    pub tenant: Tenant,
    pub kind: GateKind,
    pub name: String,
    /// How many may run at once; none for any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// An operator set its limits: it stays when nobody needs it.
    #[serde(default)]
    pub configured: bool,
    /// Behind it.
    #[serde(default)]
    pub waiting: u64,
    /// Let into the queue and not claimed yet.
    #[serde(default)]
    pub admitted: u32,
    #[serde(default)]
    pub running: u32,
    /// When those that count against the rate were started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Starts>,
    /// Whose session it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Lanes in which a claim found it shut: they are woken when it opens.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub refused: BTreeSet<LaneName>,
    /// When it needs the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

/// At most so many starts within any window of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub starts: u32,
    pub window_ms: u64,
}

/// Starts within one slice of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    /// They count until then.
    pub until: Timestamp,
    pub count: u32,
}

/// The worker that owns a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub worker: WorkerId,
    /// Unless something of the session runs, it is free again then.
    pub until: Timestamp,
}

impl GateKey {
    pub const fn kind(&self) -> GateKind {
        match self {
            GateKey::Key(_) => GateKind::Key,
            GateKey::Session(_) => GateKind::Session,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            GateKey::Key(name) | GateKey::Session(name) => name,
        }
    }

    /// The name of the line behind it.
    pub(crate) fn line(&self) -> String {
        format!("{}/{}", self.kind().as_str(), self.name())
    }
}

impl GateKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            GateKind::Key => "key",
            GateKind::Session => "session",
            GateKind::Lane => "lane",
            GateKind::Tenant => "tenant",
        }
    }
}

impl Gate {
    pub fn key_of(tenant: &Tenant, kind: GateKind, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), kind.as_str().into(), name.into()])
    }
}

impl Record for Gate {
    const SPEC: TableSpec = TableSpec {
        name: "gate",
        key: &["tenant", "kind", "name"],
        columns: &["waiting", "running", "contended", "due_at"],
        numbers: &["waiting", "running", "contended", "due_at"],
        indexes: &[IndexSpec {
            index: Index::GateDue,
            columns: &["due_at", "tenant", "kind", "name"],
            present: "due_at",
        }],
        listed_by: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), self.kind.as_str().into(), self.name.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        let waiting = i64::try_from(self.waiting).unwrap_or(i64::MAX);
        vec![waiting.into(), i64::from(self.running).into(), 1.into(), self.due_at.into()]
    }
}
