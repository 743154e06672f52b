//! The workflow commands of a turn, and how they are applied.

use std::sync::Arc;

use crate::command::send_messages::send;
use crate::command::{Claim, Create, NewMessage, NewTask};
use crate::event::{Change, Event};
use crate::limits;
use crate::name::TaskId;
use crate::primitive::{reject_step, transition_to};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, Task};
use crate::time::Timestamp;
use crate::workflow_property::WorkflowProperty;
use crate::world::{Halt, World};

/// A workflow command: what a turn asks the engine to do.
#[derive(Clone, Debug)]
pub enum WorkflowCommand {
    /// `eager` if it may be leased to the worker of this turn in the same commit.
    Activity {
        step: u64,
        task: NewTask,
        eager: bool,
    },
    /// A workflow whose end is reported to this one.
    Child {
        step: u64,
        task: NewTask,
    },
    /// A detached workflow. If the same one exists already, it is left unchanged.
    Start {
        step: u64,
        task: NewTask,
    },
    Timer {
        step: u64,
        at: Timestamp,
    },
    CancelTimer {
        step: u64,
    },
    /// Cancels an activity or a child whose result is not needed.
    CancelTask {
        step: u64,
        id: TaskId,
    },
    Send {
        message: NewMessage,
        on_reject: OnReject,
    },
    /// Publishes a property of the workflow: see [`crate::WorkflowProperty`].
    SetProperty {
        name: String,
        text: Option<String>,
    },
}

/// What a turn does if its message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReject {
    /// The step fails with the reason. The turn is committed.
    FailStep { step: u64 },
    /// The turn is rejected.
    RejectTurn,
}

/// The result of creating a task for a turn.
pub(super) enum Started {
    /// It was rejected, or exists already.
    No,
    Unleased,
    Leased(Arc<Task>),
}

/// Creates a task for a workflow, and leases it if requested and possible. If the task cannot be
/// created, its step fails; the turn is committed all the same.
pub(super) fn make(
    world: &mut World,
    workflow: &Task,
    new: &NewTask,
    step: u64,
    eager: Option<&Claim>,
) -> Result<Started, Halt> {
    let parent = Some(workflow.id.clone());
    let new = NewTask { parent, idempotency: None, ..new.clone() };
    let create = Create { tenant: workflow.tenant.clone(), tasks: Vec::new() };
    match world.undo_if_rejected(|world| create.create_for_workflow(world, &new, Some(step))) {
        Ok(Some(made)) => {
            if let (Some(claim), None, Lifecycle::Waiting(_)) =
                (eager, &made.limit_key, &made.lifecycle)
            {
                let task = Arc::new(made.clone());
                match world.undo_if_rejected(|world| claim.lease_one(world, &task, true)) {
                    Err(Halt::Rejected(_)) => {}
                    leased => return leased.map(Started::Leased),
                }
            }
            transition_to(world, made)?;
            Ok(Started::Unleased)
        }
        Ok(None) => Ok(Started::No),
        Err(Halt::Rejected(rejection)) => {
            reject_task(world, workflow, step, &new.id, &rejection).map(|()| Started::No)
        }
        Err(Halt::Parked) => Err(Halt::Parked),
    }
}

/// Creates a detached workflow.
pub(super) fn start(
    world: &mut World,
    workflow: &Task,
    new: &NewTask,
    step: u64,
) -> Result<(), Halt> {
    let new = NewTask { parent: None, idempotency: None, ..new.clone() };
    let create = Create { tenant: workflow.tenant.clone(), tasks: Vec::new() };
    let started = world.undo_if_rejected(|world| {
        let made = create.create_for_workflow(world, &new, None)?;
        made.map_or(Ok(()), |made| transition_to(world, made))
    });
    match started {
        Ok(()) => Ok(()),
        Err(Halt::Rejected(rejection)) => reject_task(world, workflow, step, &new.id, &rejection),
        Err(Halt::Parked) => Err(Halt::Parked),
    }
}

fn reject_task(
    world: &mut World,
    workflow: &Task,
    step: u64,
    id: &TaskId,
    rejection: &Rejection,
) -> Result<(), Halt> {
    reject_step(world, workflow, step, id, format!("{id} could not be created: {rejection}"))
}

/// Sends a message. A message that is invalid in itself rejects the turn in any case.
pub(super) fn send_message(
    world: &mut World,
    workflow: &Task,
    message: &NewMessage,
    on_reject: OnReject,
) -> Result<(), Halt> {
    message.check(world.now())?;
    let sent = world.undo_if_rejected(|world| send(world, &workflow.tenant, message));
    match (sent, on_reject) {
        (Err(Halt::Rejected(rejection)), OnReject::FailStep { step }) => {
            let NewMessage { task: to, name, .. } = message;
            let reason = format!("{name} could not be sent to {to}: {rejection}");
            reject_step(world, workflow, step, to, reason)
        }
        (sent, _) => sent.map(drop),
    }
}

/// Writes or deletes a published property of a workflow.
pub(super) fn set_property(
    world: &mut World,
    task: &Task,
    name: &str,
    text: Option<&str>,
) -> Result<(), Halt> {
    let limit =
        if name == WorkflowProperty::STATUS { limits::STATUS } else { limits::PROPERTY_VALUE };
    if name != WorkflowProperty::STATUS {
        limits::PROPERTY_NAME.check(name)?;
    }
    let key = WorkflowProperty::key_of(&task.tenant, &task.id, name);
    let before = world.get::<WorkflowProperty>(&key)?;
    if before.is_none() && text.is_none() {
        return Ok(());
    }
    // The time keeps the number rising when the property is deleted and written again.
    let next = before.map_or(0, |before| before.revision + 1);
    let change = next.max(world.now().micros().unsigned_abs());
    if name == WorkflowProperty::STATUS {
        world.emit(Event::of_task(task, world.now(), Change::StatusChanged { revision: change }));
    }
    let Some(text) = text else {
        world.remove(&key);
        return Ok(());
    };
    limit.check_prose(text)?;
    let (tenant, task) = (task.tenant.clone(), task.id.clone());
    let (name, text) = (name.to_owned(), text.to_owned());
    world.put::<WorkflowProperty>(WorkflowProperty { tenant, task, name, text, revision: change });
    Ok(())
}
