//! The steps of a workflow: timers, and tasks that are created and cancelled for it.

use crate::event::{Change, Event};
use crate::mailbox::Message;
use crate::name::TaskId;
use crate::primitive::{
    cancel, end_lease, existing, notify_holder, open, remove_activity, send_internal, transition_to,
};
use crate::rejection::Rejection;
use crate::task::{FailureClass, Lifecycle, Task, TaskKey};
use crate::time::Timestamp;
use crate::workflow::{CompletedTask, StepCompletion, WorkflowState};
use crate::world::{Halt, World};

/// Stores a timer: a message that becomes visible to the workflow at `at`.
pub(crate) fn set_timer(
    world: &mut World,
    workflow: &Task,
    step: u64,
    at: Timestamp,
) -> Result<(), Halt> {
    let now = world.now();
    let message = Message {
        seq: Message::of_step(step),
        visible_at: at,
        completion: Some(StepCompletion { step, task: None }),
        due_at: (now < at).then_some(at),
        ..Message::of_engine(workflow, "timer", now)
    };
    store_step_message(world, workflow, message)
}

/// Reports to a workflow that its step for the task `id` was rejected.
pub(crate) fn reject_step(
    world: &mut World,
    workflow: &Task,
    step: u64,
    id: &TaskId,
    reason: String,
) -> Result<(), Halt> {
    let now = world.now();
    let ended = Lifecycle::Failed { at: now, class: FailureClass::Permanent, reason };
    let completed =
        CompletedTask { id: id.clone(), execution: 0, is_workflow: false, lifecycle: ended };
    let message = Message {
        seq: Message::of_step(step),
        completion: Some(StepCompletion { step, task: Some(completed) }),
        ..Message::of_engine(workflow, "report", now)
    };
    store_step_message(world, workflow, message)
}

/// Stores the message of a step of the present turn. Rejects a step number that was used before and
/// whose message is still stored.
fn store_step_message(world: &mut World, workflow: &Task, message: Message) -> Result<(), Halt> {
    let key = Message::key_of(&workflow.tenant, &workflow.id, message.seq);
    if world.get::<Message>(&key)?.is_some() {
        return Err(Rejection::Conflict.into());
    }
    send_internal(world, workflow, message)
}

/// Removes a message from the mailbox of a workflow, unless it is absent or buffered.
pub(crate) fn delete_message(world: &mut World, workflow: &Task, seq: u64) -> Result<(), Halt> {
    let key = Message::key_of(&workflow.tenant, &workflow.id, seq);
    let message = world.get::<Message>(&key)?.filter(|message| message.buffered_until.is_none());
    let Some(message) = message else { return Ok(()) };
    let mut mailbox = open(world, &mut workflow.clone())?;
    mailbox.forget(&message);
    world.drop_payloads(message.own_payload_key());
    world.remove(&key);
    world.put(mailbox);
    Ok(())
}

/// Cancels a step. An activity is deleted immediately, and later writes of its lease holder are
/// rejected; cancellation of a child workflow is requested.
pub(crate) fn cancel_step(
    world: &mut World,
    key: &TaskKey,
    parent: &TaskId,
    step: u64,
) -> Result<(), Halt> {
    let Some(current) = world.get::<Task>(&key.row_key())? else { return Ok(()) };
    let is_step = current.parent.as_ref() == Some(parent) && current.step == Some(step);
    if !is_step || current.lifecycle.ended_at().is_some() {
        return Ok(());
    }
    let reason = "cancelled by its workflow";
    if current.workflow.is_some() {
        return request_cancel(world, &current, reason);
    }
    end_lease(world, &current)?;
    notify_holder(world, &current);
    // Without `step` the workflow receives no completion; other waiting callers do.
    let (now, reason) = (world.now(), reason.to_owned());
    world.emit(Event::of_task(&current, now, Change::Cancelled { reason: reason.clone() }));
    let lifecycle = Lifecycle::Cancelled { at: now, reason };
    let mut task = Task { step: None, lifecycle, ..(*current).clone() };
    task.policy.retention_ms = 0;
    transition_to(world, task.clone())?;
    remove_activity(world, &task)
}

/// Requests cancellation of a workflow, whose code may clean up first. A workflow that has not
/// begun and has no messages is cancelled immediately: it may have no worker.
pub(crate) fn request_cancel(world: &mut World, current: &Task, reason: &str) -> Result<(), Halt> {
    let Some(workflow) = &current.workflow else { return cancel(world, current, reason) };
    if !has_begun(current, workflow) && !has_messages(world, current, workflow)? {
        return cancel(world, current, reason);
    }
    if workflow.cancel_reason.is_some() {
        return Ok(());
    }
    let (mut task, now) = (current.clone(), world.now());
    if let Some(workflow) = &mut task.workflow {
        workflow.cancel_reason = Some(reason.to_owned());
    }
    let seq = open(world, &mut task)?.next_seq;
    let reason = reason.to_owned();
    world.emit(Event::of_task(&task, now, Change::CancelRequested { reason }));
    world.put::<Task>(task.clone());
    let message = Message { seq, ..Message::of_engine(&task, Message::CANCEL, now) };
    send_internal(world, &task, message)?;
    crate::primitive::resume_if_met(world, &task).map(drop)
}

/// Whether a worker holds a workflow, or a turn of this or an earlier execution was committed.
fn has_begun(task: &Task, workflow: &WorkflowState) -> bool {
    let is_held = matches!(task.lifecycle, Lifecycle::Active(_) | Lifecycle::Suspended(_));
    is_held || workflow.turns > 0 || workflow.next_step > 0 || task.execution > 0
}

/// Whether the mailbox of a workflow has messages besides the cancellation request.
fn has_messages(world: &mut World, task: &Task, workflow: &WorkflowState) -> Result<bool, Halt> {
    let requests = u32::from(workflow.cancel_reason.is_some());
    Ok(task.has_mailbox && existing(world, &task.tenant, &task.id)?.messages > requests)
}
