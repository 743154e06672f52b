use crate::children::Children;
use crate::mailbox::{Mailbox, Message};
use crate::name::TaskId;
use crate::primitive::{delete_message, resume_if_met, send_internal};
use crate::task::{Task, TaskKey};
use crate::workflow::{CompletedTask, StepCompletion};
use crate::world::{Halt, World};

/// Sends the completion of a step to its workflow, if that execution is still open. An activity is
/// deleted with it; its result stays with the message.
pub(super) fn complete_step(world: &mut World, task: &Task, step: u64) -> Result<(), Halt> {
    let Some(parent) = &task.parent else { return Ok(()) };
    if !send_completion(world, task, parent, step)? && task.is_activity() {
        world.drop_payloads(task.result_key());
    }
    if task.is_activity() { remove_activity(world, task) } else { Ok(()) }
}

/// Prefetches the records for the completion of a step.
pub(crate) fn prefetch_step_completion(world: &mut World, task: &Task) {
    let Some(parent) = &task.parent else { return };
    world.prefetch(Children::key_of(&task.tenant, parent));
    world.prefetch(TaskKey::new(&task.tenant, parent).row_key());
    world.prefetch(Mailbox::key_of(&task.tenant, parent));
    if let Some(step) = task.step {
        world.prefetch(Message::key_of(&task.tenant, parent, Message::of_step(step)));
    }
}

/// Returns whether the workflow received the message.
fn send_completion(
    world: &mut World,
    task: &Task,
    parent: &TaskId,
    step: u64,
) -> Result<bool, Halt> {
    let parent = world.get::<Task>(&TaskKey::new(&task.tenant, parent).row_key())?;
    let accepts_completion = |parent: &Task| {
        let workflow = parent.workflow.as_ref();
        parent.lifecycle.ended_at().is_none() && workflow.is_some_and(|w| w.first_step <= step)
    };
    let Some(parent) = parent.filter(|parent| accepts_completion(parent)) else { return Ok(false) };
    let seq = Message::of_step(step);
    // A replayed child workflow reports its last end: it replaces the earlier message.
    delete_message(world, &parent, seq)?;
    let (parent, now) = (Task { has_mailbox: true, ..(*parent).clone() }, world.now());
    let message = Message {
        seq,
        completion: Some(StepCompletion { step, task: Some(completed_task(task)) }),
        // Results do not count against the size limit of the mailbox.
        bytes: task.result_key().map(|_| 0),
        ..Message::of_engine(&parent, "report", now)
    };
    send_internal(world, &parent, message)?;
    resume_if_met(world, &parent)?;
    Ok(true)
}

fn completed_task(task: &Task) -> CompletedTask {
    CompletedTask {
        id: task.id.clone(),
        execution: task.execution,
        is_workflow: task.workflow.is_some(),
        lifecycle: task.lifecycle.clone(),
    }
}

/// Deletes an ended activity that has no further records. Otherwise the sweep deletes it.
pub(crate) fn remove_activity(world: &mut World, task: &Task) -> Result<(), Halt> {
    if task.has_mailbox || task.has_effects || task.has_children {
        return Ok(());
    }
    world.raise_epoch_floor(task.epoch);
    world.drop_payloads(task.input_key());
    world.remove(&task.task_key().row_key());
    Ok(())
}
