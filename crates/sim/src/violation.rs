use std::fmt;

use crate::script::Script;

/// The rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The log has a transition that the rules do not allow.
    IllegalMove,
    /// A task was leased, or a lease counted, although its lane forbids it.
    LaneIgnored,
    /// More attempts than a task may have, or a wrong count.
    Attempts,
    /// A failure with the wrong retry, or with none.
    Retry,
    /// An attempt that ended too early or too late for its timeout.
    Timeout,
    /// A lease that is shorter or longer than requested.
    LeaseLength,
    /// A write was accepted under an expired lease.
    LateAccepted,
    /// A task was leased to a claim that does not match it.
    StrangeClaim,
    /// A task was leased before one that precedes it.
    Order,
    /// A task was deleted before its retention ended.
    DeletedEarly,
    /// A sequence number of the log that does not follow the one before it.
    LogGap,
    /// A record differs from the state that the log gives.
    RecordDiffers,
    /// An ended task changed.
    EndedChanged,
    /// An answered effect is not in the store.
    EffectMissing,
    /// A write under a stale fence was accepted.
    StaleAccepted,
    /// Two different settles of one lease were accepted.
    SettledTwice,
    /// A repeated settle got a different answer.
    OtherAnswer,
    /// A repeated settle was rejected although it had taken effect.
    RepeatRejected,
    /// A rejection for a reason that never held.
    UnjustRejection,
    /// More than one task under an idempotency key, or a wrong answer about it.
    Key,
    /// One lease was given to two callers, or ran two handlers.
    LeasedTwice,
    /// A task with another input than it was created with.
    StrangeInput,
    /// A result that no holder gave.
    StrangeResult,
    /// An accepted message is missing, or a task waits for a message that exists.
    MessageLost,
    /// A message differs from the one sent, or meets a condition that it must not.
    Message,
    /// A waitpoint accepted a signal that it must not, or rejected one that it must accept.
    Waitpoint,
    /// More leases or starts than a limit or quota allows, a session with two owners, or a task
    /// that is blocked by a limit with capacity.
    ConcurrencyLimit,
    /// A worker lost its leases despite timely heartbeats, or kept them without heartbeats.
    Worker,
    /// A key with two owners, a response that is not the first, or one that was given too late.
    Request,
    /// An external call without a claim, or one repeated by a caller that could know of it.
    Effect,
    /// More than a rate limiter allows, or a charge that counts twice or not at all.
    Limiter,
    /// A history row that is not the next one, was written without a lease, or is missing.
    History,
    /// A step that completed twice or never, or a message that was consumed but not delivered.
    Step,
    /// A workflow with another outcome than its code gives, or with records left behind.
    Workflow,
    /// A wrong count of children, or a parent that waits without open children or does not wait.
    Family,
    /// A ready task that no claim would find.
    Unlisted,
    /// A log reader saw something else than the log.
    Reader,
    /// Something that does not end.
    Stuck,
    /// An engine that does not answer, or reports a bug.
    Engine,
}

/// A broken rule, as the model finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) kind: Kind,
    pub(crate) what: String,
}

pub(crate) fn breach<T>(kind: Kind, what: impl Into<String>) -> Result<T, Breach> {
    Err(Breach { kind, what: what.into() })
}

/// A broken rule, and the script that breaks it. Its text ends with a line that reproduces it.
#[derive(Clone, Debug)]
pub struct Violation {
    pub seed: u64,
    pub kind: Kind,
    pub what: String,
    /// The script, shrunk if requested.
    pub script: Script,
    /// The number of steps in the seed's own script.
    pub steps: usize,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, kind, what, script, steps } = self;
        let left = script.steps.len();
        writeln!(f, "{kind:?}: {what}")?;
        writeln!(f, "seed {seed}, {left} of {steps} steps:")?;
        write!(f, "{script}")?;
        write!(f, "reproduce: WINDLASS_SEED={seed} cargo nextest run -p windlass-sim")
    }
}
