use crate::command::{Outcome, Transition};
use crate::limits;
use crate::primitive::{require_task, resume};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, ResumeCause, TaskKey};
use crate::world::World;

/// Resumes a suspended task for an operator, whatever it waits for.
#[derive(Clone, Debug)]
pub struct Resume {
    pub task: TaskKey,
    /// The operator who resumes it.
    pub by: String,
}

impl Resume {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::OPERATOR.check(&self.by)?;
        let task = require_task(world, &self.task)?;
        let state = task.lifecycle.public();
        let Lifecycle::Suspended(suspension) = &task.lifecycle else {
            return Err(match task.lifecycle.ended_at() {
                Some(_) => Rejection::AlreadyTerminal { state },
                None => Rejection::NotSuspended { state },
            }
            .into());
        };
        let (paused, by) = (suspension.suspended_attempt.clone(), Some(self.by.clone()));
        resume(world, &task, paused, ResumeCause::Operator, Vec::new(), by)?;
        Ok(Outcome::Resumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, Complete, Release, Revoke, SendMessages, Suspend};
    use crate::task::{Condition, PublicState};
    use crate::testing::{Stage, check_task, claim, fence, key, message};

    #[test]
    fn table() {
        check_task(
            "
            absent    |     | absent          | ! task_not_found |
            waiting   |     | waiting e0 a0   | ! not_suspended  |
            delayed   |     | delayed e0 a0   | ! not_suspended  |
            claimed   |     | claimed e1 a0   | ! not_suspended  |
            active    |     | active e1 a1    | ! not_suspended  |
            lease_expired    |     | active e1 a1    | ! not_suspended  |
            completed |     | completed e1 a1 | ! already_terminal |
            failed    |     | failed e1 a1    | ! already_terminal |
            cancelled |     | cancelled e1 a1 | ! already_terminal |
            expired   |     | expired e1 a1   | ! already_terminal |
            suspended |     | resumable e1 a1 | resumed          | resumed
            suspended | by= | suspended e1 a1 | ! invalid        |
            resumable |     | resumable e1 a1 | ! not_suspended  |
            waiting_children | | waiting_children e1 a1 | ! not_suspended |
            blocked | | blocked e0 a0 | ! not_suspended |
            owned    | | owned e0 a0    | ! not_suspended |
            granted | | granted e0 a0 | ! not_suspended |
            ",
            |args| Resume { task: key("t"), by: args.text("by", "ada") },
        );
    }

    #[test]
    fn only_an_operator_resumes_a_task_that_waits_for_one() {
        let mut stage = Stage::with_task("active");
        stage.must(Suspend::new(fence(1), Condition::Operator));
        stage.must(SendMessages::one(message("go")));
        assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Suspended);
        stage.must(Resume { task: key("t"), by: "ada".into() });
        let resumption = stage.task("t").unwrap().resumption.unwrap();
        assert_eq!((resumption.cause, resumption.messages), (ResumeCause::Operator, vec![]));
    }

    #[test]
    fn a_resumed_attempt_keeps_its_number_its_progress_and_its_time() {
        let mut new = crate::testing::new_task("t");
        new.policy.attempt_timeout_ms = Some(20_000);
        let mut stage = Stage::with_new_task("active", new);
        let began_at = stage.now;
        stage.later(5_000);
        let (fence_1, message) = (fence(1), "half".to_owned());
        stage.must(crate::command::ReportProgress { fence: fence_1, percent: 50, message });
        stage.must(Suspend::new(fence(1), Condition::signal("go")));
        stage.later(3_600_000);
        stage.must(SendMessages::one(crate::testing::message("go")));
        stage.must(claim());
        let task = stage.task("t").unwrap();
        assert_eq!((task.claims, task.attempts), (2, 1));
        assert_eq!(task.progress.as_ref().map(|progress| progress.percent), Some(50));
        let Lifecycle::Active(lease) = &task.lifecycle else { panic!() };
        let attempt = lease.attempt.as_ref().unwrap();
        assert_eq!((attempt.number, attempt.began_at), (1, began_at));
        assert_eq!(attempt.timeout_at, Some(stage.now.plus_ms(15_000)), "the timeout was paused");
        let stale = stage.run(Complete { fence: fence(1), result: None });
        assert_eq!(stale.unwrap_err().code(), "already_settled");
    }

    #[test]
    fn a_returned_task_stays_resumable() {
        let mut stage = Stage::with_task("resumable");
        for nth in 2..5 {
            stage.must(Claim { begin: nth != 3, ..claim() });
            match nth {
                2 => stage.must(Release { fence: fence(nth) }),
                _ => stage.must(Revoke { task: key("t"), reason: "elsewhere".into() }),
            };
            let task = stage.task("t").unwrap();
            assert_eq!(task.lifecycle.public(), PublicState::Resumable);
            assert_eq!(task.attempts, 1);
        }
    }

    #[test]
    fn a_lost_lease_starts_the_attempt_over_with_all_its_messages() {
        let mut stage = Stage::with_task("resumable");
        stage.must(claim());
        stage.later(30_000);
        stage.must(crate::command::Sweep::default());
        assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Waiting);
        stage.must(claim());
        let task = stage.task("t").unwrap();
        assert_eq!((task.attempts, task.resumption), (2, None));
        let again = stage.must(Suspend::new(fence(3), Condition::signal("go")));
        assert!(matches!(again, Outcome::AlreadySatisfied(_)), "{again:?}");
    }
}
