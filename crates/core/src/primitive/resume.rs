use std::sync::Arc;

use crate::event::{Change, Event};
use crate::mailbox::Message;
use crate::primitive::{existing, transition_to};
use crate::record::{Record, StoredRecord};
use crate::task::{
    ActiveAttempt, Condition, Lifecycle, Readiness, ResumeCause, Resumption, SuspendedAttempt,
    Suspension, Task,
};
use crate::time::Timestamp;
use crate::workflow::Sticky;
use crate::world::{Halt, World};

/// The messages that meet a condition of an attempt; none if it is not met. Messages of the engine
/// do not count.
///
/// The mailbox is read first. Every delivery or removal of a message writes it, so the scan after
/// it is complete, or the commit conflicts.
pub(crate) fn matching_messages(
    world: &mut World,
    task: &Task,
    condition: &Condition,
    began_at: Timestamp,
) -> Result<Option<Vec<u64>>, Halt> {
    if !task.has_mailbox {
        return Ok(None);
    }
    let now = world.now();
    let mailbox = existing(world, &task.tenant, &task.id)?;
    if *condition == Condition::AnyMessage {
        return Ok(mailbox.shows_any().then(Vec::new));
    }
    let most = mailbox.messages as usize + 1;
    let found = world.scan::<Message>(&Message::of_task(&task.tenant, &task.id), most)?;
    for hidden in found.iter().filter(|message| !message.is_visible(now)) {
        // The commit does not check a scan. The sweep that makes this message visible looks for a
        // suspended task, and must conflict with this suspension.
        world.get::<Message>(&Message::row_key(hidden.key()))?;
    }
    let counts = |message: &&Message| message.is_visible(now) && message.is_external();
    let counted: Vec<&Message> = found.iter().map(Arc::as_ref).filter(counts).collect();
    Ok(condition.met_by(&counted, began_at).map(|seqs| seqs.into_iter().collect()))
}

/// Marks these messages as consumed by an attempt.
pub(crate) fn mark_resuming(
    world: &mut World,
    task: &Task,
    seqs: &[u64],
    began_at: Timestamp,
) -> Result<(), Halt> {
    for &seq in seqs {
        let key = Message::key_of(&task.tenant, &task.id, seq);
        if let Some(message) = world.get::<Message>(&key)? {
            let resumed_attempt_at = Some(began_at);
            world.put::<Message>(Message { resumed_attempt_at, ..(*message).clone() });
        }
    }
    Ok(())
}

/// Resumes a suspended task if its condition is met. Returns whether it was.
pub(crate) fn resume_if_met(world: &mut World, task: &Task) -> Result<bool, Halt> {
    let Lifecycle::Suspended(suspension) = &task.lifecycle else { return Ok(false) };
    let paused = &suspension.suspended_attempt;
    let Some(seqs) = matching_messages(world, task, &suspension.condition, paused.began_at)? else {
        return Ok(false);
    };
    mark_resuming(world, task, &seqs, paused.began_at)?;
    resume(world, task, paused.clone(), ResumeCause::Signals, seqs, None)?;
    Ok(true)
}

/// Makes a paused task claimable: the next claim continues its attempt.
pub(crate) fn resume(
    world: &mut World,
    task: &Task,
    paused: SuspendedAttempt,
    cause: ResumeCause,
    messages: Vec<u64>,
    by: Option<String>,
) -> Result<(), Halt> {
    let now = world.now();
    if task.workflow.is_some() {
        return make_turn_ready(world, task.clone(), paused);
    }
    let change = Change::Resumed { cause, messages: messages.clone(), by };
    world.emit(Event::of_task(task, now, change));
    let resumption = Some(Resumption { at: now, cause, messages, request: None });
    let lifecycle = Lifecycle::resumed(paused, now);
    transition_to(world, Task { lifecycle, resumption, ..task.clone() })
}

/// Whether the mailbox of a task has visible messages.
pub(crate) fn has_visible_messages(world: &mut World, task: &Task) -> Result<bool, Halt> {
    if !task.has_mailbox {
        return Ok(false);
    }
    Ok(existing(world, &task.tenant, &task.id)?.shows_any())
}

/// Ends the lease of a workflow: it is suspended until a message arrives, or ready for its next
/// turn if one is visible.
pub(crate) fn await_messages(
    world: &mut World,
    mut task: Task,
    attempt: &ActiveAttempt,
) -> Result<(), Halt> {
    let now = world.now();
    if has_visible_messages(world, &task)? {
        return make_turn_ready(world, task, attempt.to_suspended(now));
    }
    task.lifecycle = Lifecycle::Suspended(Suspension::until_message(attempt, now));
    transition_to(world, task)
}

/// Makes a workflow ready for its next turn. Its sticky worker is preferred.
pub(crate) fn make_turn_ready(
    world: &mut World,
    mut task: Task,
    paused: SuspendedAttempt,
) -> Result<(), Halt> {
    let now = world.now();
    let readiness = Readiness { ready_at: now, lost_epoch: None, suspended_attempt: Some(paused) };
    let sticky = task.workflow.as_ref().and_then(|workflow| workflow.sticky.clone());
    task.lifecycle = match sticky {
        Some(Sticky { worker, ttl_ms }) => {
            Lifecycle::Granted { readiness, worker, until: Some(now.plus_ms(ttl_ms)) }
        }
        None => Lifecycle::Waiting(readiness),
    };
    transition_to(world, task)
}
