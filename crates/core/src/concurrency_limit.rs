use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::name::{LaneName, Tenant, WorkerId};
use crate::rate::{self, Rate, WindowSlice};
use crate::record::{Record, StoredRecord};
use crate::rejection::Rejection;
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// The limit that a task must pass before it may run: a concurrency key, a session or an affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKey {
    /// Tasks of one concurrency key run one at a time, or within its configured limits.
    Concurrency(String),
    /// Tasks of one session run on the worker that owns it.
    Session(String),
    /// Tasks of one affinity are leased to the worker that holds its lock, any number at once. The
    /// lock expires unless it is renewed, even while tasks run.
    Affinity(String),
}

/// The scope of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    Concurrency,
    Session,
    Affinity,
    /// All tasks of a lane; checked by each claim.
    Lane,
    /// All tasks of a tenant; checked by each claim.
    Tenant,
}

/// A concurrency limit and rate limit, with its counters.
///
/// Blocked tasks wait in a list of the limit. Only as many as may run are admitted to the queue of
/// their lane, so that a million blocked tasks do not slow down claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcurrencyLimit {
    pub tenant: Tenant,
    pub kind: LimitKind,
    pub name: String,
    /// The maximum number of running tasks; none for unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// An operator configured it: it is retained while unused.
    #[serde(default)]
    pub configured: bool,
    /// Blocked tasks.
    #[serde(default)]
    pub blocked: u64,
    /// Tasks in the queue of their lane that are not claimed yet.
    #[serde(default)]
    pub admitted: u32,
    #[serde(default)]
    pub running: u32,
    /// Starts that count against the rate limit, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<WindowSlice>,
    /// The owner of the session or affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Lanes in which a claim was rejected by this quota: they are woken when it has free slots. An
    /// empty name means all lanes, when they are too many.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub starved_lanes: BTreeSet<LaneName>,
    /// When the sweep must check it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

/// The worker that owns a session or holds an affinity lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub worker: WorkerId,
    /// The ownership expires then. A session does not expire while one of its tasks runs.
    pub expires_at: Timestamp,
    /// How long a session stays with the worker after its last task. Zero once it was revoked: then
    /// the owner may start nothing more.
    pub idle_ms: u64,
    /// When the holder of an affinity last claimed, renewed or settled one of its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_at: Option<Timestamp>,
}

impl LimitKey {
    pub const fn kind(&self) -> LimitKind {
        match self {
            LimitKey::Concurrency(_) => LimitKind::Concurrency,
            LimitKey::Session(_) => LimitKind::Session,
            LimitKey::Affinity(_) => LimitKind::Affinity,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            LimitKey::Concurrency(name) | LimitKey::Session(name) | LimitKey::Affinity(name) => {
                name
            }
        }
    }

    pub(crate) fn row_key(&self, tenant: &Tenant) -> RowKey {
        ConcurrencyLimit::key_of(tenant, self.kind(), self.name())
    }

    pub(crate) fn check(&self) -> Result<(), Rejection> {
        match self {
            LimitKey::Concurrency(name) => limits::CONCURRENCY_KEY.check(name),
            LimitKey::Session(name) | LimitKey::Affinity(name) => limits::SESSION.check(name),
        }
    }
}

impl LimitKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            LimitKind::Concurrency => "concurrency",
            LimitKind::Session => "session",
            LimitKind::Affinity => "affinity",
            LimitKind::Lane => "lane",
            LimitKind::Tenant => "tenant",
        }
    }

    const fn default_limit(self) -> Option<u32> {
        match self {
            LimitKind::Concurrency | LimitKind::Session => Some(1),
            LimitKind::Affinity | LimitKind::Lane | LimitKind::Tenant => None,
        }
    }

    /// Whether its tasks are granted to the worker that owns it.
    pub(crate) const fn is_owned(self) -> bool {
        matches!(self, LimitKind::Session | LimitKind::Affinity)
    }
}

/// How long an affinity is retained after its lock expired, unless it is deleted before.
const AFFINITY_RETENTION_MS: u64 = 3_600_000;

/// The maximum number of admitted tasks of a session: all are reassigned together when its owner
/// changes.
const MAX_SESSION_ADMITTED: u32 = 100;

