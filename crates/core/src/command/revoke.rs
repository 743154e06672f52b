use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::limits;
use crate::primitive::{end_lease, notify_holder, require_task, transition_to};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, TaskKey};
use crate::world::World;

/// Revokes the lease or the grant of a task, for an operator. The task returns to its lane, neither
/// the attempt nor a lost lease is counted, and later writes of its holder are rejected. A resumed
/// attempt stays resumable.
#[derive(Clone, Debug)]
pub struct Revoke {
    pub task: TaskKey,
    pub reason: String,
}

impl Revoke {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::REASON.check_prose(&self.reason)?;
        let now = world.now();
        let current = require_task(world, &self.task)?;
        let mut task = (*current).clone();
        let worker = match &current.lifecycle {
            Lifecycle::Active(lease) => {
                end_lease(world, &current)?;
                notify_holder(world, &current);
                task.snooze(now, now);
                lease.worker.clone()
            }
            Lifecycle::Granted { readiness, worker, until: Some(_) } => {
                task.lifecycle = Lifecycle::Waiting(readiness.clone());
                worker.clone()
            }
            other if other.ended_at().is_some() => {
                return Err(Rejection::AlreadyTerminal { state: other.public() }.into());
            }
            _ => return Err(Rejection::NotLeased.into()),
        };
        let (epoch, reason) = (current.epoch, self.reason.clone());
        world.emit(Event::of_task(&current, now, Change::Revoked { epoch, worker, reason }));
        transition_to(world, task)?;
        Ok(Outcome::Revoked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{ClaimGranted, Complete, Renew, Resume};
    use crate::task::{PublicState, ResumeCause};
    use crate::testing::{Stage, check_task, claim, fence, key};

    fn revoke() -> Revoke {
        Revoke { task: key("t"), reason: "needed elsewhere".into() }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |      | absent          | ! task_not_found |
            waiting   |      | waiting e0 a0   | ! not_leased     |
            delayed   |      | delayed e0 a0   | ! not_leased     |
            granted   |      | waiting e0 a0   | revoked          | revoked
            ungranted |      | waiting e0 a0   | revoked          | revoked
            claimed   |      | waiting e1 a0   | revoked          | revoked
            active    |      | waiting e1 a0   | revoked          | revoked
            active    | long | active e1 a1    | ! invalid        |
            lease_expired    |      | waiting e1 a0   | revoked          | revoked
            completed |      | completed e1 a1 | ! already_terminal |
            failed    |      | failed e1 a1    | ! already_terminal |
            cancelled |      | cancelled e1 a1 | ! already_terminal |
            expired   |      | expired e1 a1   | ! already_terminal |
            waiting_children | | waiting_children e1 a1 | ! not_leased |
            blocked   |         | blocked e0 a0   | ! not_leased |
            owned     |         | owned e0 a0     | ! not_leased     |
            suspended | | suspended e1 a1 | ! not_leased |
            resumable | | resumable e1 a1 | ! not_leased |
            ",
            |args| {
                let reason = if args.has("long") { "x".repeat(5_000) } else { "no".into() };
                Revoke { reason, ..revoke() }
            },
        );
    }

    #[test]
    fn writes_of_a_revoked_holder_are_rejected() {
        let mut stage = Stage::with_task("active");
        stage.must(revoke());
        let complete = || Complete { fence: fence(1), result: None };
        let renew = Renew { fence: fence(1), lease_ms: 30_000 };
        assert_eq!(stage.run(renew), Err(Rejection::NotLeased));
        assert_eq!(stage.run(complete()), Err(Rejection::NotLeased));
        assert_eq!(stage.run(ClaimGranted::new("t", "w")), Err(Rejection::NotGranted));
        stage.must(claim());
        assert_eq!(stage.run(complete()).unwrap_err().code(), "stale_fence");
        let task = stage.task("t").unwrap();
        assert_eq!((task.claims, task.attempts, task.lost_leases), (2, 1, 0));
    }

    #[test]
    fn a_revoked_task_stays_resumed() {
        let mut stage = Stage::with_task("suspended");
        stage.must(Resume { task: key("t"), by: "ada".into() });
        stage.must(claim());
        stage.must(revoke());
        let task = stage.task("t").unwrap();
        assert_eq!(task.lifecycle.public(), PublicState::Resumable);
        stage.must(claim());
        let task = stage.task("t").unwrap();
        assert_eq!((task.attempts, task.lost_leases), (1, 0));
        assert_eq!(task.resumption.unwrap().cause, ResumeCause::Operator);
    }

    #[test]
    fn revoking_frees_the_place_in_the_lane_limit() {
        let mut stage = Stage::with_lane("limited");
        stage.must(claim());
        stage.must(revoke());
        assert_eq!(stage.lane().unwrap().concurrency.unwrap().running, 0);
    }

    #[test]
    fn a_revoked_lease_cannot_be_settled_late() {
        let mut new = crate::testing::new_task("t");
        new.policy.accept_expired_lease = true;
        let mut stage = Stage::with_new_task("active", new);
        stage.must(revoke());
        let late = Complete { fence: fence(1), result: None };
        assert_eq!(stage.run(late), Err(Rejection::NotLeased));
    }
}
