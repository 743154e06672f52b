use crate::command::{Outcome, Transition};
use crate::concurrency_limit::ConcurrencyLimit;
use crate::limits;
use crate::name::{Tenant, WorkerId};
use crate::primitive::renew_affinity;
use crate::world::World;

/// How many sessions of one worker are renewed at once.
const MAX_SESSIONS: usize = 1_000;

/// Renews the locks of workers on affinities. An expired lock is not renewed, and neither is one
/// whose owner was inactive for too long.
#[derive(Clone, Debug)]
pub struct RenewSessions {
    pub tenant: Tenant,
    pub workers: Vec<WorkerId>,
    pub lock_ms: u64,
    pub idle_ms: u64,
}

impl RenewSessions {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::RENEW_WORKERS.check(self.workers.len())?;
        limits::SESSION_LOCK_MS.check(self.lock_ms)?;
        for worker in &self.workers {
            limits::WORKER.check(worker.as_str())?;
            world.prefetch_scan(&ConcurrencyLimit::owned_by(&self.tenant, worker), MAX_SESSIONS);
        }
        let mut renewed = 0;
        for worker in &self.workers {
            let owned = world.scan::<ConcurrencyLimit>(
                &ConcurrencyLimit::owned_by(&self.tenant, worker),
                MAX_SESSIONS,
            )?;
            let each = world.for_each_collecting(&owned, |world, limit| {
                renew_affinity(world, limit, self.lock_ms, self.idle_ms)
            });
            renewed += each?.into_iter().filter(|renewed| *renewed).count();
        }
        Ok(Outcome::SessionsRenewed { renewed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, Complete, Create, NewTask, ReleaseSession, Renew, Sweep};
    use crate::concurrency_limit::LimitKey;
    use crate::rejection::Rejection;
    use crate::task::{Lifecycle, PublicState};
    use crate::testing::{Stage, check_task, fence_of, new_task, session_claim};

    fn renew(worker: &str, idle_ms: u64) -> RenewSessions {
        let workers = vec![worker.into()];
        RenewSessions { tenant: Tenant::default(), workers, lock_ms: 1_000, idle_ms }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    | | absent          | renewed 0 |
            waiting   | | waiting e0 a0   | renewed 0 |
            delayed   | | delayed e0 a0   | renewed 0 |
            granted   | | granted e0 a0   | renewed 0 |
            claimed   | | claimed e1 a0   | renewed 0 |
            active    | | active e1 a1    | renewed 0 |
            lease_expired    | | active e1 a1    | renewed 0 |
            completed | | completed e1 a1 | renewed 0 |
            failed    | | failed e1 a1    | renewed 0 |
            cancelled | | cancelled e1 a1 | renewed 0 |
            expired   | | expired e1 a1   | renewed 0 |
            blocked   | | blocked e0 a0   | renewed 0 |
            owned     | | owned e0 a0     | renewed 0 |
            suspended | | suspended e1 a1 | renewed 0 |
            resumable | | resumable e1 a1 | renewed 0 |
            waiting_children | | waiting_children e1 a1 | renewed 0 |
            ",
            |_| renew("w", 60_000),
        );
    }

