//! In-flight messages of a lease.

use std::sync::Arc;

use crate::limits;
use crate::mailbox::{Mailbox, Message};
use crate::primitive::{existing, open};
use crate::record::{Record, StoredRecord};
use crate::task::{Lease, Lifecycle, Task};
use crate::world::{Halt, World};

/// Records the visible messages as in flight under a lease, up to the limit of one turn.
pub(crate) fn receive(world: &mut World, task: &Arc<Task>) -> Result<Arc<Task>, Halt> {
    let Lifecycle::Active(lease) = &task.lifecycle else { return Ok(task.clone()) };
    if !task.has_mailbox {
        return Ok(task.clone());
    }
    let mailbox = existing(world, &task.tenant, &task.id)?;
    let (now, most) = (world.now(), usize::try_from(limits::TURN_MESSAGES.max).unwrap_or(0));
    // These include as many visible messages as one turn takes.
    let first = most.min(mailbox.messages as usize) + mailbox.hidden as usize;
    let there = world.scan::<Message>(&Message::of_task(&task.tenant, &task.id), first + 1)?;
    let mut received = Vec::new();
    for message in there.iter().filter(|message| message.is_visible(now)).take(most) {
        // The commit does not check a scan; a message consumed concurrently must conflict.
        world.get::<Message>(&Message::row_key(message.key()))?;
        received.push(message.seq);
    }
    let lifecycle = Lifecycle::Active(Lease { in_flight: received, ..lease.clone() });
    let task = Arc::new(Task { lifecycle, ..(**task).clone() });
    world.put::<Task>(task.clone());
    Ok(task)
}

/// A leased task without its in-flight messages, so that no delivery is counted.
pub(crate) fn without_in_flight(task: &Task) -> Task {
    let mut task = task.clone();
    if let Lifecycle::Active(lease) = &mut task.lifecycle {
        lease.in_flight.clear();
    }
    task
}

/// Returns in-flight messages that were not consumed: visible immediately or after a delay, with or
/// without counting a delivery.
pub(crate) fn redeliver(
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
    world.for_each_collecting(received, |world, seq| {
        let key = Message::key_of(&task.tenant, &task.id, *seq);
        let Some(stored) = world.get::<Message>(&key)? else { return Ok(()) };
        let mut message = (*stored).clone();
        message.delivery_count = message.delivery_count.saturating_add(u32::from(counts));
        if let Some(delay_ms) = delay_ms.filter(|delay_ms| *delay_ms > 0) {
            message.visible_at = now.plus_ms(delay_ms);
            let shown = message.due_at.replace(message.visible_at).is_none();
            if shown {
                let mut mailbox = open(world, &mut task.clone())?;
                mailbox.hidden += 1;
                world.put::<Mailbox>(mailbox);
            }
        }
        if message != *stored {
            world.put::<Message>(message);
        }
        Ok(())
    })?;
    Ok(())
}
