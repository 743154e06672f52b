use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use windlass_core::command::{Claim, CommitTurn, Deed as Command, NewMessage, NewTask, Then};
use windlass_core::{Carried, Fence, Note, Payload, Task, TaskId};
use windlass_engine::{Claimed, Error, Input};

use crate::lease::Granted;
use crate::lease_registry::PendingRequest;
use crate::team::Team;
use crate::worker::Worker;
use crate::workflow::{Deed, HandedOver, Part, Standing};

/// How long the next turn of a workflow is sticky to the worker that has it cached.
const STICKY_MS: u64 = 5_000;

/// A part of a turn to be committed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) fence: Fence,
    /// The number of its row, if it has one.
    pub(crate) turn: u32,
    pub(crate) part: Option<Part>,
    pub(crate) taken: Vec<u64>,
    pub(crate) next_step: u64,
    pub(crate) then: Then,
}

/// Slots for the eager activities of a turn, with their inputs.
#[derive(Debug)]
pub(crate) struct Room {
    inputs: BTreeMap<TaskId, Option<Payload>>,
    slots: Option<OwnedSemaphorePermit>,
    request: PendingRequest,
}

/// Eager activities that a commit has leased to this worker, with their slots.
#[derive(Debug)]
pub(crate) struct Followers {
    pub(crate) granted: Vec<Granted>,
    /// For all of them but one, which uses the slot of the turn.
    pub(crate) slots: Option<OwnedSemaphorePermit>,
}

impl Draft {
    /// The command that commits it, and slots for its eager activities.
    pub(crate) fn command(self, team: &Team, leads: bool) -> Result<(CommitTurn, Room), Error> {
        let workflow = self.fence.task.id.clone();
        let (row, deeds) = self.part.map(|part| (part.row, part.deeds)).unzip();
        let row = row.map(|row| serde_json::to_vec(&row)).transpose().map_err(unwritable)?;
        // A draining worker leases no eager activities and is not sticky.
        let stays = !team.is_closing();
        let leads = leads && stays;
        let runs = |task: &NewTask| leads && team.worker.runs(task);
        let deeds = deeds.into_iter().flatten().map(|deed| command_of(runs, &workflow, deed));
        let deeds: Vec<Command> = deeds.collect();
        let room = Room::for_all(&deeds, team);
        let commit = CommitTurn {
            fence: self.fence,
            turn: self.turn,
            row: row.map(|row| Payload::new("application/json", row)),
            taken: self.taken,
            deeds,
            next_step: self.next_step,
            then: self.then,
            sticky_ms: stays.then_some(STICKY_MS),
            eager: room.claim(&team.worker),
            foreign: None,
        };
        Ok((commit, room))
    }
}

impl Room {
    fn for_all(deeds: &[Command], team: &Team) -> Self {
        let slots = &team.slots;
        let eager = deeds.iter().filter_map(|deed| match deed {
            Command::Activity { task, eager: true, .. } => {
                Some((task.id.clone(), task.payload.clone()))
            }
            _ => None,
        });
        let inputs: BTreeMap<_, _> = eager.collect();
        let most = slots.available_permits().min(inputs.len().saturating_sub(1));
        let most = u32::try_from(most).unwrap_or(0);
        let slots = (most > 0).then(|| slots.clone().try_acquire_many_owned(most).ok());
        Self { inputs, slots: slots.flatten(), request: team.worker.leases.request() }
    }

    /// The request to which all leases of the commit are granted.
    pub(crate) fn request(&self) -> &PendingRequest {
        &self.request
    }

    /// A claim for as many eager activities as there are slots.
    fn claim(&self, worker: &Worker) -> Option<Claim> {
        let room = self.slots.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) + 1;
        let limit = u32::try_from(room).unwrap_or(u32::MAX);
        let request = Some(self.request.id());
        (!self.inputs.is_empty()).then(|| Claim { limit, request, ..worker.claim.clone() })
    }

    /// The eager activities that were leased.
    pub(crate) fn filled(
        &mut self,
        leased: Vec<Arc<Task>>,
        leased_from: Instant,
    ) -> Option<Followers> {
        let with_input = |task: Arc<Task>| {
            let input = self.inputs.remove(&task.id).flatten();
            let input = input.map_or(Input::None, Input::Here);
            Granted::new(Claimed { task, input, leased_from }, &self.request)
        };
        let granted: Vec<Granted> = leased.into_iter().map(with_input).collect();
        (!granted.is_empty()).then(|| Followers { granted, slots: self.slots.take() })
    }
}

/// Converts a workflow command to what the engine is to do.
fn command_of(runs: impl Fn(&NewTask) -> bool, workflow: &TaskId, deed: Deed) -> Command {
    let started = |task: NewTask| {
        let workflow = Some(task.workflow.clone().unwrap_or_default());
        let policy = task.policy.clone().of_workflow();
        NewTask { workflow, policy, ..task }
    };
    match deed {
        Deed::Activity { step, task } => {
            let eager = runs(&task);
            Command::Activity { step, task: *task, eager }
        }
        Deed::Child { step, task } => Command::Child { step, task: started(*task) },
        Deed::Start { step, task } => Command::Start { step, task: started(*task) },
        Deed::Timer { step, at } => Command::Timer { step, at },
        Deed::CancelTimer { step } => Command::CancelTimer { step },
        Deed::CancelActivity { step } => {
            let id = format!("{workflow}/{step}").into();
            Command::CancelTask { step, id }
        }
        Deed::CancelChild { step, id } => Command::CancelTask { step, id },
        Deed::Post { step, to, name, payload, keep_ms } => {
            let source = workflow.to_string();
            let message = NewMessage { payload, keep_ms, ..NewMessage::new(to, name, source) };
            Command::Post { step, message }
        }
        Deed::Status(text) => Command::Note { name: Note::STATUS.to_owned(), text: Some(text) },
        Deed::Value { key, value } => {
            let text = value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
            Command::Note { name: key, text }
        }
    }
}

/// Converts the state of a workflow after its turn to how the turn ends.
pub(crate) fn then(standing: Standing, values: BTreeMap<String, Carried>) -> Result<Then, Error> {
    Ok(match standing {
        Standing::Waiting { .. } => Then::Wait,
        Standing::Completed(result) => Then::Complete(result),
        Standing::Failed(failure) => {
            Then::Fail { class: failure.class(), reason: failure.reason().to_owned() }
        }
        Standing::Cancelled { reason } => Then::Cancel { reason },
        Standing::ContinueAsNew { input, version, carried, .. } => {
            let over = HandedOver { unread: carried, values };
            let carried = Some(over.written().map_err(unwritable)?);
            Then::ContinueAsNew { input, version, carried }
        }
    })
}

pub(crate) fn unwritable(error: serde_json::Error) -> Error {
    Error::Payload(Arc::new(error))
}
