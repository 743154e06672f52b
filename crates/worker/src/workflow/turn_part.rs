use windlass_core::{
    HistoryPayload, RecordedCommand, StepOutcome, Timestamp, TurnRecord, WorkflowInput,
};

use super::planned_command::PlannedCommand;

/// The most commands and bytes of one row: the rest goes into further rows.
pub const COMMANDS_PER_ROW: usize = 1_000;
pub const BYTES_PER_ROW: usize = 4 * 1_024 * 1_024;

/// One commit of a turn: a row of history, and its workflow commands.
#[derive(Clone, Debug)]
pub struct TurnPart {
    pub row: TurnRecord,
    pub commands: Vec<PlannedCommand>,
}

/// A recorded command, and the workflow command that carries it out.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) made: RecordedCommand,
    pub(super) command: Option<PlannedCommand>,
}

/// The estimated bytes of an item in a row, besides its texts.
const ROUGHLY: usize = 96;

/// The estimated bytes of an input in a row.
pub(super) fn input_bytes(input: &WorkflowInput) -> usize {
    let carried =
        |payload: &Option<HistoryPayload>| payload.as_ref().map_or(0, |p| p.0.bytes.len());
    let written = match input {
        WorkflowInput::Message { name, source, payload } => {
            name.len() + source.len() + carried(payload)
        }
        WorkflowInput::Cancel { reason } => reason.len(),
        WorkflowInput::StepCompletion { outcome, .. } => match outcome {
            StepOutcome::Completed { result } => carried(result),
            StepOutcome::Failed { reason, .. } | StepOutcome::Cancelled { reason } => reason.len(),
            StepOutcome::Expired | StepOutcome::Fired => 0,
        },
    };
    ROUGHLY + written
}

impl Entry {
    fn bytes(&self) -> usize {
        let written = match &self.made {
            RecordedCommand::Activity { name, input, .. } => {
                name.len() + input.as_ref().map_or(0, |input| input.0.bytes.len())
            }
            RecordedCommand::Child { name, id, .. }
            | RecordedCommand::StartDetached { name, id, .. } => name.len() + id.as_str().len(),
            RecordedCommand::Signal { name, to, .. } => name.len() + to.as_str().len(),
            RecordedCommand::LocalActivity { name, .. }
            | RecordedCommand::WaitSignal { name, .. } => name.len(),
            RecordedCommand::Patch { id } => id.len(),
            RecordedCommand::Timer { .. } | RecordedCommand::Cancel { .. } => 0,
        };
        ROUGHLY + written
    }
}

/// Where the rows of a turn end. The same entries are always cut at the same positions.
pub(super) fn cuts(entries: &[Entry]) -> Vec<usize> {
    let (mut cuts, mut items, mut bytes) = (Vec::new(), 0, 0);
    for (place, entry) in entries.iter().enumerate() {
        let more = entry.bytes();
        if items == COMMANDS_PER_ROW || (items > 0 && bytes + more > BYTES_PER_ROW) {
            cuts.push(place);
            (items, bytes) = (0, 0);
        }
        items += 1;
        bytes += more;
    }
    cuts.push(entries.len());
    cuts
}

/// Splits inputs and commands into rows. All inputs are in the first row.
pub(super) fn parts(
    at: Timestamp,
    arrived: Vec<WorkflowInput>,
    entries: Vec<Entry>,
) -> Vec<TurnPart> {
    let cuts = cuts(&entries);
    let mut entries = entries.into_iter();
    let mut arrived = Some(arrived);
    let mut start = 0;
    let mut parts = Vec::with_capacity(cuts.len());
    for cut in cuts {
        let here = entries.by_ref().take(cut - start);
        let (made, commands): (Vec<RecordedCommand>, Vec<Option<PlannedCommand>>) =
            here.map(|entry| (entry.made, entry.command)).unzip();
        let row = TurnRecord { at, inputs: arrived.take().unwrap_or_default(), commands: made };
        parts.push(TurnPart { row, commands: commands.into_iter().flatten().collect() });
        start = cut;
    }
    parts
}