impl ConcurrencyLimit {
    /// A limit with defaults: one at a time for a concurrency key or a session, else unlimited.
    pub(crate) fn new(tenant: &Tenant, kind: LimitKind, name: &str) -> Self {
        Self {
            tenant: tenant.clone(),
            kind,
            name: name.to_owned(),
            limit: kind.default_limit(),
            rate: None,
            configured: false,
            blocked: 0,
            admitted: 0,
            running: 0,
            starts: Vec::new(),
            owner: None,
            starved_lanes: BTreeSet::new(),
            due_at: None,
        }
    }

    pub fn key_of(tenant: &Tenant, kind: LimitKind, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), kind.as_str().into(), name.into()])
    }

    /// The sessions of a worker.
    pub(crate) fn owned_by(tenant: &Tenant, worker: &WorkerId) -> Range {
        let prefix = vec![tenant.into(), worker.into()];
        Range { index: Index::ConcurrencyLimitOwned, prefix, until: None }
    }

    /// The key by which tasks name it; none for a quota.
    pub fn limit_key(&self) -> Option<LimitKey> {
        match self.kind {
            LimitKind::Concurrency => Some(LimitKey::Concurrency(self.name.clone())),
            LimitKind::Session => Some(LimitKey::Session(self.name.clone())),
            LimitKind::Affinity => Some(LimitKey::Affinity(self.name.clone())),
            LimitKind::Lane | LimitKind::Tenant => None,
        }
    }

    /// The number of starts that count against the rate limit.
    pub fn started(&self, now: Timestamp) -> u32 {
        rate::counted(&self.starts, now)
    }

    /// How many more tasks may be admitted or, for a quota, claimed.
    pub(crate) fn available(&self, now: Timestamp) -> u32 {
        self.available_slots().min(self.starts_left(now))
    }

    /// Whether the session was revoked: its owner starts no more tasks and loses it once idle.
    fn is_revoked(&self) -> bool {
        let runs = self.running > 0 && self.kind != LimitKind::Affinity;
        runs && self.owner.as_ref().is_some_and(|owner| owner.idle_ms == 0)
    }

    fn available_slots(&self) -> u32 {
        if self.is_revoked() {
            return 0;
        }
        let taken = self.running.saturating_add(self.admitted);
        let slots = self.limit.map_or(u32::MAX, |limit| limit.saturating_sub(taken));
        match self.kind {
            LimitKind::Session | LimitKind::Affinity => {
                slots.min(MAX_SESSION_ADMITTED.saturating_sub(self.admitted))
            }
            LimitKind::Concurrency | LimitKind::Lane | LimitKind::Tenant => slots,
        }
    }

    fn starts_left(&self, now: Timestamp) -> u32 {
        let Some(rate) = self.rate else { return u32::MAX };
        rate.limit.saturating_sub(self.started(now).saturating_add(self.admitted))
    }

    /// Whether `count` admitted tasks may start. They may, unless the limits were lowered after
    /// their admission.
    pub(crate) fn may_start(&self, count: u32, now: Timestamp) -> bool {
        let running = self.running.saturating_add(count);
        let started = self.started(now).saturating_add(count);
        !self.is_revoked()
            && self.limit.is_none_or(|limit| running <= limit)
            && self.rate.is_none_or(|rate| started <= rate.limit)
    }

    /// Whether more tasks are admitted than may run.
    pub(crate) fn is_over_limit(&self, now: Timestamp) -> bool {
        let taken = self.running.saturating_add(self.admitted);
        let started = self.started(now).saturating_add(self.admitted);
        self.admitted > 0
            && (self.is_revoked()
                || self.limit.is_some_and(|limit| taken > limit)
                || self.rate.is_some_and(|rate| started > rate.limit))
    }

    /// Counts starts against the rate.
    pub(crate) fn charge(&mut self, count: u32, now: Timestamp) {
        rate::charge(&mut self.starts, self.rate, count, now);
    }

    /// Sets or removes the limits. If a rate limit replaces another one, its counted starts stay
    /// counted for the new window.
    pub(crate) fn set(&mut self, limit: Option<u32>, rate: Option<Rate>) {
        self.configured = limit.is_some() || rate.is_some();
        self.limit = if self.configured { limit } else { self.kind.default_limit() };
        match (self.rate, rate) {
            (Some(was), Some(is)) => {
                for starts in &mut self.starts {
                    starts.until = starts.until.minus_ms(was.window_ms).plus_ms(is.window_ms);
                }
            }
            _ => self.starts.clear(),
        }
        self.rate = rate;
    }

    /// The present owner. The ownership of an idle session or an unrenewed affinity expires.
    pub fn owner(&self, now: Timestamp) -> Option<&Owner> {
        let runs = self.running > 0 && self.kind != LimitKind::Affinity;
        self.owner.as_ref().filter(|owner| runs || now < owner.expires_at)
    }

    /// Records activity of the holder of an affinity lock. An expired lock has no activity.
    pub(crate) fn mark_active(&mut self, now: Timestamp) {
        let alive = self.kind == LimitKind::Affinity && self.owner(now).is_some();
        if let Some(owner) = self.owner.as_mut().filter(|_| alive) {
            owner.active_at = Some(now);
        }
    }

    /// Whether it has no blocked, admitted or running tasks.
    pub fn is_empty(&self) -> bool {
        self.blocked == 0 && self.admitted == 0 && self.running == 0
    }

    /// When the rate limit allows the next start, if it is what blocks.
    pub fn retry_at(&self, now: Timestamp) -> Option<Timestamp> {
        let rate =
            self.rate.filter(|_| self.available_slots() > 0 && self.starts_left(now) == 0)?;
        rate::retry_at(&self.starts, rate, self.admitted, now)
    }

    /// The earliest time at which the sweep must check it.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = match self.kind {
            LimitKind::Concurrency | LimitKind::Session | LimitKind::Affinity => self.blocked > 0,
            LimitKind::Lane | LimitKind::Tenant => !self.starved_lanes.is_empty(),
        };
        let retry_at = match waits {
            true if self.available(now) > 0 => Some(now),
            true => self.retry_at(now),
            false => None,
        };
        let narrowed = self.is_over_limit(now).then_some(now);
        retry_at.into_iter().chain(narrowed).chain(self.ownership_ends_at()).min()
    }

    /// When the ownership ends, and granted tasks become claimable by any worker. An affinity
    /// without admitted tasks is retained for a while after its lock expired.
    fn ownership_ends_at(&self) -> Option<Timestamp> {
        let owner = self.owner.as_ref()?;
        match self.kind {
            LimitKind::Affinity if self.admitted == 0 => {
                Some(owner.expires_at.plus_ms(AFFINITY_RETENTION_MS))
            }
            LimitKind::Affinity => Some(owner.expires_at),
            _ => (self.running == 0).then_some(owner.expires_at),
        }
    }

    pub(crate) fn has_ownership_ended(&self, now: Timestamp) -> bool {
        self.ownership_ends_at().is_some_and(|ownership_ends_at| ownership_ends_at <= now)
    }

    /// Whether it is not configured and has neither tasks nor an owner.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_empty() && !self.configured && self.owner.is_none()
    }
}

impl Record for ConcurrencyLimit {
    const SPEC: TableSpec = TableSpec {
        name: "concurrency_limit",
        key: &["tenant", "kind", "name"],
        columns: &["blocked", "running", "owner", "contended", "due_at"],
        numbers: &["blocked", "running", "contended", "due_at"],
        indexes: &[
            IndexSpec {
                index: Index::ConcurrencyLimitDue,
                columns: &["due_at", "tenant", "kind", "name"],
                indexed_when: "due_at",
            },
            IndexSpec {
                index: Index::ConcurrencyLimitOwned,
                columns: &["tenant", "owner", "kind", "name"],
                indexed_when: "owner",
            },
        ],
        list_indexes: &[],
        contended: Some("contended"),
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), self.kind.as_str().into(), self.name.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        let blocked = i64::try_from(self.blocked).unwrap_or(i64::MAX);
        let owner = self.owner.as_ref().map(|owner| owner.worker.as_str());
        let running = i64::from(self.running).into();
        vec![blocked.into(), running, owner.into(), 1.into(), self.due_at.into()]
    }
}
