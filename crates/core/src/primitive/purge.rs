use crate::effect::Effect;
use crate::execution::Execution;
use crate::mailbox::{Mailbox, Message};
use crate::primitive::{hand_over_key, uncount_buffered};
use crate::record::{Record, StoredRecord};
use crate::task::Task;
use crate::waitpoint::Waitpoint;
use crate::workflow::WorkflowState;
use crate::workflow_property::WorkflowProperty;
use crate::world::{Halt, World};

/// Records of a task that a sweep deletes at once.
pub(crate) const PURGE_PAGE: usize = 256;

/// Prefetches the records of the first page.
pub(crate) fn prefetch_purge(world: &mut World, task: &Task) {
    if task.has_effects {
        world.prefetch_scan(&Effect::of_task(&task.task_key()), PURGE_PAGE);
    }
    if task.workflow.is_some() {
        world.prefetch_scan(&WorkflowProperty::of_task(&task.tenant, &task.id), PURGE_PAGE);
        world.prefetch_scan(&Execution::of_task(&task.tenant, &task.id), PURGE_PAGE);
    }
    if task.has_mailbox {
        world.prefetch(Mailbox::key_of(&task.tenant, &task.id));
        world.prefetch_scan(&Message::of_task(&task.tenant, &task.id), PURGE_PAGE);
        world.prefetch_scan(&Waitpoint::of_task(&task.tenant, &task.id), PURGE_PAGE);
    }
}

/// Deletes up to a page each of the messages, waitpoints, effects and history of an ended task.
/// Returns whether nothing is left; then its mailbox is deleted as well.
pub(crate) fn purge(world: &mut World, task: &Task, page: usize) -> Result<bool, Halt> {
    let effects_done = purge_effects(world, task, page)?;
    let history_done = purge_history(world, task, page)?;
    Ok(purge_mailbox(world, task, page)? && effects_done && history_done)
}

/// Deletes the history of a workflow: properties, past executions, and rows of the last execution.
fn purge_history(world: &mut World, task: &Task, page: usize) -> Result<bool, Halt> {
    let Some(workflow) = &task.workflow else { return Ok(true) };
    let properties =
        world.scan::<WorkflowProperty>(&WorkflowProperty::of_task(&task.tenant, &task.id), page)?;
    let executions = world.scan::<Execution>(&Execution::of_task(&task.tenant, &task.id), page)?;
    for property in &properties {
        world.remove(&WorkflowProperty::row_key(property.key()));
    }
    let mut budget = u32::try_from(page).unwrap_or(u32::MAX);
    let mut done = properties.len() < page && executions.len() < page;
    for execution in &executions {
        done &= delete_execution(world, execution, &mut budget);
    }
    let left = workflow.turns.saturating_sub(budget);
    world.drop_payloads((left..workflow.turns).map(|turn| task.turn_key(turn)));
    world.drop_payloads(task.carried_key().filter(|_| left == 0));
    if left > 0 {
        let workflow = WorkflowState { turns: left, ..(**workflow).clone() };
        world.put::<Task>(Task { workflow: Some(Box::new(workflow)), ..task.clone() });
    }
    Ok(done && left == 0)
}

/// Deletes an execution, up to `budget` payloads. Returns whether it is deleted completely.
pub(crate) fn delete_execution(world: &mut World, execution: &Execution, budget: &mut u32) -> bool {
    let (keys, left) = execution.truncated(*budget);
    *budget = budget.saturating_sub(u32::try_from(keys.len()).unwrap_or(u32::MAX));
    world.drop_payloads(keys);
    match left {
        Some(left) => {
            world.put::<Execution>(left);
            false
        }
        None => {
            world.remove(&Execution::row_key(execution.key()));
            true
        }
    }
}

fn purge_effects(world: &mut World, task: &Task, page: usize) -> Result<bool, Halt> {
    if !task.has_effects {
        return Ok(true);
    }
    let effects = world.scan::<Effect>(&Effect::of_task(&task.task_key()), page)?;
    for effect in &effects {
        world.drop_payloads(effect.result_key());
        world.remove(&Effect::row_key(effect.key()));
    }
    Ok(effects.len() < page)
}

fn purge_mailbox(world: &mut World, task: &Task, page: usize) -> Result<bool, Halt> {
    if !task.has_mailbox {
        return Ok(true);
    }
    let key = Mailbox::key_of(&task.tenant, &task.id);
    let Some(mailbox) = world.get::<Mailbox>(&key)? else { return Ok(true) };
    let messages = world.scan::<Message>(&Message::of_task(&task.tenant, &task.id), page)?;
    let waitpoints = world.scan::<Waitpoint>(&Waitpoint::of_task(&task.tenant, &task.id), page)?;
    let mut left = (*mailbox).clone();
    for message in &messages {
        left.forget(message);
        world.drop_payloads(message.own_payload_key());
        world.remove(&Message::row_key(message.key()));
    }
    let buffered = || messages.iter().filter(|message| message.buffered_until.is_some());
    buffered().try_for_each(|message| hand_over_key(world, message, None))?;
    uncount_buffered(world, &task.tenant, buffered().map(AsRef::as_ref))?;
    for waitpoint in &waitpoints {
        left.waitpoints = left.waitpoints.saturating_sub(1);
        world.remove(&Waitpoint::row_key(waitpoint.key()));
    }
    let done = messages.len() < page && waitpoints.len() < page;
    if done {
        world.remove(&key);
    } else {
        world.put::<Mailbox>(left);
    }
    Ok(done)
}
