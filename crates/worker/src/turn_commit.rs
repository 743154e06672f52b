use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use windlass_core::command::{
    Claim, CommitTurn, IfAbsent, NewMessage, NewTask, OnReject, TurnEnd, WorkflowCommand as Command,
};
use windlass_core::{Fence, HistoryPayload, Payload, Task, TaskId, WorkflowProperty};
use windlass_engine::{ClaimedTask, Error, TaskInput};

use crate::lease::Granted;
use crate::lease_registry::PendingRequest;
use crate::worker::Worker;
use crate::worker_state::WorkerState;
use crate::workflow::{Carryover, ExecutionState, PlannedCommand, TurnPart};

/// How long the next turn of a workflow is sticky to the worker that has it cached.
const STICKY_MS: u64 = 5_000;

/// A part of a turn to be committed.
#[derive(Debug)]
pub(crate) struct TurnCommit {
    pub(crate) fence: Fence,
    /// The number of its row, if it has one.
    pub(crate) turn: u32,
    pub(crate) part: Option<TurnPart>,
    pub(crate) consumed: Vec<u64>,
    pub(crate) next_step: u64,
    pub(crate) end: TurnEnd,
}

/// Slots for the eager activities of a turn, with their inputs.
#[derive(Debug)]
pub(crate) struct EagerSlots {
    inputs: BTreeMap<TaskId, Option<Payload>>,
    slots: Option<OwnedSemaphorePermit>,
    request: PendingRequest,
}

/// Eager activities that a commit has leased to this worker, with their slots.
#[derive(Debug)]
pub(crate) struct EagerActivities {
    pub(crate) granted: Vec<Granted>,
    /// For all of them but one, which uses the slot of the turn.
    pub(crate) slots: Option<OwnedSemaphorePermit>,
}

impl TurnCommit {
    /// The command that commits it, and slots for its eager activities.
    pub(crate) fn command(
        self,
        state: &WorkerState,
        may_chain: bool,
    ) -> Result<(CommitTurn, EagerSlots), Error> {
        let workflow = self.fence.task.id.clone();
        let (row, commands) = self.part.map(|part| (part.row, part.commands)).unzip();
        let row = row.map(|row| serde_json::to_vec(&row)).transpose().map_err(encode_error)?;
        // A draining worker leases no eager activities and is not sticky.
        let is_sticky = !state.is_closing();
        let may_chain = may_chain && is_sticky;
        let runs = |task: &NewTask| may_chain && state.worker.runs(task);
        let commands =
            commands.into_iter().flatten().map(|command| command_of(runs, &workflow, command));
        let commands: Vec<Command> = commands.collect();
        let eager_slots = EagerSlots::for_all(&commands, state);
        let commit = CommitTurn {
            fence: self.fence,
            turn: self.turn,
            row: row.map(|row| Payload::new("application/json", row)),
            consumed: self.consumed,
            commands,
            next_step: self.next_step,
            end: self.end,
            sticky_ms: is_sticky.then_some(STICKY_MS),
            eager: eager_slots.claim(&state.worker),
            metadata: None,
        };
        Ok((commit, eager_slots))
    }
}

impl EagerSlots {
    fn for_all(commands: &[Command], state: &WorkerState) -> Self {
        let slots = &state.slots;
        let eager = commands.iter().filter_map(|command| match command {
            Command::Activity { task, eager: true, .. } => {
                Some((task.id.clone(), task.payload.clone()))
            }
            _ => None,
        });
        let inputs: BTreeMap<_, _> = eager.collect();
        let most = slots.available_permits().min(inputs.len().saturating_sub(1));
        let most = u32::try_from(most).unwrap_or(0);
        let slots = (most > 0).then(|| slots.clone().try_acquire_many_owned(most).ok());
        Self { inputs, slots: slots.flatten(), request: state.worker.leases.request() }
    }

    /// The request to which all leases of the commit are granted.
    pub(crate) fn request(&self) -> &PendingRequest {
        &self.request
    }

