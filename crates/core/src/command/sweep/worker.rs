use crate::command::sweep::Sweepable;
use crate::event::LeaseLoss;
use crate::primitive::{lose_lease, release_sessions_of};
use crate::task::{Task, TaskList};
use crate::time::Timestamp;
use crate::worker::Worker;
use crate::world::{Halt, World};

/// How many leases of one worker a sweep revokes: many workers may have died together.
const MAX_REVOKED_LEASES: usize = 32;

/// How many sessions of one worker a sweep releases.
const MAX_RELEASED_SESSIONS: usize = 32;

impl Sweepable for Worker {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.due_at)
    }

    fn prefetch(&self, world: &mut World) {
        world.prefetch_scan(&TaskList::HeldBy(&self.id).range(&self.tenant), MAX_REVOKED_LEASES);
    }

    /// Marks a worker suspect that missed its heartbeats. If it is silent for one more interval,
    /// its leases are revoked, a page at a time, its sessions are released, and it is deleted. A
    /// lease that is claimed meanwhile under its name expires at its own time.
    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        let now = world.now();
        if self.suspect_at.is_none() {
            let due_at = now.plus_ms(self.heartbeat_interval_ms);
            world.put::<Worker>(Worker { suspect_at: Some(now), due_at, ..self.clone() });
            return Ok(());
        }
        let held = world
            .scan::<Task>(&TaskList::HeldBy(&self.id).range(&self.tenant), MAX_REVOKED_LEASES)?;
        let lost = world.for_each_collecting(&held, |world, task| {
            lose_lease(world, task, LeaseLoss::WorkerDead)
        })?;
        let ended = lost.into_iter().filter(|lost| *lost).count();
        // Leases that cannot be ended here would be found again by every sweep.
        let leases_left = held.len() == MAX_REVOKED_LEASES && ended > 0;
        if !leases_left
            && !release_sessions_of(world, &self.tenant, &self.id, MAX_RELEASED_SESSIONS)?
        {
            world.remove(&Self::key_of(&self.tenant, &self.id));
            return Ok(());
        }
        world.put::<Worker>(Worker { due_at: now, ..self.clone() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, Complete, Create, DeregisterWorker, NewTask, Outcome, Sweep};
    use crate::concurrency_limit::LimitKey;
    use crate::lane::Lane;
    use crate::name::Tenant;
    use crate::row::RowKey;
    use crate::task::Lifecycle;
    use crate::testing::{Stage, check_worker, claim, lane, new_task, register, session_claim};

    #[test]
    fn table() {
        check_worker(
            "
            absent     | | absent               | swept 0 next none   |
            registered | | seen +0 since +0     | swept 0 next +12500 |
            late       | | seen +12499 since +12499 | swept 0 next +1 |
            suspect    | | seen +12500 since +12500 missed | swept 1 next +5000 |
            missed     | | seen +17499 since +17499 missed | swept 0 next +1 |
            silent     | | absent               | swept 1 next none   |
            dying      | | absent               | swept 1 next +3582500 | lease_lost
            retired    | | absent               | swept 0 next none   |
            dead       | | absent               | swept 0 next none   |
            ",
            |_| Sweep::default(),
        );
    }

    fn held(stage: &Stage) -> usize {
        let tasks = stage.tables.rows().filter(|row| row.key.table == crate::record::Table::Task);
        tasks.filter(|row| row.body.contains(r#""state":"active""#)).count()
    }

    #[test]
    fn the_leases_of_a_dead_worker_end_in_pages() {
        let mut stage = Stage::new();
        stage.must(register());
        for n in 0..70 {
            stage.must(Create::one(new_task(&format!("{n:02}"))));
        }
        let claim = |registered| Claim { lease_ms: 3_600_000, registered, ..claim() };
        stage.must(Claim { limit: 68, ..claim(true) });
        stage.must(claim(false));
        stage.must(Claim { worker: "v".into(), ..claim(true) });
        stage.miss_worker(4_999);
        stage.must(Sweep::default());
        assert_eq!(held(&stage), 70, "the third heartbeat may be in flight");
        stage.later(1);
        for (left, done) in [(38, false), (6, false), (2, true)] {
            stage.must(Sweep::default());
            assert_eq!(held(&stage), left);
            let key = Worker::key_of(&Tenant::default(), &"w".into());
            let worker = stage.record::<Worker>(&key);
            assert_eq!(worker.is_none(), done);
        }
        let task = stage.task("07").unwrap();
        assert_eq!((task.claims, task.attempts, task.lost_leases), (1, 1, 1));
        let readiness = task.lifecycle.readiness().unwrap();
        assert_eq!((readiness.ready_at, readiness.lost_epoch), (stage.now, Some(task.epoch)));
    }

    /// It runs nothing, and does not return for its sessions.
    #[test]
    fn the_sessions_of_a_dead_or_retired_worker_are_released() {
        type End = fn(&mut Stage);
        let ends: [(&str, End); 2] = [
            ("dead", |stage| {
                stage.miss_worker(5_000);
                while stage.record::<Worker>(&worker_key()).is_some() {
                    stage.must(Sweep::default());
                }
            }),
            ("retired", |stage| {
                stage.must(DeregisterWorker { tenant: Tenant::default(), id: "w".into() });
            }),
        ];
        for (what, end) in ends {
            let mut stage = Stage::new();
            stage.must(register());
            for n in 0..70 {
                let limit_key = Some(LimitKey::Session(n.to_string()));
                for id in [format!("a{n}"), format!("b{n}")] {
                    let limit_key = limit_key.clone();
                    stage.must(Create::one(NewTask { limit_key, ..new_task(&id) }));
                }
            }
            let all = |worker| Claim { limit: 1_000, ..session_claim(worker) };
            let Outcome::Claimed(tasks) = stage.must(all("w")) else { panic!() };
            for task in &tasks {
                stage.must(Complete { fence: task.fence(), result: None });
            }
            assert_eq!(stage.must(all("v")), Outcome::Claimed(vec![]), "they are granted to w");
            end(&mut stage);
            let Outcome::Claimed(tasks) = stage.must(all("v")) else { panic!() };
            assert_eq!(tasks.len(), 70, "{what}");
        }
    }

    fn worker_key() -> RowKey {
        Worker::key_of(&Tenant::default(), &"w".into())
    }

    #[test]
    fn a_worker_with_timely_heartbeats_keeps_its_leases() {
        let mut stage = Stage::with_task("waiting");
        stage.must(register());
        stage.must(Claim { lease_ms: 3_600_000, registered: true, ..claim() });
        for _ in 0..10 {
            stage.miss_worker(4_999);
            stage.must(register());
            stage.must(Sweep::default());
        }
        assert!(matches!(stage.task("t").unwrap().lifecycle, Lifecycle::Active(_)));
    }

    #[test]
    fn a_clock_jump_revokes_no_lease_of_a_live_worker() {
        let mut stage = Stage::with_task("waiting");
        stage.must(register());
        stage.must(Claim { lease_ms: 86_400_000, registered: true, ..claim() });
        stage.later(3_600_000);
        stage.must(Sweep::default());
        stage.later(4_999);
        stage.must(register());
        stage.later(1);
        stage.must(Sweep::default());
        assert!(matches!(stage.task("t").unwrap().lifecycle, Lifecycle::Active(_)));
    }

    #[test]
    fn an_unreadable_lane_does_not_retain_a_dead_worker() {
        let mut stage = Stage::with_task("waiting");
        stage.must(register());
        stage.must(Claim { lease_ms: 3_600_000, registered: true, ..claim() });
        stage.garble(&Lane::key_of(&Tenant::default(), &lane()));
        stage.miss_worker(5_000);
        let Outcome::Swept { swept: 1, .. } = stage.must(Sweep::default()) else { panic!() };
        assert!(matches!(stage.task("t").unwrap().lifecycle, Lifecycle::Active(_)));
        assert_eq!(stage.record::<Worker>(&Worker::key_of(&Tenant::default(), &"w".into())), None);
    }
}
