//! The closed table of limits, the same for all stores and interfaces.

use std::collections::BTreeMap;

use crate::rejection::{Problem, Rejection};

/// A limit for names: not empty, bounded, and without control characters (including NUL, which
/// Postgres cannot store).
#[derive(Clone, Copy, Debug)]
pub struct TextLimit {
    pub field: &'static str,
    pub max_bytes: usize,
}

/// A limit for numbers, both ends included.
#[derive(Clone, Copy, Debug)]
pub struct RangeLimit {
    pub field: &'static str,
    pub min: i64,
    pub max: i64,
}

const fn text(field: &'static str, max_bytes: usize) -> TextLimit {
    TextLimit { field, max_bytes }
}

const fn range(field: &'static str, min: i64, max: i64) -> RangeLimit {
    RangeLimit { field, min, max }
}

const SECOND_MS: i64 = 1_000;
const DAY_MS: i64 = 24 * 3_600 * SECOND_MS;
const YEAR_MS: i64 = 366 * DAY_MS;

pub const TENANT: TextLimit = text("tenant", 128);
pub const TASK_ID: TextLimit = text("id", 255);
/// Shorter than a task id, since the ids of its steps are longer.
pub const WORKFLOW_ID: TextLimit = text("id", 200);
pub const VERSION: TextLimit = text("version", 64);
pub const KIND: TextLimit = text("kind", 255);
pub const LANE: TextLimit = text("lane", 255);
pub const WORKER: TextLimit = text("worker", 255);
pub const NODE_ID: TextLimit = text("id", 255);
pub const NODE_NAME: TextLimit = text("name", 255);
pub const NODE_VERSION: TextLimit = text("version", 255);
pub const TAG: TextLimit = text("tag", 255);
pub const CAPABILITY: TextLimit = text("capability", 255);
pub const CONTENT_TYPE: TextLimit = text("content_type", 255);
pub const IDEMPOTENCY_KEY: TextLimit = text("idempotency_key", 255);
pub const LABEL_NAME: TextLimit = text("label_name", 128);
pub const LABEL_VALUE: TextLimit = text("label_value", 1_024);
pub const REASON: TextLimit = text("reason", 4_096);
pub const PROGRESS: TextLimit = text("message", 1_024);
pub const PARENT: TextLimit = text("parent", 255);
pub const CONCURRENCY_KEY: TextLimit = text("concurrency_key", 255);
pub const SESSION: TextLimit = text("session", 255);
pub const SUBSCRIPTION: TextLimit = text("name", 255);
pub const INCARNATION: TextLimit = text("incarnation", 255);

pub const MESSAGE_NAME: TextLimit = text("name", 255);
pub const MESSAGE_SOURCE: TextLimit = text("source", 255);
pub const WAITPOINT_ID: TextLimit = text("waitpoint", 128);
pub const KEY_ID: TextLimit = text("key_id", 64);
pub const OPERATOR: TextLimit = text("by", 255);

pub const LIMITER: TextLimit = text("limiter", 1_024);
pub const PROVIDER: TextLimit = text("provider", 128);
pub const EFFECT: TextLimit = text("name", 128);
pub const REQUEST_ID: TextLimit = text("request_id", 255);
pub const PRINCIPAL: TextLimit = text("principal", 255);
pub const ACCOUNT: TextLimit = text("account", 255);
pub const OWNER: TextLimit = text("owner", 64);

pub const PROPERTY_NAME: TextLimit = text("name", 255);
pub const PROPERTY_VALUE: TextLimit = text("value", 64 * 1_024);
pub const RUNTIME_METADATA: TextLimit = text("metadata", 16 * 1_024);
pub const STATUS: TextLimit = text("status", 256 * 1_024);

