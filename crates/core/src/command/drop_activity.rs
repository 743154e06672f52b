use crate::command::Transition;
use crate::digest::Digester;
use crate::event::Change;
use crate::limits;
use crate::primitive::{LateSettle, remove_activity, require_task, settle};
use crate::task::{Fence, Lifecycle, Settled};
use crate::world::World;

/// Ends a leased step of a workflow without a report, or a leased standalone task, and deletes it
/// at once.
#[derive(Clone, Debug)]
pub struct DropActivity {
    pub fence: Fence,
    pub reason: String,
}

impl DropActivity {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::REASON.check_prose(&self.reason)?;
        let digest = Digester::new("drop_activity").part(self.reason.as_bytes()).finish();
        let outcome = settle(world, &self.fence, digest, LateSettle::IfAllowed, |_, task, now| {
            // Without its step, its end is not reported.
            task.step = None;
            task.policy.retention_ms = 0;
            let reason = self.reason.clone();
            task.lifecycle = Lifecycle::Cancelled { at: now, reason: reason.clone() };
            (Settled::Cancelled, Change::Cancelled { reason })
        })?;
        let ended = require_task(world, &self.fence.task)?;
        remove_activity(world, &ended)?;
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Create, NewTask, NewWorkflow};
    use crate::testing::{Stage, check_task, claim, fence_of, lane};

    #[test]
    fn table() {
        check_task(
            "
            absent    |             | absent          | ! task_not_found    |
            waiting   |             | waiting e0 a0   | ! stale_fence       |
            delayed   |             | delayed e0 a0   | ! stale_fence       |
            granted   |             | granted e0 a0   | ! stale_fence       |
            claimed   |             | absent          | cancelled           | cancelled
            active    |             | absent          | cancelled           | cancelled
            active    | epoch=2     | active e1 a1    | ! stale_fence       |
            lease_expired    |             | active e1 a1    | ! lease_expired     |
            lease_expired    | policy=accept_expired_lease | absent          | cancelled           | cancelled
            completed |             | completed e1 a1 | ! already_settled |
            failed    |             | failed e1 a1    | ! already_settled |
            cancelled |             | cancelled e1 a1 | ! already_terminal  |
            expired   |             | expired e1 a1   | ! already_terminal  |
            suspended |             | suspended e1 a1 | ! already_settled |
            resumable |             | resumable e1 a1 | ! already_settled |
            waiting_children | | waiting_children e1 a1 | ! already_settled |
            blocked   | | blocked e0 a0 | ! stale_fence |
            owned     | | owned e0 a0    | ! stale_fence |
            ",
            |args| DropActivity { fence: args.fence(), reason: "no".into() },
        );
    }

    #[test]
    fn the_workflow_of_a_dropped_step_gets_no_report() {
        let mut stage = Stage::new();
        let workflow = Some(NewWorkflow::default());
        stage.must(Create::one(NewTask { workflow, ..NewTask::new("t", "order") }));
        let step = NewTask {
            lane: lane(),
            parent: Some("t".into()),
            step: Some(3),
            ..NewTask::new("t/3", "charge")
        };
        stage.must(Create::one(step));
        stage.must(claim());
        stage.must(DropActivity { fence: fence_of("t/3", 1), reason: "no".into() });
        assert!(stage.task("t/3").is_none());
        let parent = stage.task("t").expect("it exists");
        assert!(!parent.has_mailbox, "it has no report");
    }
}
