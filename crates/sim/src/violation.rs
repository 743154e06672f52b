use std::fmt;

use crate::script::Script;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The log tells of a move that the rules do not know.
    IllegalMove,
    /// A task was handed out, or a lease counted, where its lane forbids it.
    LaneIgnored,
    /// More attempts than a task may have, or one counted wrong.
    Attempts,
    /// A failure that led to another try than it should, or to none.
    Retry,
    /// An attempt that ended too early or too late for its time limit.
    Timeout,
    /// A lease that is shorter or longer than it was asked for.
    LeaseLength,
    /// A write under a lease that had run out.
    LateAccepted,
    /// A task was handed to a claim that did not ask for such a one.
    StrangeClaim,
    /// A task was handed out before another one that stood before it.
    Order,
    /// A task was gone before its time.
    Reaped,
    /// A number of the log that does not follow the one before it.
    LogGap,
    /// A record is not what the log leads to.
    RecordDiffers,
    /// An ended task changed.
    EndedChanged,
    /// Something was answered that is not in the store.
    EffectMissing,
    /// A write under an old fence was accepted.
    StaleAccepted,
    /// Two different settles of one lease were accepted.
    SettledTwice,
    /// The same settle was answered differently.
    OtherAnswer,
    /// The same settle was refused where it had taken effect.
    RepeatRefused,
    /// A refusal for a reason that was never there.
    UnjustRefusal,
    /// More than one task under a key, or a wrong answer about it.
    Key,
    /// One lease was handed to two callers, or ran two handlers.
    HandedTwice,
    /// A task with another input than it was created with.
    StrangeInput,
    /// A result that nobody gave.
    StrangeResult,
    /// A message that was accepted and is gone, or that a task waits for although it is there.
    MessageLost,
    /// A message that is not what was sent, or that counts where it must not.
    Message,
    /// A waitpoint that let something through which it must not, or nothing where it must.
    Waitpoint,
    /// More at once, or in a time, than a gate or a quota lets through, or a session of two owners,
    /// or somebody who waits behind an open gate.
    Gate,
    /// A worker that loses what it holds although it was heard of, or keeps it although it was not.
    Worker,
    /// A key that was taken twice, an answer that is not the first, or one that came too late.
    Request,
    /// A call that was not known before it was made, or was made again where that was known.
    Effect,
    /// More than a limiter allows, or a charge that counts twice or not at all.
    Limiter,
    /// A row of history that is not the next one, that nobody could write, or that is gone.
    History,
    /// A step whose end was told twice, or never, or a message that was taken and not told.
    Step,
    /// A workflow that came to something else than its code does, or left something behind.
    Workflow,
    /// A child that is counted wrong, or a parent that waits for nobody or does not wait.
    Family,
    /// A waiting task that no claim would find.
    Unlisted,
    /// A reader of the log was shown something else than the log.
    Reader,
    /// Something that does not come to an end.
    Stuck,
    /// An engine that does not answer, or says that it has a bug.
    Engine,
}

/// A rule that was broken, as the model finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) kind: Kind,
    pub(crate) what: String,
}

pub(crate) fn breach<T>(kind: Kind, what: impl Into<String>) -> Result<T, Breach> {
    Err(Breach { kind, what: what.into() })
}

/// A rule that was broken, and the script that breaks it. Its text ends with one line that shows
/// the same again.
#[derive(Clone, Debug)]
pub struct Violation {
    pub seed: u64,
    pub kind: Kind,
    pub what: String,
    /// The script, shortened if that was asked for.
    pub script: Script,
    /// How many steps the seed's own script has.
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
