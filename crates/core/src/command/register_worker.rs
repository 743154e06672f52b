use std::collections::BTreeSet;

use crate::command::{Outcome, Transition};
use crate::event::LeaseLoss;
use crate::limits;
use crate::name::{LaneName, Tenant, WorkerId};
use crate::primitive::lose_lease;
use crate::task::{Task, TaskList, WorkerCapabilities};
use crate::worker::{HeldLeases, Worker};
use crate::world::{Halt, World};

/// Registers a worker or renews its registration (heartbeat), with its capabilities.
///
/// A worker that misses 2.5 heartbeat intervals becomes suspect; after one more interval it is
/// declared dead, and the leases that it claimed as a registered worker are revoked. The extra
/// interval keeps a clock jump from revoking leases of workers that still send heartbeats.
#[derive(Clone, Debug)]
pub struct RegisterWorker {
    pub tenant: Tenant,
    pub id: WorkerId,
    pub lanes: BTreeSet<LaneName>,
    pub capabilities: WorkerCapabilities,
    /// The heartbeat interval.
    pub heartbeat_interval_ms: u64,
    /// The leases that this instance of the worker holds, if it tracks them. Its other leases are
    /// ended as lost, a page at a time: the response that granted them never reached it, or it
    /// abandoned them and could not release them.
    pub held: Option<HeldLeases>,
}

/// How many leases one heartbeat ends.
const MAX_REVOKED_LEASES: usize = 32;

/// How many leases it scans besides those that are held: some may be in flight.
const MAX_IN_FLIGHT_LEASES: usize = 256;

impl RegisterWorker {
    /// How long after a heartbeat a worker is not declared dead: until it is suspect, and for one
    /// interval more.
    pub const fn lasts_ms(heartbeat_interval_ms: u64) -> u64 {
        Self::suspect_after_ms(heartbeat_interval_ms).saturating_add(heartbeat_interval_ms)
    }

    /// 2.5 intervals: the second heartbeat may be in flight when it is due.
    const fn suspect_after_ms(heartbeat_interval_ms: u64) -> u64 {
        heartbeat_interval_ms.saturating_mul(5) / 2
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::WORKER.check(self.id.as_str())?;
        limits::CLAIM_LANES.check(self.lanes.len())?;
        self.lanes.iter().try_for_each(|lane| limits::LANE.check(lane.as_str()))?;
        limits::HEARTBEAT_MS.check(self.heartbeat_interval_ms)?;
        self.capabilities.check()?;
        let held = self.held.as_ref();
        held.map_or(Ok(()), |held| limits::HELD_LEASES.check(held.leases.len()))?;
        let now = world.now();
        if let Some(held) = held {
            world.prefetch_scan(&TaskList::HeldBy(&self.id).range(&self.tenant), scan_limit(held));
        }
        let worker = world.get::<Worker>(&Worker::key_of(&self.tenant, &self.id))?;
        world.put::<Worker>(Worker {
            tenant: self.tenant.clone(),
            id: self.id.clone(),
            lanes: self.lanes.clone(),
            capabilities: self.capabilities.clone(),
            registered_at: worker.as_ref().map_or(now, |worker| worker.registered_at),
            seen_at: now,
            heartbeat_interval_ms: self.heartbeat_interval_ms,
            // A heartbeat during the revocation of its leases saves those that are left.
            suspect_at: None,
            due_at: now.plus_ms(Self::suspect_after_ms(self.heartbeat_interval_ms)),
        });
        let lost = held.map_or(Ok(0), |held| self.end_unheld(world, held))?;
        Ok(Outcome::WorkerRegistered { joined: worker.is_none(), lost })
    }

    /// Ends leases of this worker that it does not hold. Returns how many.
    fn end_unheld(&self, world: &mut World, held: &HeldLeases) -> Result<usize, Halt> {
        let leased = TaskList::HeldBy(&self.id).range(&self.tenant);
        let mut leased = world.scan::<Task>(&leased, scan_limit(held))?;
        leased.retain(|task| held.lacks(task));
        leased.truncate(MAX_REVOKED_LEASES);
        let lost = world.for_each_collecting(&leased, |world, task| {
            lose_lease(world, task, LeaseLoss::NotHeld)
        })?;
        Ok(lost.into_iter().filter(|lost| *lost).count())
    }
}