    /// A claim for as many eager activities as there are slots.
    fn claim(&self, worker: &Worker) -> Option<Claim> {
        let eager_slots = self.slots.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) + 1;
        let limit = u32::try_from(eager_slots).unwrap_or(u32::MAX);
        let request = Some(self.request.id());
        (!self.inputs.is_empty()).then(|| Claim { limit, request, ..worker.claim.clone() })
    }

    /// The eager activities that were leased.
    pub(crate) fn filled(
        &mut self,
        leased: Vec<Arc<Task>>,
        leased_from: Instant,
    ) -> Option<EagerActivities> {
        let with_input = |task: Arc<Task>| {
            let input = self.inputs.remove(&task.id).flatten();
            let input = input.map_or(TaskInput::None, TaskInput::Inline);
            Granted::new(ClaimedTask { task, input, leased_from }, &self.request)
        };
        let granted: Vec<Granted> = leased.into_iter().map(with_input).collect();
        (!granted.is_empty()).then(|| EagerActivities { granted, slots: self.slots.take() })
    }
}

/// Converts a workflow command to what the engine is to do.
fn command_of(
    runs: impl Fn(&NewTask) -> bool,
    workflow: &TaskId,
    command: PlannedCommand,
) -> Command {
    let started = |task: NewTask| {
        let workflow = Some(task.workflow.clone().unwrap_or_default());
        let policy = task.policy.clone().of_workflow();
        NewTask { workflow, policy, ..task }
    };
    match command {
        PlannedCommand::Activity { step, task } => {
            let eager = runs(&task);
            Command::Activity { step, task: *task, eager }
        }
        PlannedCommand::Child { step, task } => Command::Child { step, task: started(*task) },
        PlannedCommand::Start { step, task } => Command::Start { step, task: started(*task) },
        PlannedCommand::Timer { step, at } => Command::Timer { step, at },
        PlannedCommand::CancelTimer { step } => Command::CancelTimer { step },
        PlannedCommand::CancelActivity { step } => {
            let id = format!("{workflow}/{step}").into();
            Command::CancelTask { step, id }
        }
        PlannedCommand::CancelChild { step, id } => Command::CancelTask { step, id },
        PlannedCommand::Signal { step, to, name, payload, buffer_ms } => {
            let source = workflow.to_string();
            let if_absent =
                buffer_ms.map_or(IfAbsent::Reject, |ttl_ms| IfAbsent::Buffer { ttl_ms });
            let message = NewMessage { payload, if_absent, ..NewMessage::new(to, name, source) };
            Command::Send { message, on_reject: OnReject::FailStep { step } }
        }
        PlannedCommand::Status(text) => {
            Command::SetProperty { name: WorkflowProperty::STATUS.to_owned(), text: Some(text) }
        }
        PlannedCommand::Value { key, value } => {
            let text = value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
            Command::SetProperty { name: key, text }
        }
    }
}

/// Converts the state of a workflow after its turn to how the turn ends.
pub(crate) fn turn_end(
    state: ExecutionState,
    values: BTreeMap<String, HistoryPayload>,
) -> Result<TurnEnd, Error> {
    Ok(match state {
        ExecutionState::Waiting { .. } => TurnEnd::AwaitMessages,
        ExecutionState::Completed(result) => TurnEnd::Complete(result),
        ExecutionState::Failed(failure) => {
            TurnEnd::Fail { class: failure.class(), reason: failure.reason().to_owned() }
        }
        ExecutionState::Cancelled { reason } => TurnEnd::Cancel { reason },
        ExecutionState::ContinueAsNew { input, version, carried, .. } => {
            let over = Carryover { unread: carried, values };
            let carried = Some(over.written().map_err(encode_error)?);
            TurnEnd::ContinueAsNew { input, version, carried }
        }
    })
}

pub(crate) fn encode_error(error: serde_json::Error) -> Error {
    Error::Payload(Arc::new(error))
}
