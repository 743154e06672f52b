use crate::effect::Effect;
use crate::mailbox::{Mailbox, Message};
use crate::record::{Filed, Record};
use crate::task::Task;
use crate::waitpoint::Waitpoint;
use crate::world::{Halt, World};

/// How much of what belongs to a task a sweep clears away at once.
pub(crate) const PURGE_PAGE: usize = 256;

/// Asks for what the first page needs.
pub(crate) fn prefetch_purge(world: &mut World, task: &Task) {
    if task.has_effects {
        world.prefetch_scan(&Effect::of_task(&task.task_key()), PURGE_PAGE);
    }
    if task.has_mail {
        world.prefetch(Mailbox::key_of(&task.tenant, &task.id));
        world.prefetch_scan(&Message::of_task(&task.tenant, &task.id), PURGE_PAGE);
        world.prefetch_scan(&Waitpoint::of_task(&task.tenant, &task.id), PURGE_PAGE);
    }
}

/// Clears away up to a page each of what belongs to an ended task: messages, waitpoints, calls.
/// Says whether nothing is left; then its mailbox is gone as well.
pub(crate) fn purge(world: &mut World, task: &Task, page: usize) -> Result<bool, Halt> {
    let called = purge_effects(world, task, page)?;
    Ok(purge_mail(world, task, page)? && called)
}

fn purge_effects(world: &mut World, task: &Task, page: usize) -> Result<bool, Halt> {
    if !task.has_effects {
        return Ok(true);
    }
    let effects = world.scan::<Effect>(&Effect::of_task(&task.task_key()), page)?;
    for effect in &effects {
        world.drop_payloads(effect.answer_key());
        world.remove(&Effect::row_key(effect.key()));
    }
    Ok(effects.len() < page)
}

fn purge_mail(world: &mut World, task: &Task, page: usize) -> Result<bool, Halt> {
    if !task.has_mail {
        return Ok(true);
    }
    let key = Mailbox::key_of(&task.tenant, &task.id);
    let Some(mailbox) = world.get::<Mailbox>(&key)? else { return Ok(true) };
    let messages = world.scan::<Message>(&Message::of_task(&task.tenant, &task.id), page)?;
    let waitpoints = world.scan::<Waitpoint>(&Waitpoint::of_task(&task.tenant, &task.id), page)?;
    let mut left = (*mailbox).clone();
    for message in &messages {
        left.forget(message);
        world.drop_payloads(message.payload_key());
        world.remove(&Message::row_key(message.key()));
    }
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