fn scan_limit(held: &HeldLeases) -> usize {
    held.leases.len() + MAX_IN_FLIGHT_LEASES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, Create};
    use crate::event::{Change, LogEvent};
    use crate::task::{Lifecycle, Task};
    use crate::testing::{Stage, check_worker, claim, new_task, register};
    use crate::worker::LeaseRequest;

    #[test]
    fn table() {
        check_worker(
            "
            absent     |         | seen +0 since +0     | joined     |
            absent     | tenant= | absent               | ! invalid  |
            absent     | id=     | absent               | ! invalid  |
            absent     | every=9 | absent               | ! invalid  |
            absent     | lanes=0 | absent               | ! invalid  |
            absent     | lane=   | absent               | ! invalid  |
            absent     | able=,  | absent               | ! invalid  |
            registered | held=10000 | seen +0 since +0  | registered |
            registered | held=10001 | seen +0 since +0  | ! invalid  |
            registered |         | seen +0 since +0     | registered |
            registered | every=9 | seen +0 since +0     | ! invalid  |
            late       |         | seen +0 since +12499 | registered |
            suspect    |         | seen +0 since +12500 | registered |
            missed     |         | seen +0 since +17499 | registered |
            silent     |         | seen +0 since +17500 | registered |
            dying      |         | seen +0 since +17500 | registered |
            retired    |         | seen +0 since +0     | joined     |
            dead       |         | seen +0 since +0     | joined     |
            ",
            |args| {
                let mut register = register();
                register.tenant = args.text("tenant", "default").into();
                register.id = args.text("id", "w").into();
                register.heartbeat_interval_ms = args.number("every", 5_000);
                if args.has("lanes") {
                    register.lanes.clear();
                }
                if args.has("lane") {
                    register.lanes.insert("".into());
                }
                if args.has("held") {
                    let leases = (0..args.number("held", 0)).map(|n| (n.to_string().into(), n));
                    let leases = leases.collect();
                    register.held = Some(HeldLeases { leases, ..HeldLeases::default() });
                }
                if args.has("able") {
                    register.capabilities.names.insert(args.text("able", ""));
                }
                register
            },
        );
    }

    /// Creates a task and leases it to a request of this worker.
    fn leased(stage: &mut Stage, id: &str, worker: &str, request: Option<(u64, u64)>) -> Task {
        stage.must(Create::one(new_task(id)));
        let request = request.map(|(instance, number)| LeaseRequest { instance, number });
        let (worker, lease_ms) = (worker.into(), 3_600_000);
        stage.must(Claim { worker, lease_ms, registered: true, request, ..claim() });
        stage.task(id).unwrap()
    }

    fn holding(tasks: &[&Task], responded_below: u64) -> RegisterWorker {
        let leases = tasks.iter().map(|task| (task.id.clone(), task.epoch)).collect();
        let held = Some(HeldLeases { instance: 1, responded_below, leases });
        RegisterWorker { held, ..register() }
    }

    #[test]
    fn leases_that_a_worker_does_not_hold_are_lost() {
        let mut stage = Stage::new();
        stage.must(register());
        let held = leased(&mut stage, "held", "w", Some((1, 4)));
        for (id, worker, request) in [
            ("not held", "w", Some((1, 5))),
            ("on its way", "w", Some((1, 6))),
            ("of another instance", "w", Some((2, 1))),
            ("of a claim without a number", "w", None),
            ("of another worker", "v", Some((1, 1))),
        ] {
            leased(&mut stage, id, worker, request);
        }
        let before = stage.tables.events_after(0).count();
        let Outcome::WorkerRegistered { lost, .. } = stage.must(holding(&[&held], 6)) else {
            panic!()
        };
        assert_eq!(lost, 1);
        let task = stage.task("not held").unwrap();
        assert_eq!((task.attempts, task.lost_leases), (1, 1), "the attempt is spent");
        assert_eq!(task.lifecycle.readiness().unwrap().lost_epoch, Some(task.epoch));
        let cause = LeaseLoss::NotHeld;
        let change = Change::LeaseLost { epoch: task.epoch, lost_leases: 1, cause };
        let entries: Vec<LogEvent> = stage.tables.events_after(0).skip(before).collect();
        let changes: Vec<Change> = entries.iter().map(|entry| entry.change().unwrap()).collect();
        assert_eq!(changes, [change], "the others stay leased");
    }

    #[test]
    fn a_held_epoch_does_not_protect_the_next_lease() {
        let mut stage = Stage::new();
        stage.must(register());
        let first = leased(&mut stage, "t", "w", Some((1, 1)));
        stage.must(holding(&[], 2));
        let request = Some(LeaseRequest { instance: 1, number: 2 });
        stage.must(Claim { registered: true, request, ..claim() });
        stage.must(holding(&[&first], 2));
        assert!(matches!(stage.task("t").unwrap().lifecycle, Lifecycle::Active(_)));
        stage.must(holding(&[&first], 3));
        assert!(!matches!(stage.task("t").unwrap().lifecycle, Lifecycle::Active(_)));
    }

    #[test]
    fn many_leases_are_lost_in_pages() {
        let mut stage = Stage::new();
        stage.must(register());
        for n in 0..70 {
            stage.must(Create::one(new_task(&n.to_string())));
        }
        let request = Some(LeaseRequest { instance: 1, number: 1 });
        stage.must(Claim { limit: 70, registered: true, request, ..claim() });
        for expected in [32, 32, 6, 0] {
            let Outcome::WorkerRegistered { lost, .. } = stage.must(holding(&[], 2)) else {
                panic!()
            };
            assert_eq!(lost, expected);
        }
    }
}
