use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::limits;
use crate::primitive::{mark_active, require_lease};
use crate::task::{Fence, Lifecycle, Task};
use crate::world::World;

/// Extends a lease. `due_at` stays: at that time the sweep sees the later expiry and sets a later
/// due time, so that a renewal writes no index.
#[derive(Clone, Debug)]
pub struct Renew {
    pub fence: Fence,
    pub lease_ms: u64,
}

impl Renew {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::LEASE_MS.check(self.lease_ms)?;
        let now = world.now();
        let (task, mut lease) = require_lease(world, &self.fence)?;
        lease.expires_at = lease.expires_at.max(now.plus_ms(self.lease_ms));
        let expires_at = lease.expires_at;
        mark_active(world, &task)?;
        let change = Change::Renewed { epoch: task.epoch, expires_at };
        world.emit(Event::of_task(&task, now, change));
        world.put::<Task>(Task { lifecycle: Lifecycle::Active(lease), ..(*task).clone() });
        Ok(Outcome::Renewed { expires_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Sweep;
    use crate::testing::{Stage, check_task, fence};

    #[test]
    fn table() {
        check_task(
            "
            absent    |             | absent          | ! task_not_found |
            waiting   |             | waiting e0 a0   | ! stale_fence    |
            waiting   | epoch=0     | waiting e0 a0   | ! not_leased     |
            delayed   |             | delayed e0 a0   | ! stale_fence    |
            granted   |             | granted e0 a0   | ! stale_fence    |
            granted   | epoch=0     | granted e0 a0   | ! not_leased     |
            claimed   |             | claimed e1 a0   | until +60000     | renewed
            active    |             | active e1 a1    | until +60000     | renewed
            active    | lease=1000  | active e1 a1    | until +30000     | renewed
            active    | epoch=2     | active e1 a1    | ! stale_fence    |
            active    | epoch=0     | active e1 a1    | ! stale_fence    |
            active    | lease=0     | active e1 a1    | ! invalid        |
            active    | lease=99999999 | active e1 a1 | ! invalid        |
            lease_expired    |             | active e1 a1    | ! lease_expired  |
            lease_expired    | policy=accept_expired_lease | active e1 a1    | until +60000     | renewed
            completed |             | completed e1 a1 | ! already_terminal |
            failed    |             | failed e1 a1    | ! already_terminal |
            cancelled |             | cancelled e1 a1 | ! already_terminal |
            expired   |             | expired e1 a1   | ! already_terminal |
            waiting_children | | waiting_children e1 a1 | ! not_leased |
            blocked   | | blocked e0 a0 | ! stale_fence |
            owned     | | owned e0 a0    | ! stale_fence |
            suspended | | suspended e1 a1 | ! not_leased |
            resumable | | resumable e1 a1 | ! not_leased |
            ",
            |args| Renew { fence: args.fence(), lease_ms: args.number("lease", 60_000) },
        );
    }

    #[test]
    fn the_sweep_follows_a_renewed_lease() {
        let mut stage = Stage::with_task("active");
        let first = stage.task("t").unwrap().due_at;
        stage.must(Renew { fence: fence(1), lease_ms: 60_000 });
        assert_eq!(stage.task("t").unwrap().due_at, first);
        stage.later(30_000);
        stage.must(Sweep::default());
        assert_eq!(stage.task("t").unwrap().due_at, Some(stage.now.plus_ms(30_000)));
        assert_eq!(stage.task("t").unwrap().claims, 1);
    }
}
