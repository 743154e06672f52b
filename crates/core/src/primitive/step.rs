//! The steps of a workflow: timers, and tasks that are made and called off for it.

use crate::event::{Change, Event};
use crate::mailbox::Message;
use crate::name::TaskId;
use crate::primitive::{
    cancel, existing, leave, open, place, put_for_engine, remove_activity, tell_holder,
};
use crate::rejection::Rejection;
use crate::task::{FailureClass, Lifecycle, Task, TaskKey};
use crate::time::Timestamp;
use crate::workflow::{Report, Reporter, WorkflowState};
use crate::world::{Halt, World};

/// Shows a workflow at that time that its timer has fired.
pub(crate) fn set_timer(
    world: &mut World,
    workflow: &Task,
    step: u64,
    at: Timestamp,
) -> Result<(), Halt> {
    let (now, seq) = (world.now(), Message::of_step(step));
    let key = Message::key_of(&workflow.tenant, &workflow.id, seq);
    if world.get::<Message>(&key)?.is_some() {
        // The step was given before, and has been told of.
        return Err(Rejection::Conflict.into());
    }
    let message = Message {
        seq,
        visible_at: at,
        report: Some(Report { step, task: None }),
        due_at: (now < at).then_some(at),
        ..Message::of_engine(workflow, "timer", now)
    };
    put_for_engine(world, workflow, message)
}

/// Tells a workflow that a step of it, which concerns the task of this id, was refused.
pub(crate) fn refuse_step(
    world: &mut World,
    workflow: &Task,
    step: u64,
    id: &TaskId,
    reason: String,
) -> Result<(), Halt> {
    let now = world.now();
    let ended = Lifecycle::Failed { at: now, class: FailureClass::Permanent, reason };
    let reporter = Reporter { id: id.clone(), generation: 0, is_workflow: false, ended };
    let message = Message {
        seq: Message::of_step(step),
        report: Some(Report { step, task: Some(reporter) }),
        ..Message::of_engine(workflow, "report", now)
    };
    put_for_engine(world, workflow, message)
}

/// Takes a message out of the mailbox of a workflow, if it is there.
pub(crate) fn forget_message(world: &mut World, workflow: &Task, seq: u64) -> Result<(), Halt> {
    let key = Message::key_of(&workflow.tenant, &workflow.id, seq);
    let message = world.get::<Message>(&key)?.filter(|message| message.kept_until.is_none());
    let Some(message) = message else { return Ok(()) };
    let mut mailbox = open(world, &mut workflow.clone())?;
    mailbox.forget(&message);
    world.drop_payloads(message.own_payload_key());
    world.remove(&key);
    world.put(mailbox);
    Ok(())
}

/// Calls off a step that nobody is interested in any more. An activity is gone at once, and its
/// holder's writes are refused; a workflow is asked to end.
pub(crate) fn cancel_step(
    world: &mut World,
    key: &TaskKey,
    parent: &TaskId,
    step: u64,
) -> Result<(), Halt> {
    let Some(known) = world.get::<Task>(&key.row_key())? else { return Ok(()) };
    let is_it = known.parent.as_ref() == Some(parent) && known.step == Some(step);
    if !is_it || known.lifecycle.ended_at().is_some() {
        return Ok(());
    }
    let reason = "the workflow has no more use for it";
    if known.workflow.is_some() {
        return ask_to_end(world, &known, reason);
    }
    leave(world, &known)?;
    tell_holder(world, &known);
    // Without its step its workflow is not told of its end. Whoever else waits for it is.
    let (now, reason) = (world.now(), reason.to_owned());
    world.emit(Event::of_task(&known, now, Change::Cancelled { reason: reason.clone() }));
    let lifecycle = Lifecycle::Cancelled { at: now, reason };
    let mut task = Task { step: None, lifecycle, ..(*known).clone() };
    task.policy.retention_ms = 0;
    place(world, task.clone())?;
    remove_activity(world, &task)
}

/// Asks a workflow to end: its code is told, and may clean up first. One that nobody has, that has
/// done nothing and was sent nothing ends at once: there may be nobody who could run it.
pub(crate) fn ask_to_end(world: &mut World, known: &Task, reason: &str) -> Result<(), Halt> {
    let Some(workflow) = &known.workflow else { return cancel(world, known, reason) };
    if !has_begun(known, workflow) && !was_sent_anything(world, known, workflow)? {
        return cancel(world, known, reason);
    }
    if workflow.cancelling.is_some() {
        return Ok(());
    }
    let (mut task, now) = (known.clone(), world.now());
    if let Some(workflow) = &mut task.workflow {
        workflow.cancelling = Some(reason.to_owned());
    }
    let seq = open(world, &mut task)?.next_seq;
    let reason = reason.to_owned();
    world.emit(Event::of_task(&task, now, Change::CancelRequested { reason }));
    world.put::<Task>(task.clone());
    let message = Message { seq, ..Message::of_engine(&task, Message::CANCEL, now) };
    put_for_engine(world, &task, message)?;
    crate::primitive::resume_if_met(world, &task).map(drop)
}

/// Whether somebody runs a workflow, or has run it and kept a turn, of this execution or of one
/// before.
fn has_begun(task: &Task, workflow: &WorkflowState) -> bool {
    let stands = matches!(task.lifecycle, Lifecycle::Active(_) | Lifecycle::Suspended(_));
    stands || workflow.turns > 0 || workflow.next_step > 0 || task.generation > 0
}

/// Whether there is anything in the mailbox of a workflow besides that it is asked to end.
fn was_sent_anything(
    world: &mut World,
    task: &Task,
    workflow: &WorkflowState,
) -> Result<bool, Halt> {
    let asked = u32::from(workflow.cancelling.is_some());
    Ok(task.has_mail && existing(world, &task.tenant, &task.id)?.held > asked)
}
