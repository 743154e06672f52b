//! What a lease has in hand of the mailbox of its task.

use std::sync::Arc;

use crate::limits;
use crate::mailbox::{Mailbox, Message};
use crate::primitive::{existing, open};
use crate::record::{Filed, Record};
use crate::task::{Lease, Lifecycle, Task};
use crate::world::{Halt, World};

/// Notes under a lease which messages are there to be seen, as many as one turn takes.
pub(crate) fn receive(world: &mut World, task: &Arc<Task>) -> Result<Arc<Task>, Halt> {
    let Lifecycle::Active(lease) = &task.lifecycle else { return Ok(task.clone()) };
    if !task.has_mail {
        return Ok(task.clone());
    }
    let mailbox = existing(world, &task.tenant, &task.id)?;
    let (now, most) = (world.now(), usize::try_from(limits::TURN_MESSAGES.max).unwrap_or(0));
    // As many as are seen in one turn are among the first of these.
    let first = most.min(mailbox.held as usize) + mailbox.hidden as usize;
    let there = world.scan::<Message>(&Message::of_task(&task.tenant, &task.id), first + 1)?;
    let mut received = Vec::new();
    for message in there.iter().filter(|message| message.is_visible(now)).take(most) {
        // A scan is not checked, and what was taken since is not to be received.
        world.get::<Message>(&Message::row_key(message.key()))?;
        received.push(message.seq);
    }
    let lifecycle = Lifecycle::Active(Lease { received, ..lease.clone() });
    let task = Arc::new(Task { lifecycle, ..(**task).clone() });
    world.put::<Task>(task.clone());
    Ok(task)
}

/// A leased task as if its lease had nothing in hand: what was received counts for nothing.
pub(crate) fn empty_handed(task: &Task) -> Task {
    let mut task = task.clone();
    if let Lifecycle::Active(lease) = &mut task.lifecycle {
        lease.received.clear();
    }
    task
}

/// Puts back what a lease had in hand and what is still there: to be seen at once or after a while,
/// and counted as received in vain or not.
pub(crate) fn put_back(
    world: &mut World,
    task: &Task,
    received: &[u64],
    delay_ms: Option<u64>,
    counts: bool,
) -> Result<(), Halt> {
    let now = world.now();
    for &seq in received {
        world.prefetch(Message::key_of(&task.tenant, &task.id, seq));
    }
    world.each(received, |world, seq| {
        let key = Message::key_of(&task.tenant, &task.id, *seq);
        let Some(known) = world.get::<Message>(&key)? else { return Ok(()) };
        let mut message = (*known).clone();
        message.attempts = message.attempts.saturating_add(u32::from(counts));
        if let Some(delay_ms) = delay_ms.filter(|delay_ms| *delay_ms > 0) {
            message.visible_at = now.plus_ms(delay_ms);
            let shown = message.due_at.replace(message.visible_at).is_none();
            if shown {
                let mut mailbox = open(world, &mut task.clone())?;
                mailbox.hidden += 1;
                world.put::<Mailbox>(mailbox);
            }
        }
        if message != *known {
            world.put::<Message>(message);
        }
        Ok(())
    })?;
    Ok(())
}
