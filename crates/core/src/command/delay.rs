use crate::command::Transition;
use crate::digest::Digester;
use crate::event::Change;
use crate::limits;
use crate::primitive::{Late, settle};
use crate::task::{Fence, Lifecycle, Settled};
use crate::world::World;

/// Puts a held task off. The attempt is given back: nothing has failed.
#[derive(Clone, Debug)]
pub struct Delay {
    pub fence: Fence,
    pub delay_ms: u64,
}

impl Delay {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::DELAY_MS.check(self.delay_ms)?;
        let digest = Digester::new("delay").json(&self.delay_ms).finish();
        settle(world, &self.fence, digest, Late::Never, |_, task, now| {
            task.give_back_attempt();
            let until = now.plus_ms(self.delay_ms);
            task.lifecycle = Lifecycle::resting(until, None, now);
            (Settled::DelayedUntil(until), Change::Delayed { until })
        })
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
            absent    |           | absent          | ! task_not_found    |
            waiting   |           | waiting e0 a0   | ! stale             |
            delayed   |           | delayed e0 a0   | ! stale             |
            granted   |           | granted e0 a0   | ! stale             |
            claimed   |           | delayed e1 a0   | delayed +5000       | delayed
            active    |           | delayed e1 a0   | delayed +5000       | delayed
            active    | ms=0      | waiting e1 a0   | delayed +0          | delayed
            active    | epoch=2   | active e1 a1    | ! stale             |
            active    | ms=999999999999 | active e1 a1 | ! invalid        |
            lapsed    |           | active e1 a1    | ! lease_expired     |
            completed |           | completed e1 a1 | ! settled_otherwise |
            failed    |           | failed e1 a1    | ! settled_otherwise |
            cancelled |           | cancelled e1 a1 | ! ended             |
            expired   |           | expired e1 a1   | ! ended             |
            waiting_children | | waiting_children e1 a1 | ! settled_otherwise |
            gated     | | blocked e0 a0 | ! stale |
            reserved  | | reserved e0 a0 | ! stale |
            suspended | | suspended e1 a1 | ! settled_otherwise |
            resumable | | resumable e1 a1 | ! settled_otherwise |
            ",
            |args| Delay { fence: args.fence(), delay_ms: args.number("ms", 5_000) },
        );
    }
}
