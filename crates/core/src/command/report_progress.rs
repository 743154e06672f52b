use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::limits;
use crate::primitive::require_lease;
use crate::task::{Fence, Progress, Task};
use crate::world::World;

/// Reports the progress of an attempt. It does not renew the lease.
#[derive(Clone, Debug)]
pub struct ReportProgress {
    pub fence: Fence,
    pub percent: u8,
    pub message: String,
}

impl ReportProgress {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::PERCENT.check(self.percent)?;
        limits::PROGRESS.check_prose(&self.message)?;
        let now = world.now();
        let (task, _) = require_lease(world, &self.fence)?;
        let Self { percent, message, .. } = self.clone();
        let change = Change::Progressed { epoch: task.epoch, percent, message: message.clone() };
        world.emit(Event::of_task(&task, now, change));
        let progress = Some(Progress { percent, message, at: now });
        world.put::<Task>(Task { progress, ..(*task).clone() });
        Ok(Outcome::ProgressReported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Complete, Fail, Sweep};
    use crate::task::{FailureClass, Retry};
    use crate::testing::{Stage, check_task, claim, fence};

    #[test]
    fn table() {
        check_task(
            "
            absent    |             | absent          | ! task_not_found |
            waiting   |             | waiting e0 a0   | ! stale_fence    |
            waiting   | epoch=0     | waiting e0 a0   | ! not_leased     |
            delayed   |             | delayed e0 a0   | ! stale_fence    |
            granted   |             | granted e0 a0   | ! stale_fence    |
            claimed   |             | claimed e1 a0   | progressed       | progressed
            active    |             | active e1 a1    | progressed       | progressed
            active    | percent=100 | active e1 a1    | progressed       | progressed
            active    | percent=101 | active e1 a1    | ! invalid        |
            active    | long        | active e1 a1    | ! invalid        |
            active    | epoch=2     | active e1 a1    | ! stale_fence    |
            active    | epoch=0     | active e1 a1    | ! stale_fence    |
            lease_expired    |             | active e1 a1    | ! lease_expired  |
            lease_expired    | policy=accept_expired_lease | active e1 a1    | progressed       | progressed
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
            |args| {
                let message = "x".repeat(if args.has("long") { 1_025 } else { 1_024 });
                ReportProgress { fence: args.fence(), percent: args.number("percent", 50), message }
            },
        );
    }

    #[test]
    fn the_last_report_of_an_attempt_stays_until_the_next_attempt_begins() {
        let report = |epoch, percent| ReportProgress {
            fence: fence(epoch),
            percent,
            message: "half way".into(),
        };
        let mut stage = Stage::with_task("active");
        stage.must(report(1, 50));
        stage.must(report(1, 30));
        let percent = |stage: &Stage| stage.task("t").unwrap().progress.map(|p| p.percent);
        assert_eq!(percent(&stage), Some(30));
        stage.must(Fail {
            fence: fence(1),
            class: FailureClass::Transient,
            reason: "no".into(),
            retry: Retry::Policy,
        });
        assert_eq!(percent(&stage), Some(30));
        stage.later(60_000);
        stage.must(Sweep::default());
        stage.must(claim());
        assert_eq!(percent(&stage), None);
        stage.must(report(2, 90));
        stage.must(Complete { fence: fence(2), result: None });
        assert_eq!(percent(&stage), Some(90));
    }
}
