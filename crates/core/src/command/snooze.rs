use crate::command::Transition;
use crate::digest::Digester;
use crate::event::Change;
use crate::limits;
use crate::primitive::{LateSettle, settle};
use crate::task::{Fence, Settled};
use crate::world::World;

/// Snoozes a leased task. The attempt is not counted: nothing has failed. A resumed attempt stays
/// resumable.
#[derive(Clone, Debug)]
pub struct Snooze {
    pub fence: Fence,
    pub delay_ms: u64,
}

impl Snooze {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::DELAY_MS.check(self.delay_ms)?;
        let digest = Digester::new("snooze").json(&self.delay_ms).finish();
        settle(world, &self.fence, digest, LateSettle::Never, |_, task, now| {
            let until = now.plus_ms(self.delay_ms);
            task.snooze(until, now);
            (Settled::SnoozedUntil(until), Change::Snoozed { until })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, Suspend, Sweep};
    use crate::task::{Condition, PublicState, ResumeCause};
    use crate::testing::{Stage, check_task, claim, fence};

    #[test]
    fn a_snoozed_attempt_stays_resumed() {
        for delay_ms in [0, 5_000] {
            let mut stage = Stage::with_task("resumable");
            stage.must(Claim { worker: "without a handler".into(), ..claim() });
            stage.must(Snooze { fence: fence(2), delay_ms });
            assert_eq!(stage.task("t").unwrap().attempts, 1);
            stage.later(delay_ms);
            stage.must(Sweep::default());
            let task = stage.task("t").unwrap();
            assert_eq!(task.lifecycle.public(), PublicState::Resumable, "{delay_ms}");
            stage.must(claim());
            let task = stage.task("t").unwrap();
            assert_eq!((task.attempts, task.claims), (1, 3));
            assert_eq!(task.resumption.unwrap().cause, ResumeCause::Signals);
            stage.must(Suspend::new(fence(3), Condition::signal("go")));
            let state = stage.task("t").unwrap().lifecycle.public();
            assert_eq!(state, PublicState::Suspended, "the attempt has consumed the signal");
        }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |           | absent          | ! task_not_found    |
            waiting   |           | waiting e0 a0   | ! stale_fence       |
            delayed   |           | delayed e0 a0   | ! stale_fence       |
            granted   |           | granted e0 a0   | ! stale_fence       |
            claimed   |           | delayed e1 a0   | delayed +5000       | snoozed
            active    |           | delayed e1 a0   | delayed +5000       | snoozed
            active    | ms=0      | waiting e1 a0   | delayed +0          | snoozed
            active    | epoch=2   | active e1 a1    | ! stale_fence       |
            active    | ms=999999999999 | active e1 a1 | ! invalid        |
            lease_expired    |           | active e1 a1    | ! lease_expired     |
            completed |           | completed e1 a1 | ! already_settled |
            failed    |           | failed e1 a1    | ! already_settled |
            cancelled |           | cancelled e1 a1 | ! already_terminal  |
            expired   |           | expired e1 a1   | ! already_terminal  |
            waiting_children | | waiting_children e1 a1 | ! already_settled |
            blocked   | | blocked e0 a0 | ! stale_fence |
            owned     | | owned e0 a0    | ! stale_fence |
            suspended | | suspended e1 a1 | ! already_settled |
            resumable | | resumable e1 a1 | ! already_settled |
            ",
            |args| Snooze { fence: args.fence(), delay_ms: args.number("ms", 5_000) },
        );
    }
}