pub const PRIORITY: RangeLimit = range("priority", -1_000_000, 1_000_000);
pub const CAPABILITIES: RangeLimit = range("capabilities", 0, 256);
pub const CAPABILITIES_BYTES: RangeLimit = range("capabilities_bytes", 0, 4_096);
/// Together with the other columns it must fit into a Postgres index row of 2,704 bytes.
pub const ROUTE_BYTES: RangeLimit = range("route_bytes", 0, 1_536);
pub const LABELS: RangeLimit = range("labels", 0, 64);
pub const PAYLOAD_BYTES: RangeLimit = range("payload_bytes", 0, 4 * 1_024 * 1_024);
pub const CREATE_TASKS: RangeLimit = range("tasks", 1, 1_000);
pub const CLAIM_TASKS: RangeLimit = range("limit", 1, 1_000);
pub const CLAIM_LANES: RangeLimit = range("lanes", 1, 256);
pub const RENEW_WORKERS: RangeLimit = range("workers", 1, 256);
pub const LEASE_MS: RangeLimit = range("lease_ms", 100, DAY_MS);
pub const TIMEOUT_MS: RangeLimit = range("attempt_timeout_ms", 1, YEAR_MS);
pub const DELAY_MS: RangeLimit = range("delay_ms", 0, 10 * YEAR_MS);
pub const DEADLINE_MS: RangeLimit = range("deadline_ms", 1, 10 * YEAR_MS);
pub const BACKOFF_MS: RangeLimit = range("backoff_ms", 0, YEAR_MS);
pub const PERCENT: RangeLimit = range("percent", 0, 100);
pub const JITTER: RangeLimit = range("jitter_percent", 0, 100);
pub const ATTEMPTS: RangeLimit = range("max_attempts", 1, 10_000);
pub const LOST_LEASES: RangeLimit = range("max_lost_leases", 0, 10_000);
pub const REPLAYS: RangeLimit = range("max_replays", 0, 10_000);
pub const RETENTION_MS: RangeLimit = range("retention_ms", 0, 10 * YEAR_MS);
pub const WINDOW_MS: RangeLimit = range("window_ms", SECOND_MS, 366 * DAY_MS);
pub const LANE_LIMIT: RangeLimit = range("limit", 1, 1_000_000);
/// The number of leases that a heartbeat can report.
pub const HELD_LEASES: RangeLimit = range("held", 0, 10_000);
pub const HEARTBEAT_MS: RangeLimit = range("heartbeat_interval_ms", 10, DAY_MS);
pub const PAGE: RangeLimit = range("page", 1, 10_000);
pub const QUOTA: RangeLimit = range("limit", 0, 1_000_000);
pub const RATE_LIMIT: RangeLimit = range("rate", 1, 1_000_000);
pub const RATE_WINDOW_MS: RangeLimit = range("window_ms", 100, 31 * DAY_MS);
pub const SESSION_IDLE_MS: RangeLimit = range("session_idle_ms", 10, DAY_MS);
pub const SESSION_LOCK_MS: RangeLimit = range("lock_ms", 10, DAY_MS);
pub const GRANT_MS: RangeLimit = range("ttl_ms", 100, DAY_MS);
pub const SEQ: RangeLimit = range("seq", 0, i64::MAX);
pub const SEND_MESSAGES: RangeLimit = range("messages", 1, 1_000);
pub const MESSAGE_BYTES: RangeLimit = range("payload_bytes", 0, 256 * 1_024);
pub const CONSUME_MESSAGES: RangeLimit = range("seqs", 1, 1_000);
pub const WAITPOINT_MS: RangeLimit = range("ttl_ms", SECOND_MS, YEAR_MS);
pub const SUSPEND_MS: RangeLimit = range("after_ms", 1, 10 * YEAR_MS);
pub const SUSPEND_WAITPOINTS: RangeLimit = range("waitpoints", 0, 64);
pub const CONDITION_DEPTH: RangeLimit = range("condition_depth", 1, 8);
pub const CONDITION_PARTS: RangeLimit = range("condition_parts", 1, 64);
pub const CONDITION_COUNT: RangeLimit = range("n", 1, 1_000);
pub const SECRET_BYTES: RangeLimit = range("secret_bytes", 32, 128);
pub const UNITS: RangeLimit = range("units", 1, 1_000_000);
pub const SPEND_CHARGES: RangeLimit = range("charges", 1, 16);
pub const REPLAY_MS: RangeLimit = range("replay_ms", 3_600 * SECOND_MS, 7 * DAY_MS);
pub const IN_FLIGHT_MS: RangeLimit = range("in_flight_ms", SECOND_MS, 7 * DAY_MS);
pub const TOMBSTONE_MS: RangeLimit = range("tombstone_ms", 0, YEAR_MS);
pub const RETRY_AFTER_MS: RangeLimit = range("retry_after_ms", SECOND_MS, 3_600 * SECOND_MS);
/// The commands of a history row, each property set once and removed once, and the status.
pub const TURN_COMMANDS: RangeLimit = range("commands", 0, 1_400);
/// Larger than a payload: a row includes the payloads of its inputs and commands.
pub const TURN_BYTES: RangeLimit = range("row_bytes", 0, 32 * 1_024 * 1_024);
pub const CLEAR_STICKY: RangeLimit = range("workflows", 0, 1_000);
pub const TURN_MESSAGES: RangeLimit = range("consumed", 0, 1_000);
pub const BUFFER_MS: RangeLimit = range("ttl_ms", SECOND_MS, 31 * DAY_MS);
pub const GRACE_MS: RangeLimit = range("grace_ms", 0, YEAR_MS);

