use crate::command::Transition;
use crate::digest::Digester;
use crate::event::Change;
use crate::primitive::{LateSettle, settle};
use crate::task::{Fence, Settled};
use crate::world::World;

/// Releases a leased task without spending the attempt. A resumed attempt stays resumable.
#[derive(Clone, Debug)]
pub struct Release {
    pub fence: Fence,
}

impl Release {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        let digest = Digester::new("release").finish();
        settle(world, &self.fence, digest, LateSettle::Never, |_, task, now| {
            task.snooze(now, now);
            (Settled::Released, Change::Released { epoch: task.epoch })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stage, check_task, claim, fence};

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | ! task_not_found    |
            waiting   |         | waiting e0 a0   | ! stale_fence       |
            delayed   |         | delayed e0 a0   | ! stale_fence       |
            granted   |         | granted e0 a0   | ! stale_fence       |
            claimed   |         | waiting e1 a0   | released            | released
            active    |         | waiting e1 a0   | released            | released
            active    | epoch=2 | active e1 a1    | ! stale_fence       |
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
            |args| Release { fence: args.fence() },
        );
    }

    #[test]
    fn releasing_twice_releases_once() {
        let mut stage = Stage::with_task("active");
        stage.must(Release { fence: fence(1) });
        stage.must(Release { fence: fence(1) });
        stage.must(claim());
        stage.must(Release { fence: fence(1) });
        let task = stage.task("t").unwrap();
        assert_eq!((task.claims, task.attempts), (2, 1), "the lease of epoch 2 stays");
    }
}
