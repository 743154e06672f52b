use crate::command::Transition;
use crate::digest::Digester;
use crate::event::Change;
use crate::limits;
use crate::primitive::{LateSettle, settle};
use crate::task::{Fence, Lifecycle, Settled};
use crate::world::World;

/// Cancels a task by its lease holder.
#[derive(Clone, Debug)]
pub struct CancelHeld {
    pub fence: Fence,
    pub reason: String,
}

impl CancelHeld {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::REASON.check_prose(&self.reason)?;
        let digest = Digester::new("cancel").part(self.reason.as_bytes()).finish();
        settle(world, &self.fence, digest, LateSettle::IfAllowed, |_, task, now| {
            let reason = self.reason.clone();
            task.lifecycle = Lifecycle::Cancelled { at: now, reason: reason.clone() };
            (Settled::Cancelled, Change::Cancelled { reason })
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
            absent    |         | absent          | ! task_not_found    |
            waiting   |         | waiting e0 a0   | ! stale_fence       |
            delayed   |         | delayed e0 a0   | ! stale_fence       |
            granted   |         | granted e0 a0   | ! stale_fence       |
            claimed   |         | cancelled e1 a0 | cancelled           | cancelled
            active    |         | cancelled e1 a1 | cancelled           | cancelled
            active    | epoch=2 | active e1 a1    | ! stale_fence       |
            active    | long    | active e1 a1    | ! invalid           |
            lease_expired    |         | active e1 a1    | ! lease_expired     |
            completed |         | completed e1 a1 | ! already_settled |
            failed    |         | failed e1 a1    | ! already_settled |
            cancelled |         | cancelled e1 a1 | ! already_terminal  |
            expired   |         | expired e1 a1   | ! already_terminal  |
            waiting_children | | waiting_children e1 a1 | ! already_settled |
            blocked   | | blocked e0 a0 | ! stale_fence |
            owned     | | owned e0 a0    | ! stale_fence |
            suspended | | suspended e1 a1 | ! already_settled |
            resumable | | resumable e1 a1 | ! already_settled |
            ",
            |args| {
                let reason = if args.has("long") { "x".repeat(5_000) } else { "stop".into() };
                CancelHeld { fence: args.fence(), reason }
            },
        );
    }
}