/// The minimum length of a request key, so that keys cannot be guessed.
pub const MIN_REQUEST_KEY_LENGTH: u32 = 16;

/// The maximum number of ready routes per lane, which keeps scans of them small.
pub const ROUTES_PER_LANE: u32 = 256;

/// Limits of a mailbox: the condition of its task is evaluated over all of its messages.
pub const MAILBOX_MESSAGES: u32 = 1_000;
pub const MAILBOX_BYTES: u32 = 16 * 1_024 * 1_024;
/// Limits of the mailbox of a workflow with [`MailboxLimit::Extended`].
///
/// [`MailboxLimit::Extended`]: crate::command::MailboxLimit::Extended
pub const EXTENDED_MAILBOX_MESSAGES: u32 = 100_000;
pub const EXTENDED_MAILBOX_BYTES: u32 = 1_024 * 1_024 * 1_024;
/// Limits for messages buffered for one id, and for all ids of a tenant. They bound the cost of ids
/// that are never started.
pub const BUFFERED_MESSAGES_PER_ID: u32 = 100;
pub const TENANT_BUFFERED_MESSAGES: u32 = 10_000;
pub const TENANT_BUFFERED_BYTES: u32 = 64 * 1_024 * 1_024;
pub const WAITPOINTS_PER_TASK: u32 = 1_000;
pub const KEYS_PER_TENANT: u32 = 16;

pub const DEFAULT_MAX_LOST_LEASES: u32 = 100;
/// For one turn of a workflow.
pub const DEFAULT_TURN_LOST_LEASES: u32 = 10;
pub const DEFAULT_MAX_REPLAYS: u32 = 100;
pub const DEFAULT_RETENTION_MS: u64 = 7 * DAY_MS as u64;
pub const DEFAULT_WINDOW_MS: u64 = DAY_MS as u64;
pub const DEFAULT_SESSION_IDLE_MS: u64 = 60_000;

impl TextLimit {
    pub fn check(&self, text: &str) -> Result<(), Rejection> {
        let problem = if text.is_empty() {
            Problem::Empty
        } else if text.len() > self.max_bytes {
            Problem::TooLong { max_bytes: self.max_bytes }
        } else if text.chars().any(char::is_control) {
            Problem::ControlCharacter
        } else {
            return Ok(());
        };
        Err(Rejection::Invalid { field: self.field, problem })
    }

    /// Checks free text: it may be empty and have several lines, but no NUL.
    pub fn check_prose(&self, text: &str) -> Result<(), Rejection> {
        let problem = if text.len() > self.max_bytes {
            Problem::TooLong { max_bytes: self.max_bytes }
        } else if text.contains('\0') {
            Problem::ControlCharacter
        } else {
            return Ok(());
        };
        Err(Rejection::Invalid { field: self.field, problem })
    }
}

impl RangeLimit {
    pub fn check(&self, number: impl TryInto<i64>) -> Result<(), Rejection> {
        match number.try_into() {
            Ok(number) if (self.min..=self.max).contains(&number) => Ok(()),
            _ => Err(Rejection::Invalid {
                field: self.field,
                problem: Problem::OutOfRange { min: self.min, max: self.max },
            }),
        }
    }
}

pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Rejection> {
    LABELS.check(labels.len())?;
    for (name, value) in labels {
        LABEL_NAME.check(name)?;
        LABEL_VALUE.check_prose(value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let long = "x".repeat(256);
        for (text, expected) in [
            ("a", None),
            ("\u{e9}t\u{e9}", None),
            ("", Some(Problem::Empty)),
            ("a\0b", Some(Problem::ControlCharacter)),
            ("a\nb", Some(Problem::ControlCharacter)),
            (long.as_str(), Some(Problem::TooLong { max_bytes: 255 })),
        ] {
            let found = match LANE.check(text) {
                Ok(()) => None,
                Err(Rejection::Invalid { problem, .. }) => Some(problem),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found, expected, "{text:?}");
        }
        assert!(REASON.check_prose("two\nlines").is_ok());
        assert!(REASON.check_prose("").is_ok());
        assert!(REASON.check_prose("a\0").is_err());
    }

    #[test]
    fn ranges() {
        for (number, ok) in
            [(99, false), (100, true), (DAY_MS, true), (DAY_MS + 1, false), (-1, false)]
        {
            assert_eq!(LEASE_MS.check(number).is_ok(), ok, "{number}");
        }
        assert!(LEASE_MS.check(u64::MAX).is_err());
    }
}
