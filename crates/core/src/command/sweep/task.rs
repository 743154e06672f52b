use crate::command::reap::reap;
use crate::command::sweep::Due;
use crate::command::sweep::suspension::time_out;
use crate::event::{Change, Event};
use crate::lane::Lane;
use crate::mailbox::Mailbox;
use crate::primitive::{PURGE_PAGE, expire, fail, leave, place, prefetch_purge};
use crate::queue::Queue;
use crate::task::{FailureClass, Lease, Lifecycle, Retry, Task, Turn};
use crate::time::Timestamp;
use crate::world::{Halt, World, unless_quarantined};

/// When to look again at a task whose lane this version cannot read.
pub(super) const POSTPONED_MS: u64 = 60_000;

impl Due for Task {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, world: &mut World) {
        if self.lifecycle.ended_at().is_some() {
            prefetch_purge(world, self);
        } else {
            if self.has_mail {
                world.prefetch(Mailbox::key_of(&self.tenant, &self.id));
            }
            world.prefetch(Lane::key_of(&self.tenant, &self.lane));
            world.prefetch(Queue::key_of(&self.tenant, &self.lane, &self.route));
        }
    }

    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        sweep(world, self)
    }
}

/// Does what is due, or makes the next appointment when what was due has moved.
fn sweep(world: &mut World, known: &Task) -> Result<(), Halt> {
    let now = world.now();
    if known.next_due().is_none_or(|due_at| now < due_at) {
        world.put::<Task>(Task { due_at: known.next_due(), ..known.clone() });
        return Ok(());
    }
    if !neighbours_readable(world, known)? {
        world.put::<Task>(Task { due_at: Some(now.plus_ms(POSTPONED_MS)), ..known.clone() });
        return Ok(());
    }
    if known.lifecycle.ended_at().is_some() {
        return reap(world, known, PURGE_PAGE);
    }
    if known.is_past_deadline(now) {
        return expire(world, known);
    }
    if let Lifecycle::Suspended(suspension) = &known.lifecycle {
        return time_out(world, known, suspension);
    }
    leave(world, known)?;
    let mut task = known.clone();
    let change = if let Lifecycle::Active(lease) = &known.lifecycle {
        end_lease(world, &mut task, lease)
    } else {
        task.lifecycle = Lifecycle::waiting(now);
        Change::Promoted
    };
    world.emit(Event::of_task(&task, now, change));
    place(world, task)
}

pub(super) fn neighbours_readable(world: &mut World, task: &Task) -> Result<bool, Halt> {
    if task.has_mail {
        let mailbox = world.get::<Mailbox>(&Mailbox::key_of(&task.tenant, &task.id));
        if unless_quarantined(mailbox)?.is_none() {
            return Ok(false);
        }
    }
    if task.lifecycle.ended_at().is_some() {
        return Ok(true);
    }
    let lane = world.get::<Lane>(&Lane::key_of(&task.tenant, &task.lane));
    let queue = world.get::<Queue>(&Queue::key_of(&task.tenant, &task.lane, &task.route));
    Ok(unless_quarantined(lane)?.is_some() && unless_quarantined(queue)?.is_some())
}

/// The attempt took too long, or its holder was not heard of in time. A begun attempt is spent;
/// one that had not begun is not.
fn end_lease(world: &mut World, task: &mut Task, lease: &Lease) -> Change {
    let now = world.now();
    let timeout_at = lease.run.as_ref().and_then(|run| run.timeout_at);
    if timeout_at.is_some_and(|timeout_at| timeout_at <= now) {
        let reason = "the attempt took longer than it may";
        return fail(task, FailureClass::Timeout, reason, Retry::Policy, now).1;
    }
    task.reclaims += 1;
    let spent = if !task.attempts_left() {
        Some("the lease of the last attempt ran out")
    } else if task.reclaims > task.policy.max_reclaims {
        Some("leases ran out too often")
    } else {
        None
    };
    match spent {
        Some(reason) => fail(task, FailureClass::Crash, reason, Retry::GiveUp, now).1,
        None => {
            task.lifecycle =
                Lifecycle::Waiting(Turn { ready_at: now, lost: Some(task.epoch), paused: None });
            Change::LeaseExpired { epoch: task.epoch, reclaims: task.reclaims }
        }
    }
}
