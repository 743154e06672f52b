use crate::command::sweep::Sweepable;
use crate::command::sweep::task::UNREADABLE_RECHECK_MS;
use crate::mailbox::{Mailbox, Message};
use crate::primitive::{
    are_related_records_readable, existing, prefetch_buffered, resume_if_met, sweep_buffered,
};
use crate::task::{Lifecycle, Task, TaskKey};
use crate::time::Timestamp;
use crate::world::{Halt, World, unless_quarantined};

impl Sweepable for Message {
    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, world: &mut World) {
        world.prefetch(Mailbox::key_of(&self.tenant, &self.task));
        world.prefetch(TaskKey::new(&self.tenant, &self.task).row_key());
        if self.buffered_until.is_some() {
            prefetch_buffered(world, self);
        }
    }

    /// Makes a message visible, and resumes its task if its condition is met.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        if self.buffered_until.is_some() {
            return sweep_buffered(world, self);
        }
        let key = TaskKey::new(&self.tenant, &self.task).row_key();
        let task = unless_quarantined(world.get::<Task>(&key))?;
        let waits = |task: &&Task| matches!(task.lifecycle, Lifecycle::Suspended(_));
        let due_at = match &task {
            None => Some(world.now().plus_ms(UNREADABLE_RECHECK_MS)),
            Some(Some(task)) if waits(&&**task) && !are_related_records_readable(world, task)? => {
                Some(world.now().plus_ms(UNREADABLE_RECHECK_MS))
            }
            Some(_) => None,
        };
        world.put::<Self>(Self { due_at, ..self.clone() });
        if due_at.is_none() {
            show(world, self)?;
        }
        if let (Some(Some(task)), None) = (task, due_at) {
            resume_if_met(world, &task)?;
        }
        Ok(())
    }
}

/// Counts the message as visible in its mailbox.
fn show(world: &mut World, message: &Message) -> Result<(), Halt> {
    let mailbox = existing(world, &message.tenant, &message.task)?;
    let hidden = mailbox.hidden.saturating_sub(1);
    world.put::<Mailbox>(Mailbox { hidden, ..(*mailbox).clone() });
    Ok(())
}
