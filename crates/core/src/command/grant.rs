use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::lane::Lane;
use crate::limits;
use crate::name::WorkerId;
use crate::primitive::{require_task, transition_to};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, Task, TaskKey};
use crate::world::World;

/// Grants a waiting task to one worker for a limited time. The worker leases it with
/// `ClaimGranted`, or with a `Claim` that accepts grants; else the task returns to its position in
/// its lane.
///
/// The same worker can extend the grant; another one is rejected while it lasts.
#[derive(Clone, Debug)]
pub struct Grant {
    pub task: TaskKey,
    pub worker: WorkerId,
    pub ttl_ms: u64,
}

impl Grant {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::WORKER.check(self.worker.as_str())?;
        limits::GRANT_MS.check(self.ttl_ms)?;
        let now = world.now();
        let task = require_task(world, &self.task)?;
        let mut until = now.plus_ms(self.ttl_ms);
        let readiness = match &task.lifecycle {
            Lifecycle::Waiting(readiness) => readiness,
            Lifecycle::Granted { readiness, worker, until: Some(granted_until) }
                if *worker == self.worker || *granted_until <= now =>
            {
                if *worker == self.worker {
                    until = until.max(*granted_until);
                }
                readiness
            }
            Lifecycle::Granted { worker, .. } => {
                return Err(Rejection::GrantedToOther { worker: worker.clone() }.into());
            }
            other if other.ended_at().is_some() => {
                return Err(Rejection::AlreadyTerminal { state: other.public() }.into());
            }
            other => return Err(Rejection::NotWaiting { state: other.public() }.into()),
        };
        let lane = world.get::<Lane>(&Lane::key_of(&task.tenant, &task.lane))?;
        if lane.is_some_and(|lane| !lane.state.leases_tasks()) {
            return Err(Rejection::LanePaused { lane: task.lane.clone() }.into());
        }
        let (readiness, worker) = (readiness.clone(), self.worker.clone());
        let change = Change::Granted { worker: worker.clone(), until };
        world.emit(Event::of_task(&task, now, change));
        let lifecycle = Lifecycle::Granted { readiness, worker, until: Some(until) };
        transition_to(world, Task { lifecycle, ..(*task).clone() })?;
        Ok(Outcome::Granted { until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, ClaimGranted, Create, Sweep};
    use crate::testing::{Stage, check_lane, check_task, claim, grant, key, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | ! task_not_found |
            waiting   |         | granted e0 a0   | until +10000     | granted
            waiting   | ttl=99  | waiting e0 a0   | ! invalid        |
            waiting   | worker= | waiting e0 a0   | ! invalid        |
            delayed   |         | delayed e0 a0   | ! not_waiting    |
            granted   |         | granted e0 a0   | until +10000     | granted
            granted   | ttl=20000 | granted e0 a0 | until +20000     | granted
            granted   | ttl=1000 | granted e0 a0  | until +10000     | granted
            granted   | worker=v | granted e0 a0  | ! granted_to_other |
            ungranted | worker=v | granted e0 a0  | until +10000     | granted
            claimed   |         | claimed e1 a0   | ! not_waiting    |
            active    |         | active e1 a1    | ! not_waiting    |
            lease_expired    |         | active e1 a1    | ! not_waiting    |
            completed |         | completed e1 a1 | ! already_terminal |
            failed    |         | failed e1 a1    | ! already_terminal |
            cancelled |         | cancelled e1 a1 | ! already_terminal |
            expired   |         | expired e1 a1   | ! already_terminal |
            waiting_children | | waiting_children e1 a1 | ! not_waiting |
            blocked   |         | blocked e0 a0   | ! not_waiting |
            owned     |         | owned e0 a0     | ! granted_to_other |
            suspended | | suspended e1 a1 | ! not_waiting |
            resumable | | granted e1 a1 | until +10000 | granted
            ",
            |args| Grant {
                task: key("t"),
                worker: args.text("worker", "w").into(),
                ttl_ms: args.number("ttl", 10_000),
            },
        );
    }

    #[test]
    fn lanes() {
        check_lane(
            "
            absent   | | absent     | ! task_not_found      |
            active   | | active     | until +10000          | granted
            paused   | | paused     | ! lane_paused |
            draining | | draining   | until +10000          | granted
            disabled | | disabled   | ! lane_paused |
            limited  | | active 0/1 | until +10000          | granted
            ",
            |_| grant("t"),
        );
    }

    #[test]
    fn a_claim_that_accepts_grants_finds_its_own_task() {
        let mut stage = Stage::with_task("granted");
        let takes = |worker: &str, grants| Claim { worker: worker.into(), grants, ..claim() };
        assert_eq!(stage.must(takes("w", false)), Outcome::Claimed(vec![]));
        assert_eq!(stage.must(takes("v", true)), Outcome::Claimed(vec![]));
        let Outcome::Claimed(tasks) = stage.must(takes("w", true)) else { panic!() };
        assert_eq!(tasks.len(), 1);
        assert_eq!(stage.run(ClaimGranted::new("t", "w")), Err(Rejection::NotGranted), "only once");
    }

    #[test]
    fn a_granted_task_is_exclusive_and_returns_to_its_position() {
        let mut stage = Stage::new();
        for id in ["a", "b"] {
            stage.must(Create::one(new_task(id)));
            stage.later(1);
        }
        stage.must(grant("a"));
        let claimed = |stage: &mut Stage| match stage.must(Claim { limit: 1, ..claim() }) {
            Outcome::Claimed(tasks) => tasks.iter().map(|task| task.id.to_string()).collect(),
            other => panic!("{other:?}"),
        };
        let first: Vec<String> = claimed(&mut stage);
        assert_eq!(first, ["b"]);
        assert!(claimed(&mut stage).is_empty());
        stage.must(Create::one(new_task("c")));
        stage.later(10_000);
        let late = ClaimGranted { task: key("a"), ..ClaimGranted::new("a", "w") };
        assert_eq!(stage.run(late), Err(Rejection::NotGranted));
        stage.must(Sweep::default());
        assert_eq!(claimed(&mut stage), ["a"], "it has waited for longer than c");
    }
}
