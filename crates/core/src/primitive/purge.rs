use crate::mailbox::{Mailbox, Message};
use crate::record::{Filed, Record};
use crate::task::Task;
use crate::waitpoint::Waitpoint;
use crate::world::{Halt, World};

/// How much of what was sent to a task a sweep clears away at once.
pub(crate) const PURGE_PAGE: usize = 256;

/// Asks for what the first page needs.
pub(crate) fn prefetch_purge(world: &mut World, task: &Task) {
    if task.has_mail {
        world.prefetch(Mailbox::key_of(&task.tenant, &task.id));
        world.prefetch_scan(&Message::of_task(&task.tenant, &task.id), PURGE_PAGE);
        world.prefetch_scan(&Waitpoint::of_task(&task.tenant, &task.id), PURGE_PAGE);
    }
}

/// Clears away up to a page each of the messages and the waitpoints of an ended task. Says whether
/// nothing is left; then its mailbox is gone as well.
pub(crate) fn purge(world: &mut World, task: &Task, page: usize) -> Result<bool, Halt> {
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
