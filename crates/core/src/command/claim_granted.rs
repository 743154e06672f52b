use crate::command::{Claim, Outcome, Transition};
use crate::lane::Lane;
use crate::name::WorkerId;
use crate::primitive::{require_task, tenant_key};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, PublicState, TaskKey};
use crate::worker::LeaseRequest;
use crate::world::World;

/// Leases one task, by id, that is granted to this worker.
#[derive(Clone, Debug)]
pub struct ClaimGranted {
    pub task: TaskKey,
    pub worker: WorkerId,
    pub lease_ms: u64,
    /// Begin the attempt in the same commit, as ordinary workers do.
    pub begin: bool,
    /// The worker is registered: the lease is revoked when it is declared dead.
    pub registered: bool,
    /// Identifies this request in the lease that it grants: see [`HeldLeases`](crate::HeldLeases).
    pub request: Option<LeaseRequest>,
}

impl ClaimGranted {
    /// A task of the default tenant, for thirty seconds.
    pub fn new(task: impl Into<crate::name::TaskId>, worker: impl Into<WorkerId>) -> Self {
        let task = TaskKey { tenant: crate::name::Tenant::default(), id: task.into() };
        let (worker, lease_ms, begin, registered) = (worker.into(), 30_000, true, false);
        Self { task, worker, lease_ms, begin, registered, request: None }
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        let now = world.now();
        let task = require_task(world, &self.task)?;
        // An earlier command of the same batch may grant it to this worker.
        world.prefetch(Lane::key_of(&task.tenant, &task.lane));
        world.prefetch(tenant_key(&task.tenant));
        match &task.lifecycle {
            Lifecycle::Granted { worker, until, .. }
                if *worker == self.worker && until.is_none_or(|until| now < until) => {}
            other if other.ended_at().is_some() => {
                return Err(Rejection::AlreadyTerminal { state: other.public() }.into());
            }
            _ => return Err(Rejection::NotGranted.into()),
        }
        if task.is_past_deadline(now) {
            return Err(Rejection::AlreadyTerminal { state: PublicState::Expired }.into());
        }
        if !task.is_claimable(now) {
            return Err(Rejection::AttemptsExhausted { max: task.policy.max_attempts() }.into());
        }
        let claim = Claim {
            tenant: task.tenant.clone(),
            lanes: vec![task.lane.clone()],
            lease_ms: self.lease_ms,
            begin: self.begin,
            registered: self.registered,
            request: self.request,
            ..Claim::new(self.worker.clone())
        };
        claim.check()?;
        Ok(Outcome::Claimed(vec![claim.lease_one(world, &task, false)?]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Complete, Create, LimitLane, NewTask, SetLaneState};
    use crate::lane::LaneState;
    use crate::name::Tenant;
    use crate::testing::{Stage, check_task, claim, fence_of, grant, key, lane, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | ! task_not_found |
            waiting   |         | waiting e0 a0   | ! not_granted    |
            delayed   |         | delayed e0 a0   | ! not_granted    |
            granted   |         | active e1 a1    | claimed 1        | claimed
            granted   | nobegin | claimed e1 a0   | claimed 1        | claimed
            granted   | worker=v | granted e0 a0  | ! not_granted    |
            granted   | worker= | granted e0 a0   | ! not_granted    |
            granted   | lease=1 | granted e0 a0   | ! invalid        |
            ungranted |         | granted e0 a0   | ! not_granted    |
            claimed   |         | claimed e1 a0   | ! not_granted    |
            active    |         | active e1 a1    | ! not_granted    |
            lease_expired    |         | active e1 a1    | ! not_granted    |
            completed |         | completed e1 a1 | ! already_terminal |
            failed    |         | failed e1 a1    | ! already_terminal |
            cancelled |         | cancelled e1 a1 | ! already_terminal |
            expired   |         | expired e1 a1   | ! already_terminal |
            waiting_children | | waiting_children e1 a1 | ! not_granted |
            blocked   |         | blocked e0 a0   | ! not_granted |
            owned     |         | active e1 a1    | claimed 1        | claimed
            suspended | | suspended e1 a1 | ! not_granted |
            resumable | | resumable e1 a1 | ! not_granted |
            ",
            |args| ClaimGranted {
                begin: !args.has("nobegin"),
                lease_ms: args.number("lease", 30_000),
                ..ClaimGranted::new("t", args.text("worker", "w").as_str())
            },
        );
    }

    #[test]
    fn the_state_and_the_limit_of_the_lane_apply() {
        let set = |state| SetLaneState { tenant: Tenant::default(), lane: lane(), state };
        for (state, rejected) in [
            (LaneState::Active, None),
            (LaneState::Draining, None),
            (LaneState::Paused, Some(Rejection::LanePaused { lane: lane() })),
            (LaneState::Disabled, Some(Rejection::LanePaused { lane: lane() })),
        ] {
            let mut stage = Stage::with_task("granted");
            stage.must(set(state));
            assert_eq!(stage.run(ClaimGranted::new("t", "w")).err(), rejected, "{state:?}");
        }
        let mut stage = Stage::with_lane("limited");
        stage.must(Create::one(new_task("u")));
        stage.must(grant("t"));
        stage.must(grant("u"));
        stage.must(ClaimGranted::new("t", "w"));
        assert_eq!(stage.lane().unwrap().concurrency.unwrap().running, 1, "it counts like a claim");
        let full = Rejection::LaneFull { lane: lane(), limit: 1 };
        assert_eq!(stage.run(ClaimGranted::new("u", "w")), Err(full));
        stage.must(Complete { fence: fence_of("t", 1), result: None });
        stage.must(ClaimGranted::new("u", "w"));
        stage.must(LimitLane { tenant: Tenant::default(), lane: lane(), limit: None });
        stage.must(Create::one(new_task("v")));
        stage.must(grant("v"));
        stage.must(ClaimGranted::new("v", "w"));
        assert_eq!(stage.lane().unwrap().concurrency.unwrap().running, 2);
    }

    #[test]
    fn a_task_past_its_deadline_is_not_leased() {
        let deadline = NewTask { deadline_ms: Some(1_000), ..new_task("t") };
        let mut stage = Stage::with_new_task("granted", deadline);
        stage.later(1_000);
        let ended = Rejection::AlreadyTerminal { state: PublicState::Expired };
        assert_eq!(stage.run(ClaimGranted::new("t", "w")), Err(ended));
    }

    #[test]
    fn the_consumed_task_is_like_any_other_under_its_lease() {
        let mut stage = Stage::with_task("granted");
        stage.must(ClaimGranted::new("t", "w"));
        assert_eq!(stage.must(claim()), Outcome::Claimed(Vec::new()));
        stage.must(Complete { fence: fence_of("t", 1), result: None });
        assert_eq!(stage.task("t").unwrap().task_key(), key("t"));
    }
}
