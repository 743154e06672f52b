use crate::command::Transition;
use crate::digest::Digester;
use crate::event::Change;
use crate::payload::{Payload, Slot};
use crate::primitive::{LateSettle, settle};
use crate::task::{Fence, Lifecycle, Settled};
use crate::world::World;

/// Completes a task.
#[derive(Clone, Debug)]
pub struct Complete {
    pub fence: Fence,
    pub result: Option<Payload>,
}

impl Complete {
    /// Payload bytes carried.
    pub(super) fn bytes(&self) -> usize {
        self.result.as_ref().map_or(0, |payload| payload.bytes.len())
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        if let Some(result) = &self.result {
            result.check()?;
        }
        let digest = Payload::digest(self.result.as_ref(), Digester::new("complete")).finish();
        settle(world, &self.fence, digest, LateSettle::IfAllowed, |world, task, now| {
            task.lifecycle = Lifecycle::Completed { at: now };
            if let Some(result) = &self.result {
                task.results.push(task.execution);
                world.attach(task.payload_key(task.execution, Slot::RESULT), result.clone());
            }
            (Settled::Completed, Change::Completed { epoch: task.epoch })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Replay, Sweep};
    use crate::rejection::Rejection;
    use crate::testing::{Stage, check_task, claim, fence, key, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    |             | absent          | ! task_not_found    |
            waiting   |             | waiting e0 a0   | ! stale_fence       |
            delayed   |             | delayed e0 a0   | ! stale_fence       |
            granted   |             | granted e0 a0   | ! stale_fence       |
            claimed   |             | completed e1 a0 | completed           | completed
            active    |             | completed e1 a1 | completed           | completed
            active    | epoch=2     | active e1 a1    | ! stale_fence       |
            active    | epoch=0     | active e1 a1    | ! stale_fence       |
            lease_expired    |             | active e1 a1    | ! lease_expired     |
            lease_expired    | policy=accept_expired_lease | completed e1 a1 | completed           | completed
            completed |             | completed e1 a1 | completed           |
            completed | result=x    | completed e1 a1 | ! already_settled |
            completed | epoch=2     | completed e1 a1 | ! stale_fence       |
            failed    |             | failed e1 a1    | ! already_settled |
            cancelled |             | cancelled e1 a1 | ! already_terminal  |
            expired   |             | expired e1 a1   | ! already_terminal  |
            waiting_children | | waiting_children e1 a1 | ! already_settled |
            blocked   | | blocked e0 a0 | ! stale_fence |
            owned     | | owned e0 a0    | ! stale_fence |
            suspended | | suspended e1 a1 | ! already_settled |
            resumable | | resumable e1 a1 | ! already_settled |
            ",
            |args| {
                let result = args.has("result").then(|| Payload::json(args.text("result", "")));
                Complete { fence: args.fence(), result }
            },
        );
    }

    #[test]
    fn an_expired_lease_completes_only_by_policy_and_before_the_next_claim() {
        for (accept_expired_lease, taken_again, expected) in [
            (true, false, Ok("completed")),
            (true, true, Err("stale_fence")),
            (false, false, Err("not_leased")),
        ] {
            let mut new = new_task("t");
            new.policy.accept_expired_lease = accept_expired_lease;
            let mut stage = Stage::with_new_task("lease_expired", new);
            stage.must(Sweep::default());
            if taken_again {
                stage.must(claim());
            }
            let outcome = stage.run(Complete { fence: fence(1), result: None });
            let state = stage.task("t").unwrap().lifecycle.public().as_str();
            let found = outcome.map(|_| state).map_err(|rejection| rejection.code());
            assert_eq!(found, expected);
        }
        let mut new = new_task("t");
        new.policy.accept_expired_lease = true;
        new.policy.attempt_timeout_ms = Some(1_000);
        new.policy.retry = Some(crate::task::RetryPolicy::fixed(5, 0));
        let mut stage = Stage::with_new_task("claimed", new.clone());
        stage.later(30_000);
        stage.must(Sweep::default());
        stage.must(claim());
        stage.later(1_000);
        stage.must(Sweep::default());
        let outcome = stage.run(Complete { fence: fence(2), result: None });
        assert_eq!(outcome.unwrap_err().code(), "not_leased", "its attempt had timed out");
        let mut stage = Stage::with_new_task("cancelled", new);
        stage.must(Replay { task: key("t"), execution: 0 });
        let outcome = stage.run(Complete { fence: fence(1), result: None });
        assert_eq!(outcome.unwrap_err().code(), "not_leased", "it was of another execution");
    }

    #[test]
    fn the_first_result_stays() {
        let mut stage = Stage::with_task("active");
        let complete = |text| Complete { fence: fence(1), result: Some(Payload::json(text)) };
        stage.must(complete("1"));
        stage.must(complete("1"));
        assert_eq!(stage.run(complete("2")), Err(Rejection::AlreadySettled));
        let key = stage.task("t").unwrap().result_key().unwrap();
        assert_eq!(stage.tables.payload(&key), Some(&Payload::json("1")));
    }

    #[test]
    fn a_result_has_its_limit() {
        let mut stage = Stage::with_task("active");
        let result = Some(Payload::new("a/b", vec![0; 4 * 1_024 * 1_024 + 1]));
        let rejected = stage.run(Complete { fence: fence(1), result });
        assert_eq!(rejected.unwrap_err().code(), "invalid");
    }
}
