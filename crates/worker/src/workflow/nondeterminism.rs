use std::fmt;

use windlass_core::RecordedCommand;

/// The code of a workflow does not match its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nondeterminism {
    /// The row of the execution's history, from 0.
    pub turn: u64,
    /// The position among the commands of that row, from 1.
    pub position: usize,
    /// What the history has.
    pub expected: ReplayStep,
    /// What the code did.
    pub found: ReplayStep,
}

/// What the history or the code has at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayStep {
    Command(Box<RecordedCommand>),
    Nothing,
    /// A further turn.
    More,
    /// The code has ended.
    End,
    /// The code failed before this position.
    Failure(String),
}

/// Like [`Nondeterminism`], with the position in the replayed turn, from 0.
#[derive(Debug)]
pub(super) struct Deviation {
    pub(super) position: usize,
    pub(super) expected: ReplayStep,
    pub(super) found: ReplayStep,
}

impl ReplayStep {
    pub(super) fn made(made: &RecordedCommand) -> Self {
        Self::Command(Box::new(made.clone()))
    }

    /// The kind of a command, such as `activity`; none if it is not a command.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            ReplayStep::Command(made) => Some(shape(made).kind),
            _ => None,
        }
    }

    pub fn name(&self) -> Option<&str> {
        match self {
            ReplayStep::Command(made) => shape(made).name,
            _ => None,
        }
    }

    pub fn step(&self) -> Option<u64> {
        match self {
            ReplayStep::Command(made) => shape(made).step,
            _ => None,
        }
    }
}

/// The parts of a command that must match in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommandShape<'m> {
    kind: &'static str,
    name: Option<&'m str>,
    step: Option<u64>,
}

fn shape(made: &RecordedCommand) -> CommandShape<'_> {
    let (kind, name, step) = match made {
        RecordedCommand::Activity { step, name, .. } => ("activity", Some(name), Some(*step)),
        RecordedCommand::LocalActivity { step, name } => {
            ("local activity", Some(name), Some(*step))
        }
        RecordedCommand::Timer { step, .. } => ("timer", None, Some(*step)),
        RecordedCommand::Child { step, name, .. } => ("child", Some(name), Some(*step)),
        RecordedCommand::StartDetached { step, name, .. } => ("start", Some(name), Some(*step)),
        RecordedCommand::WaitSignal { step, name } => ("wait", Some(name), Some(*step)),
        RecordedCommand::Signal { step, name, .. } => ("signal", Some(name), Some(*step)),
        RecordedCommand::Cancel { step } => ("cancel", None, Some(*step)),
        RecordedCommand::Patch { id } => ("patch", Some(id), None),
    };
    CommandShape { kind, name: name.map(String::as_str), step }
}

/// Whether two commands match. Inputs and times may differ: the recorded ones count.
pub(super) fn same(one: &RecordedCommand, other: &RecordedCommand) -> bool {
    shape(one) == shape(other)
}

impl fmt::Display for ReplayStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayStep::Command(made) => {
                let CommandShape { kind, name, step } = shape(made);
                f.write_str(kind)?;
                if let Some(name) = name {
                    write!(f, " `{name}`")?;
                }
                step.map_or(Ok(()), |step| write!(f, " (step {step})"))
            }
            ReplayStep::Nothing => f.write_str("nothing"),
            ReplayStep::More => f.write_str("a further turn"),
            ReplayStep::End => f.write_str("an end"),
            ReplayStep::Failure(text) => write!(f, "a failure ({text})"),
        }
    }
}

impl fmt::Display for Nondeterminism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turn, position, expected, found } = self;
        write!(
            f,
            "turn {turn}, position {position}: the history has {expected}, the code makes {found}. \
             The history is unchanged, and the workflow resumes once the code matches it: deploy \
             the code that wrote it, or put the change behind ctx.patched(..)"
        )
    }
}

impl std::error::Error for Nondeterminism {}
