/// Where everything of the other runtime is.
pub(crate) const TENANT: &str = "foreign";
/// Where its workflows are, and the work that they make.
pub(super) const TURNS: &str = "turns";
pub(super) const WORKS: &str = "works";
pub(super) const FLOWS: [&str; 3] = ["f0", "f1", "f2"];
/// Who does the work, and what some of it is bound to.
pub(super) const HANDS: [&str; 3] = ["hand-0", "hand-1", "hand-2"];
pub(super) const LOCKS: [&str; 2] = ["l0", "l1"];
/// Who sends.
pub(crate) const SENDER: &str = "sender";
/// For how long a message is kept for a workflow that is not there.
pub(super) const KEEP_MS: u64 = 20_000;

/// What a client wishes for. Leases are counted from the last one backwards, everything else modulo
/// what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignWish {
    /// To a workflow that is made for it, that it waits for, or that must be there.
    Send {
        to: u8,
        absent: u8,
        after_ms: u64,
    },
    /// Takes turns, with what is there for them.
    Receive {
        limit: u32,
        lease_ms: u64,
    },
    /// Makes the turn of a lease: takes all that it has in hand or only the first, makes so much
    /// work, sends to another, and may begin another execution.
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
    /// Gives a turn back as if it had not been taken.
    Release {
        lease: u8,
    },
    /// Takes work as one of a few workers, which has the lock of what it takes for so long.
    Work {
        hand: u8,
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
        hand: u8,
        lock_ms: u64,
        idle_ms: u64,
    },
    /// Has a lock forgotten, if its time is over.
    ForgetLock {
        lock: u8,
    },
}
