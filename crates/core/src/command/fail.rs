use crate::command::Transition;
use crate::digest::Digester;
use crate::limits;
use crate::primitive::{LateSettle, fail, settle};
use crate::task::{FailureClass, Fence, Retry};
use crate::world::World;

/// Fails an attempt: the task is retried with backoff, or has failed for good. A failure before the
/// attempt has begun counts as one too, or the task could be retried for ever.
#[derive(Clone, Debug)]
pub struct Fail {
    pub fence: Fence,
    pub class: FailureClass,
    pub reason: String,
    pub retry: Retry,
}

impl Fail {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::REASON.check_prose(&self.reason)?;
        if let Retry::After { ms } = self.retry {
            limits::BACKOFF_MS.check(ms)?;
        }
        let digest = Digester::new("fail").json(&(self.class, &self.reason, self.retry)).finish();
        settle(world, &self.fence, digest, LateSettle::IfAllowed, |_, task, now| {
            task.count_unbegun_attempt();
            fail(task, self.class, &self.reason, self.retry, now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Sweep;
    use crate::task::PublicState;
    use crate::testing::{Args, Stage, check_task, claim, fence};

    fn command(args: &Args) -> Fail {
        let class = match args.text("class", "transient").as_str() {
            "transient" => FailureClass::Transient,
            "permanent" => FailureClass::Permanent,
            other => panic!("{other}"),
        };
        let retry = match args.text("retry", "").as_str() {
            "" => Retry::Policy,
            "giveup" => Retry::Never,
            ms => Retry::After { ms: ms.parse().unwrap() },
        };
        Fail { fence: args.fence(), class, reason: args.text("reason", "no"), retry }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |                     | absent          | ! task_not_found    |
            waiting   |                     | waiting e0 a0   | ! stale_fence       |
            delayed   |                     | delayed e0 a0   | ! stale_fence       |
            granted   |                     | granted e0 a0   | ! stale_fence       |
            claimed   |                     | delayed e1 a1   | retry +60000 | retry_scheduled
            active    |                     | delayed e1 a1   | retry +60000 | retry_scheduled
            active    | retry=5000          | delayed e1 a1   | retry +5000 | retry_scheduled
            active    | retry=0             | waiting e1 a1   | retry +0 | retry_scheduled
            active    | retry=giveup        | failed e1 a1    | failed              | failed
            active    | class=permanent     | failed e1 a1    | failed              | failed
            active    | policy=none         | failed e1 a1    | failed              | failed
            active    | epoch=2             | active e1 a1    | ! stale_fence       |
            active    | retry=99999999999   | active e1 a1    | ! invalid           |
            lease_expired    |                     | active e1 a1    | ! lease_expired     |
            completed |                     | completed e1 a1 | ! already_settled |
            failed    | class=permanent     | failed e1 a1    | failed              |
            failed    | class=permanent reason=x | failed e1 a1 | ! already_settled |
            failed    |                     | failed e1 a1    | ! already_settled |
            cancelled |                     | cancelled e1 a1 | ! already_terminal  |
            expired   |                     | expired e1 a1   | ! already_terminal  |
            waiting_children | | waiting_children e1 a1 | ! already_settled |
            blocked   | | blocked e0 a0 | ! stale_fence |
            owned     | | owned e0 a0    | ! stale_fence |
            suspended | | suspended e1 a1 | ! already_settled |
            resumable | | resumable e1 a1 | ! already_settled |
            ",
            command,
        );
    }

    #[test]
    fn one_retry_a_minute_later_and_no_more() {
        let mut stage = Stage::with_task("active");
        let fail = |epoch| Fail {
            fence: fence(epoch),
            class: FailureClass::Transient,
            reason: String::new(),
            retry: Retry::Policy,
        };
        stage.must(fail(1));
        stage.later(59_999);
        stage.must(Sweep::default());
        assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Delayed);
        stage.later(1);
        stage.must(Sweep::default());
        stage.must(claim());
        stage.must(fail(2));
        assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Failed);
        assert_eq!(stage.task("t").unwrap().attempts, 2);
    }

    #[test]
    fn a_reason_has_its_limit() {
        for reason in ["x".repeat(4_097), "a\0b".into()] {
            let mut stage = Stage::with_task("active");
            let (class, retry) = (FailureClass::Transient, Retry::Policy);
            let rejected = stage.run(Fail { fence: fence(1), class, reason, retry });
            assert_eq!(rejected.unwrap_err().code(), "invalid");
        }
    }
}
