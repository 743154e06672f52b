/// The tenant of the external runtime.
pub(crate) const TENANT: &str = "external";
/// The lanes of its workflows and of their activities.
pub(super) const TURNS: &str = "turns";
pub(super) const WORKS: &str = "works";
pub(super) const FLOWS: [&str; 3] = ["f0", "f1", "f2"];
/// The workers for activities, and the affinities of some activities.
pub(super) const ACTIVITY_WORKERS: [&str; 3] = ["hand-0", "hand-1", "hand-2"];
pub(super) const LOCKS: [&str; 2] = ["l0", "l1"];
/// The source of messages.
pub(crate) const SENDER: &str = "sender";
/// How long a message is buffered for a workflow that does not exist.
pub(super) const KEEP_MS: u64 = 20_000;

/// An operation of a client. Leases are counted backwards from the last one, everything else
/// modulo the number of choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalOperation {
    /// To a workflow that the message creates, that it is buffered for, or that must exist.
    Send {
        to: u8,
        absent: u8,
        after_ms: u64,
    },
    /// Claims turns, with their visible messages.
    Receive {
        limit: u32,
        lease_ms: u64,
    },
    /// Commits the turn of a lease: consumes all messages in flight or only the first, creates
    /// activities, sends a message, and may begin another execution.
    Turn {
        lease: u8,
        whole: bool,
        works: u8,
        to: Option<u8>,
        next: bool,
    },
    Decline {
        lease: u8,
        delay_ms: u64,
        counts: bool,
    },
    /// Returns a turn without counting it.
    Release {
        lease: u8,
    },
    /// Claims activities as one of a few workers, which then holds their affinity locks.
    Work {
        worker: u8,
        limit: u32,
        lease_ms: u64,
        lock_ms: u64,
    },
    Renew {
        lease: u8,
    },
    Complete {
        lease: u8,
    },
    Discard {
        lease: u8,
    },
    RenewLocks {
        worker: u8,
        lock_ms: u64,
        idle_ms: u64,
    },
    /// Deletes a lock, if it has expired.
    ForgetLock {
        lock: u8,
    },
}