    #[test]
    fn a_limit_names_the_field_that_exceeds_it() {
        let none = RenewSessions { workers: Vec::new(), ..renew("w", 60_000) };
        let short = RenewSessions { lock_ms: 1, ..renew("w", 60_000) };
        for (renew, expected) in [(none, "workers"), (short, "lock_ms")] {
            match Stage::new().run(renew) {
                Err(Rejection::Invalid { field, .. }) => assert_eq!(field, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }

    fn of(id: &str) -> Create {
        Create::one(NewTask { limit_key: Some(LimitKey::Affinity("s".into())), ..new_task(id) })
    }

    fn claims(stage: &mut Stage, worker: &str) -> Vec<String> {
        let claim = Claim { session_idle_ms: 1_000, limit: 5, ..session_claim(worker) };
        let outcome = stage.must(claim);
        let Outcome::Claimed(tasks) = outcome else { panic!("{outcome:?}") };
        tasks.iter().map(|task| task.id.to_string()).collect()
    }

    fn renewed(stage: &mut Stage, worker: &str, idle_ms: u64) -> usize {
        match stage.must(renew(worker, idle_ms)) {
            Outcome::SessionsRenewed { renewed } => renewed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_lock_owner_runs_any_number_of_tasks_at_once() {
        let mut stage = Stage::new();
        stage.must(of("a"));
        stage.must(of("b"));
        assert_eq!(claims(&mut stage, "w"), ["a", "b"]);
        stage.must(of("c"));
        assert!(claims(&mut stage, "v").is_empty());
        stage.later(600);
        assert_eq!(renewed(&mut stage, "w", 60_000), 1);
        stage.later(600);
        stage.must(Sweep::default());
        assert!(claims(&mut stage, "v").is_empty(), "the lock was renewed");
        stage.later(400);
        stage.must(Sweep::default());
        assert_eq!(claims(&mut stage, "v"), ["c"], "running tasks do not hold the lock");
        let held = stage.task("a").unwrap();
        assert!(matches!(held.lifecycle, Lifecycle::Active(_)));
        stage.must(Complete { fence: held.fence(), result: None });
        assert_eq!(renewed(&mut stage, "w", 60_000), 0, "an expired lock is not renewed");
        assert_eq!(renewed(&mut stage, "v", 60_000), 1);
    }

    #[test]
    fn an_expired_lock_is_not_renewed() {
        for (ms, expected) in [(999, 1), (1_000, 0)] {
            let mut stage = Stage::new();
            stage.must(of("a"));
            claims(&mut stage, "w");
            stage.later(ms);
            assert_eq!(renewed(&mut stage, "w", 60_000), expected, "after {ms} ms");
        }
    }

    #[test]
    fn an_idle_owner_loses_the_lock() {
        let mut stage = Stage::new();
        stage.must(of("a"));
        claims(&mut stage, "w");
        assert_eq!(renewed(&mut stage, "w", 0), 0);
        stage.later(500);
        assert_eq!(renewed(&mut stage, "w", 500), 0);
        stage.must(Renew { fence: fence_of("a", 1), lease_ms: 30_000 });
        assert_eq!(renewed(&mut stage, "w", 500), 1, "an owner that renews a lease is active");
        stage.later(500);
        stage.must(Complete { fence: fence_of("a", 1), result: None });
        assert_eq!(renewed(&mut stage, "w", 500), 1, "and so is an owner that completes a task");
    }

    #[test]
    fn a_lost_lease_stays_with_the_owner_of_the_lock() {
        let mut stage = Stage::new();
        stage.must(of("a"));
        let claim = Claim { session_idle_ms: 60_000, lease_ms: 100, ..session_claim("w") };
        stage.must(claim);
        stage.later(100);
        stage.must(Sweep::default());
        assert!(claims(&mut stage, "v").is_empty());
        assert_eq!(claims(&mut stage, "w"), ["a"]);
        assert_eq!(stage.task("a").unwrap().attempts, 2);
    }

    #[test]
    fn an_affinity_is_retained_until_it_is_released_or_swept() {
        let mut stage = Stage::new();
        let (tenant, session) = (Tenant::default(), "s".to_owned());
        let forget = ReleaseSession { tenant, session, affinity: true };
        stage.must(of("a"));
        claims(&mut stage, "w");
        stage.must(of("late"));
        stage.must(forget.clone());
        assert!(claims(&mut stage, "v").is_empty(), "a live lock is not taken over");
        assert_eq!(claims(&mut stage, "w"), ["late"]);
        stage.later(2_000);
        stage.must(Complete { fence: fence_of("a", 1), result: None });
        let late = stage.task("late").unwrap().fence();
        stage.must(Complete { fence: late, result: None });
        stage.must(Sweep::default());
        assert_eq!(stage.limits().len(), 1, "also when its lock has expired");
        stage.must(forget);
        assert!(stage.limits().is_empty());
        stage.must(of("b"));
        assert_eq!(stage.task("b").unwrap().lifecycle.public(), PublicState::Waiting);
        claims(&mut stage, "w");
        stage.must(Complete { fence: stage.task("b").unwrap().fence(), result: None });
        stage.later(3_602_000);
        stage.must(Sweep::default());
        assert!(stage.limits().is_empty(), "the sweep deletes it");
    }
}
