use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::primitive::{begin_attempt, require_lease};
use crate::task::{Fence, Lifecycle, Task};
use crate::world::World;

/// Begins the attempt of a leased task. Idempotent under one lease.
#[derive(Clone, Debug)]
pub struct Begin {
    pub fence: Fence,
}

impl Begin {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        let now = world.now();
        let (task, mut lease) = require_lease(world, &self.fence)?;
        if let Some(attempt) = lease.attempt {
            return Ok(Outcome::Begun(attempt));
        }
        let mut task = Task::clone(&task);
        let attempt = begin_attempt(&mut task, &mut lease, now)?;
        let change = Change::Begun { epoch: task.epoch, attempt: attempt.number };
        world.emit(Event::of_task(&task, now, change));
        task.lifecycle = Lifecycle::Active(lease);
        task.due_at = task.next_due();
        world.put::<Task>(task);
        Ok(Outcome::Begun(attempt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_task;

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | ! task_not_found |
            waiting   |         | waiting e0 a0   | ! stale_fence    |
            delayed   |         | delayed e0 a0   | ! stale_fence    |
            granted   |         | granted e0 a0   | ! stale_fence    |
            claimed   |         | active e1 a1    | attempt 1        | begun
            claimed   | epoch=2 | claimed e1 a0   | ! stale_fence    |
            active    |         | active e1 a1    | attempt 1        |
            lease_expired    |         | active e1 a1    | ! lease_expired  |
            completed |         | completed e1 a1 | ! already_terminal |
            failed    |         | failed e1 a1    | ! already_terminal |
            cancelled |         | cancelled e1 a1 | ! already_terminal |
            expired   |         | expired e1 a1   | ! already_terminal |
            waiting_children | | waiting_children e1 a1 | ! not_leased |
            blocked   | | blocked e0 a0 | ! stale_fence |
            owned     | | owned e0 a0    | ! stale_fence |
            suspended | | suspended e1 a1 | ! not_leased |
            resumable | | resumable e1 a1 | ! not_leased |
            ",
            |args| Begin { fence: args.fence() },
        );
    }
}
