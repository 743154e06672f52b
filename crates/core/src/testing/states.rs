/// The states that every table about tasks must have a row for.
pub(crate) const TASK_STATES: &[&str] = &[
    "absent",
    "waiting",
    "delayed",
    "granted",
    "claimed",
    "active",
    "lease_expired",
    "completed",
    "failed",
    "cancelled",
    "expired",
    "waiting_children",
    "blocked",
    "owned",
    "suspended",
    "resumable",
];

/// The states that every table about requests must have a row for.
pub(crate) const REQUEST_STATES: &[&str] =
    &["absent", "in_flight", "overdue", "released", "answered", "stale", "expired", "deleted"];

/// The states that every table about lanes must have a row for.
pub(crate) const LANE_STATES: &[&str] =
    &["absent", "active", "paused", "draining", "disabled", "limited"];

/// The states that every table about nodes must have a row for.
pub(crate) const NODE_STATES: &[&str] = &["absent", "registered", "late", "gone", "left", "lost"];

/// The states that every table about workers must have a row for.
pub(crate) const WORKER_STATES: &[&str] =
    &["absent", "registered", "late", "suspect", "missed", "silent", "dying", "retired", "dead"];
/// The states that every table about concurrency limits must have a row for.
pub(crate) const LIMIT_STATES: &[&str] = &["absent", "full", "wide", "rated"];

/// The states that every table about durable subscriptions must have a row for.
pub(crate) const CURSOR_STATES: &[&str] = &["absent", "there", "another"];
