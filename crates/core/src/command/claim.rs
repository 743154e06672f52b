use std::sync::Arc;

use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::lane::{Lane, LaneLimit};
use crate::limits;
use crate::name::{LaneName, Tenant, WorkerId};
use crate::primitive::{
    Quotas, begin_attempt, load_quotas, may_start, on_lease, receive, tenant_key,
};
use crate::ready_route::ReadyRoute;
use crate::rejection::Rejection;
use crate::row::Range;
use crate::task::{CountedByQuota, Lease, Lifecycle, Route, Task, WorkerCapabilities};
use crate::worker::LeaseRequest;
use crate::world::{Halt, World, unless_quarantined};

/// How many lanes a claim loads together; four times as many each time it finds too little.
const LANES_AT_ONCE: usize = 4;

/// How many unclaimable tasks a claim skips.
const MAX_SKIPPED: usize = 32;

/// How many tasks of each route are loaded at least, when there are many routes.
const MIN_TASKS_PER_ROUTE: usize = 4;

/// Leases the next tasks of some lanes to a worker.
///
/// Within a lane the order is priority, then the time since when it is ready, then the id. Lanes
/// take turns: `rotation` selects the first one.
#[derive(Clone, Debug)]
pub struct Claim {
    pub tenant: Tenant,
    pub lanes: Vec<LaneName>,
    pub worker: WorkerId,
    pub capabilities: WorkerCapabilities,
    pub lease_ms: u64,
    pub limit: u32,
    /// Begin the attempt in the same commit, as ordinary workers do.
    pub begin: bool,
    pub rotation: u32,
    /// How long a session stays with this worker after its last task has run. Only workers that
    /// offer sessions claim tasks of a session.
    pub session_idle_ms: u64,
    /// The worker is registered: its leases are revoked when it is declared dead.
    pub registered: bool,
    /// Identifies this request in the leases that it grants: see [`HeldLeases`](crate::HeldLeases).
    pub request: Option<LeaseRequest>,
    /// Also claims tasks granted to this worker. Workers that offer sessions always do.
    pub grants: bool,
    /// Leases the visible messages of each task with it: see [`Lease::in_flight`].
    pub deliver_messages: bool,
}

impl Claim {
    /// One task of the default lane, for thirty seconds.
    pub fn new(worker: impl Into<WorkerId>) -> Self {
        Self {
            tenant: Tenant::default(),
            lanes: vec![LaneName::default()],
            worker: worker.into(),
            capabilities: WorkerCapabilities::default(),
            lease_ms: 30_000,
            limit: 1,
            begin: true,
            rotation: 0,
            registered: false,
            request: None,
            grants: false,
            deliver_messages: false,
            session_idle_ms: limits::DEFAULT_SESSION_IDLE_MS,
        }
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.check()?;
        let mut lanes = self.lanes.clone();
        lanes.rotate_left(self.rotation as usize % self.lanes.len());
        let (mut rest, mut at_once) = (&lanes[..], LANES_AT_ONCE);
        let mut claimed = Vec::new();
        while !rest.is_empty() && claimed.len() < self.limit as usize {
            let (lanes, later) = rest.split_at(at_once.min(rest.len()));
            self.prefetch_lanes(world, lanes, self.limit as usize - claimed.len())?;
            for lane in lanes {
                self.claim_from(world, lane, &mut claimed)?;
            }
            (rest, at_once) = (later, 4 * at_once);
        }
        Ok(Outcome::Claimed(claimed))
    }

    /// Requests the rows of all these lanes before any of them is claimed from, so that they need
    /// as many loads together as one of them alone.
    fn prefetch_lanes(
        &self,
        world: &mut World,
        lanes: &[LaneName],
        wanted: usize,
    ) -> Result<(), Halt> {
        for lane in lanes {
            self.prefetch(world, lane, wanted);
        }
        if lanes.len() == 1 {
            return Ok(());
        }
        let reads = lanes.iter().map(|lane| self.next_tasks(world, lane, wanted).map(drop));
        all_or_parked::<(), ()>(reads.collect())
    }

    /// Checks the limits of the fields.
    pub fn check(&self) -> Result<(), Rejection> {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::CLAIM_LANES.check(self.lanes.len())?;
        for lane in &self.lanes {
            limits::LANE.check(lane.as_str())?;
        }
        limits::WORKER.check(self.worker.as_str())?;
        limits::LEASE_MS.check(self.lease_ms)?;
        limits::CLAIM_TASKS.check(self.limit)?;
        limits::SESSION_IDLE_MS.check(self.session_idle_ms)?;
        self.capabilities.check()
    }

    /// Requests every row that the lane probably needs, so that one load is enough.
    fn prefetch(&self, world: &mut World, lane: &LaneName, wanted: usize) {
        world.prefetch(Lane::key_of(&self.tenant, lane));
        world.prefetch(tenant_key(&self.tenant));
        let directory = ReadyRoute::of_lane(&self.tenant, lane);
        world.prefetch_ready_routes(&directory);
        for route in world.hinted_routes(&self.tenant, lane) {
            if self.capabilities.meets(&route) {
                world.prefetch_scan(&Task::ready_in(&self.tenant, lane, &route), wanted);
            }
        }
        if let Some(granted) = self.granted_range(lane) {
            world.prefetch_scan(&granted, wanted);
        }
    }

    /// The queue of tasks granted to this worker.
    fn granted_range(&self, lane: &LaneName) -> Option<Range> {
        let reads = self.grants || self.capabilities.accepts_sessions();
        let route = reads.then(|| Route::granted_to(&self.worker))?;
        Some(Task::ready_in(&self.tenant, lane, &route))
    }

    fn claim_from(
        &self,
        world: &mut World,
        name: &LaneName,
        claimed: &mut Vec<Arc<Task>>,
    ) -> Result<(), Halt> {
        let wanted = self.limit as usize - claimed.len();
        let Some(NextTasks { lane, quotas, tasks }) = self.next_tasks(world, name, wanted)? else {
            return Ok(());
        };
        if quotas.remaining(1, world.now()) == 0 {
            return quotas.mark_starved(world, name);
        }
        for task in &tasks {
            world.pick(task.task_key().row_key());
        }
        self.count_leases(world, &lane, tasks.len());
        let counted = quotas.count_claimed(world, tasks.len())?;
        let has_limit = lane.concurrency.is_some();
        let lease =
            |task: &Arc<Task>| self.lease(world, (**task).clone(), has_limit, counted, false);
        let leased: Vec<Arc<Task>> = tasks.iter().map(lease).collect();
        world.for_each_collecting(&leased, |world, task| {
            on_lease(world, task, self.session_idle_ms)
        })?;
        if self.deliver_messages {
            claimed.extend(world.for_each_collecting(leased, |world, task| receive(world, &task))?);
        } else {
            claimed.extend(leased);
        }
        Ok(())
    }

    /// The next tasks of a lane that its limit and its quotas allow; none when the lane has no
    /// claimable task or its state or limit allows none.
    fn next_tasks(
        &self,
        world: &mut World,
        name: &LaneName,
        wanted: usize,
    ) -> Result<Option<NextTasks>, Halt> {
        let lane = world.get::<Lane>(&Lane::key_of(&self.tenant, name));
        let Some(lane) = unless_quarantined(lane)?.flatten() else { return Ok(None) };
        let wanted = lane.remaining(wanted);
        if wanted == 0 {
            return Ok(None);
        }
        let Some(quotas) = load_quotas(world, &lane)? else { return Ok(None) };
        let wanted = quotas.remaining(wanted, world.now());
        if wanted == 0 {
            return Ok(Some(NextTasks { lane, quotas, tasks: Vec::new() }));
        }
        let routes = self.routes(world, name)?;
        let ranges = routes.iter().map(|route| Task::ready_in(&self.tenant, name, route));
        let ranges: Vec<Range> = ranges.chain(self.granted_range(name)).collect();
        let tasks = self.claimable_tasks(world, &ranges, wanted)?;
        Ok((!tasks.is_empty()).then_some(NextTasks { lane, quotas, tasks }))
    }

    /// The first tasks that may be claimed. A few unclaimable ones are skipped; larger numbers are
    /// left to the sweep, which wakes the workers that wait for the tasks behind them.
    fn claimable_tasks(
        &self,
        world: &mut World,
        ranges: &[Range],
        wanted: usize,
    ) -> Result<Vec<Arc<Task>>, Halt> {
        let tasks = merge_ranges(world, ranges, wanted)?;
        let may = self.may_claim(world, &tasks)?;
        if may.iter().all(|may| *may) {
            return Ok(tasks);
        }
        let tasks = merge_ranges(world, ranges, wanted + MAX_SKIPPED)?;
        let may = self.may_claim(world, &tasks)?;
        let tasks = tasks.into_iter().zip(may).filter(|(_, may)| *may);
        Ok(tasks.map(|(task, _)| task).take(wanted).collect())
    }

    fn may_claim(&self, world: &mut World, tasks: &[Arc<Task>]) -> Result<Vec<bool>, Halt> {
        let now = world.now();
        let fits = |task: &Task| task.is_claimable(now) && self.capabilities.meets(&task.route);
        let may_start = may_start(world, tasks, &self.worker)?;
        Ok(tasks.iter().zip(may_start).map(|(task, may)| may && fits(task)).collect())
    }

    /// The routes listed for a lane that this worker can serve.
    fn routes(&self, world: &mut World, lane: &LaneName) -> Result<Vec<Route>, Halt> {
        let directory = ReadyRoute::of_lane(&self.tenant, lane);
        let listed = world.scan_ready_routes(&directory)?;
        let routes: Vec<Route> = listed.iter().map(|queue| queue.route.clone()).collect();
        world.hint_routes(&self.tenant, lane, routes.clone());
        Ok(routes.into_iter().filter(|route| self.capabilities.meets(route)).collect())
    }

    fn count_leases(&self, world: &mut World, lane: &Lane, leased: usize) {
        if leased == 0 {
            return;
        }
        if let Some(mut concurrency) = lane.concurrency {
            concurrency.running += u32::try_from(leased).expect("a claim is limited");
            world.put::<Lane>(Lane { concurrency: Some(concurrency), ..lane.clone() });
        }
    }

    /// Leases one task that is granted to this worker or created for it (`eager`), if the limits of
    /// its lane allow it.
    pub(super) fn lease_one(
        &self,
        world: &mut World,
        task: &Arc<Task>,
        eager: bool,
    ) -> Result<Arc<Task>, Halt> {
        let lane = world.get::<Lane>(&Lane::key_of(&task.tenant, &task.lane))?;
        let lane = lane.ok_or(Rejection::LaneNotFound)?;
        if !lane.state.leases_tasks() {
            return Err(Rejection::LanePaused { lane: lane.name.clone() }.into());
        }
        if let Some(LaneLimit { limit: Some(limit), .. }) = lane.concurrency
            && lane.remaining(1) == 0
        {
            return Err(Rejection::LaneFull { lane: lane.name.clone(), limit }.into());
        }
        let Some(quotas) = load_quotas(world, &lane)? else {
            return Err(Rejection::Quarantined { table: "concurrency_limit" }.into());
        };
        if quotas.remaining(1, world.now()) == 0 {
            return Err(Rejection::QuotaExceeded { lane: lane.name.clone() }.into());
        }
        if may_start(world, std::slice::from_ref(task), &self.worker)? != [true] {
            return Err(Rejection::ConcurrencyLimitReached.into());
        }
        self.count_leases(world, &lane, 1);
        let counted = quotas.count_claimed(world, 1)?;
        let leased =
            self.lease(world, (**task).clone(), lane.concurrency.is_some(), counted, eager);
        on_lease(world, &leased, self.session_idle_ms)?;
        Ok(leased)
    }

    fn lease(
        &self,
        world: &mut World,
        mut task: Task,
        has_limit: bool,
        counted: CountedByQuota,
        eager: bool,
    ) -> Arc<Task> {
        let now = world.now();
        task.epoch = task.epoch.checked_add(1).expect("epochs are timestamps: no overflow");
        task.claims = task.claims.saturating_add(1);
        let expires_at = now.plus_ms(self.lease_ms);
        let paused = task.lifecycle.readiness().and_then(|ready| ready.suspended_attempt.as_ref());
        let mut lease = Lease {
            worker: self.worker.clone(),
            expires_at,
            attempt: paused.map(|paused| paused.to_active(now)),
            resumed: paused.is_some(),
            counted_by_lane_limit: has_limit,
            counted_by_quota: counted,
            in_flight: Vec::new(),
            registered: self.registered,
            request: self.request,
            eager,
        };
        if self.begin {
            begin_attempt(&mut task, &mut lease, now).expect("a waiting task has attempts left");
        }
        let attempt = lease.attempt.as_ref().map(|attempt| attempt.number);
        let (epoch, worker) = (task.epoch, self.worker.clone());
        world.emit(Event::of_task(&task, now, Change::Claimed { epoch, worker, attempt }));
        task.lifecycle = Lifecycle::Active(lease);
        task.due_at = task.next_due();
        let task = Arc::new(task);
        world.put::<Task>(task.clone());
        task
    }
}

/// The next tasks of a lane, and the quotas that count them.
struct NextTasks {
    lane: Arc<Lane>,
    quotas: Quotas,
    tasks: Vec<Arc<Task>>,
}

/// The first tasks of several routes together, in order. Each route is scanned only as far as its
/// tasks can be among them: the more routes, the less of each is loaded.
fn merge_ranges(
    world: &mut World,
    ranges: &[Range],
    wanted: usize,
) -> Result<Vec<Arc<Task>>, Halt> {
    let fair = (2 * wanted).div_ceil(ranges.len().max(1)).max(MIN_TASKS_PER_ROUTE);
    let mut shares = vec![fair.min(wanted); ranges.len()];
    loop {
        let scans = ranges.iter().zip(&shares);
        let scans = scans.map(|(range, share)| world.scan::<Task>(range, *share));
        let found: Vec<Vec<Arc<Task>>> = all_or_parked(scans.collect())?;
        let mut first: Vec<(usize, Arc<Task>)> = Vec::new();
        for (route, tasks) in found.into_iter().enumerate() {
            first.extend(tasks.into_iter().map(|task| (route, task)));
        }
        first.sort_by_key(|(_, task)| (task.rank(), task.ready_at(), task.id.clone()));
        first.truncate(wanted);
        let mut taken = vec![0; ranges.len()];
        first.iter().for_each(|(route, _)| taken[*route] += 1);
        // If the whole share was taken, its next tasks may come before those of other routes.
        let short = |(share, taken): (&usize, &usize)| taken == share && *share < wanted;
        if !shares.iter().zip(&taken).any(short) {
            return Ok(first.into_iter().map(|(_, task)| task).collect());
        }
        for (share, taken) in shares.iter_mut().zip(&taken) {
            if short((share, taken)) {
                *share = (2 * *share).min(wanted);
            }
        }
    }
}

/// Collects several reads. Each has recorded its missing rows before the first `Halt` is returned.
fn all_or_parked<T, C: FromIterator<T>>(reads: Vec<Result<T, Halt>>) -> Result<C, Halt> {
    reads.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::command::{Complete, Create, Delay, LimitLane, NewTask, Sweep};
    use crate::task::TagFilter;
    use crate::testing::{
        Stage, check_lane, check_task, claim, fence, fence_of, lane, new_task, session_claim,
    };

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | claimed 0 |
            waiting   |         | active e1 a1    | claimed 1 | claimed
            waiting   | nobegin | claimed e1 a0   | claimed 1 | claimed
            delayed   |         | delayed e0 a0   | claimed 0 |
            granted   |         | granted e0 a0   | claimed 0 |
            claimed   |         | claimed e1 a0   | claimed 0 |
            active    |         | active e1 a1    | claimed 0 |
            lease_expired    |         | active e1 a1    | claimed 0 |
            completed |         | completed e1 a1 | claimed 0 |
            failed    |         | failed e1 a1    | claimed 0 |
            cancelled |         | cancelled e1 a1 | claimed 0 |
            expired   |         | expired e1 a1   | claimed 0 |
            waiting_children | | waiting_children e1 a1 | claimed 0 |
            blocked   |         | blocked e0 a0   | claimed 0 |
            owned     |         | owned e0 a0     | claimed 0 |
            owned     | sessions=w | active e1 a1 | claimed 1 | claimed
            owned     | sessions=v | owned e0 a0    | claimed 0 |
            suspended |         | suspended e1 a1 | claimed 0 |
            resumable |         | active e2 a1    | claimed 1 | claimed
            resumable | nobegin | active e2 a1    | claimed 1 | claimed
            ",
            |args| {
                let worker = args.text("sessions", "");
                let base = if worker.is_empty() { claim() } else { session_claim(&worker) };
                Claim { begin: !args.has("nobegin"), ..base }
            },
        );
    }

    #[test]
    fn lanes() {
        check_lane(
            "
            absent   | | absent      | claimed 0 |
            active   | | active      | claimed 1 | claimed
            paused   | | paused      | claimed 0 |
            draining | | draining    | claimed 1 | claimed
            disabled | | disabled    | claimed 0 |
            limited  | | active 1/1  | claimed 1 | claimed
            ",
            |_| claim(),
        );
    }

    fn ids(outcome: Outcome) -> Vec<String> {
        let Outcome::Claimed(tasks) = outcome else { panic!("{outcome:?}") };
        tasks.iter().map(|task| task.id.to_string()).collect()
    }

    #[test]
    fn the_order_is_priority_then_time_then_id() {
        let mut stage = Stage::new();
        for (id, priority) in [("c", 0), ("a", 0), ("low", -5), ("high", 7)] {
            stage.must(Create::one(NewTask { priority, ..new_task(id) }));
        }
        stage.later(1);
        stage.must(Create::one(new_task("0-but-later")));
        let order = ids(stage.must(Claim { limit: 10, ..claim() }));
        assert_eq!(order, ["high", "a", "c", "0-but-later", "low"]);
    }

    #[test]
    fn the_order_holds_across_routes() {
        let mut stage = Stage::new();
        for (id, tag, priority) in
            [("a", None, 1), ("b", Some("x"), 3), ("c", None, 2), ("d", Some("y"), 9)]
        {
            let tag = tag.map(String::from);
            stage.must(Create::one(NewTask { tag, priority, ..new_task(id) }));
        }
        let tags = TagFilter::UntaggedAnd(BTreeSet::from(["x".to_owned()]));
        let capabilities = WorkerCapabilities { tags, ..WorkerCapabilities::default() };
        let order = ids(stage.must(Claim { limit: 10, capabilities, ..claim() }));
        assert_eq!(order, ["b", "c", "a"]);
    }

    #[test]
    fn the_order_holds_when_one_route_has_all_first_tasks() {
        let mut stage = Stage::new();
        for route in 0..10 {
            for n in 0..20 {
                let (tag, high) = (Some(format!("r{route}")), route == 3);
                let priority = if high { 100 - n } else { -n };
                let new = new_task(&format!("{route}-{n:02}"));
                stage.must(Create::one(NewTask { tag, priority, ..new }));
            }
        }
        let capabilities =
            WorkerCapabilities { tags: TagFilter::Any, ..WorkerCapabilities::default() };
        let order = ids(stage.must(Claim { limit: 20, capabilities, ..claim() }));
        let expected: Vec<String> = (0..20).map(|n| format!("3-{n:02}")).collect();
        assert_eq!(order, expected);
    }

    /// However many there are: their routes are not read at all.
    #[test]
    fn tasks_with_unmet_capabilities_do_not_block_others() {
        let mut stage = Stage::new();
        let gpu = BTreeSet::from(["gpu".to_owned()]);
        for n in 0..2 * MAX_SKIPPED {
            let new = new_task(&format!("gpu{n:02}"));
            stage.must(Create::one(NewTask { capabilities: gpu.clone(), priority: 9, ..new }));
        }
        stage.must(Create::one(new_task("plain")));
        assert_eq!(ids(stage.must(Claim { limit: 5, ..claim() })), ["plain"]);
        let capabilities = WorkerCapabilities { names: gpu, ..WorkerCapabilities::default() };
        assert_eq!(ids(stage.must(Claim { capabilities, ..claim() })), ["gpu00"]);
    }

    #[test]
    fn lanes_take_turns() {
        let mut stage = Stage::new();
        let names: Vec<String> = (0..10).map(|n| format!("lane{n}")).collect();
        for name in &names {
            for n in 0..3 {
                let new = new_task(&format!("{name}-{n}"));
                stage.must(Create::one(NewTask { lane: name.as_str().into(), ..new }));
            }
        }
        let lanes: Vec<LaneName> = names.iter().map(|name| name.as_str().into()).collect();
        for rotation in [0, 3, 9, 10] {
            let order = ids(stage.must(Claim { lanes: lanes.clone(), rotation, ..claim() }));
            assert!(order[0].starts_with(&names[rotation as usize % 10]), "{rotation}: {order:?}");
        }
        let rest = ids(stage.must(Claim { lanes, limit: 100, ..claim() }));
        assert_eq!(rest.len(), 26);
    }

    #[test]
    fn a_delayed_task_is_claimable_once_due() {
        let mut stage = Stage::new();
        let delay = Delay::For { ms: 1_500 };
        stage.must(Create::one(NewTask { delay, ..new_task("t") }));
        stage.later(1_499);
        stage.must(Sweep::default());
        assert!(ids(stage.must(claim())).is_empty());
        stage.later(1);
        stage.must(Sweep::default());
        assert_eq!(ids(stage.must(claim())), ["t"]);
    }

    #[test]
    fn a_lane_limit_bounds_the_running_tasks() {
        let mut stage = Stage::new();
        for n in 0..5 {
            stage.must(Create::one(new_task(&format!("{n}"))));
        }
        let tenant = Tenant::default();
        stage.must(LimitLane { tenant, lane: lane(), limit: Some(2) });
        assert_eq!(ids(stage.must(Claim { limit: 10, ..claim() })), ["0", "1"]);
        assert!(ids(stage.must(claim())).is_empty());
        stage.must(Complete { fence: fence_of("0", 1), result: None });
        assert_eq!(ids(stage.must(Claim { limit: 10, ..claim() })), ["2"]);
        assert_eq!(stage.lane().unwrap().concurrency.unwrap().running, 2);
    }

    #[test]
    fn unreadable_tasks_are_skipped_in_a_few_rounds() {
        let mut stage = Stage::new();
        for n in 0..500 {
            stage.must(Create::one(new_task(&format!("odd-{n}"))));
            stage.garble(&crate::testing::key(&format!("odd-{n}")).row_key());
        }
        stage.later(1);
        stage.must(Create::one(new_task("plain")));
        let mut world = World::new(stage.now, crate::world::Hints::default());
        let mut rounds = 1;
        while crate::command::decide(&mut world, &claim().into()) == crate::Decided::Parked {
            let wanted = world.take_load_request().unwrap();
            let loaded = stage.tables.load(&wanted);
            world.absorb(&wanted, loaded);
            rounds += 1;
        }
        assert!(rounds <= 12, "{rounds} rounds");
        assert_eq!(ids(stage.must(claim())), ["plain"]);
    }

    #[test]
    fn bad_input_is_rejected_by_name() {
        let many: BTreeSet<String> = (0..300).map(|n| n.to_string()).collect();
        for (named, claim) in [
            ("tenant", Claim { tenant: "".into(), ..claim() }),
            ("lanes", Claim { lanes: vec![], ..claim() }),
            ("lane", Claim { lanes: vec!["".into()], ..claim() }),
            ("worker", Claim { worker: "a\0".into(), ..claim() }),
            ("lease_ms", Claim { lease_ms: 0, ..claim() }),
            ("lease_ms", Claim { lease_ms: u64::MAX, ..claim() }),
            ("limit", Claim { limit: 0, ..claim() }),
            ("limit", Claim { limit: 1_001, ..claim() }),
            ("session_idle_ms", Claim { session_idle_ms: 0, ..claim() }),
            (
                "capabilities",
                Claim {
                    capabilities: WorkerCapabilities {
                        names: many,
                        ..WorkerCapabilities::default()
                    },
                    ..claim()
                },
            ),
        ] {
            let mut stage = Stage::with_task("waiting");
            let before = stage.tables.clone();
            match stage.run(claim) {
                Err(Rejection::Invalid { field, .. }) => assert_eq!(field, named),
                other => panic!("{named}: {other:?}"),
            }
            assert_eq!(before, stage.tables);
        }
    }

    #[test]
    fn a_task_past_its_deadline_is_not_leased() {
        let mut stage = Stage::new();
        for id in ["a", "b"] {
            stage.must(Create::one(NewTask { deadline_ms: Some(1_000), ..new_task(id) }));
        }
        stage.must(Create::one(NewTask { priority: -1, ..new_task("c") }));
        stage.later(1_000);
        assert_eq!(ids(stage.must(claim())), ["c"]);
        for n in 0..200 {
            let new = new_task(&format!("many-{n}"));
            stage.must(Create::one(NewTask { deadline_ms: Some(1_000), ..new }));
        }
        stage.must(Create::one(NewTask { priority: -1, ..new_task("d") }));
        stage.later(1_000);
        assert!(ids(stage.must(claim())).is_empty(), "many are left to the sweep");
        stage.must(Sweep::default());
        assert_eq!(ids(stage.must(claim())), ["d"]);
    }

    #[test]
    fn many_lanes_and_many_routes_take_a_few_rounds() {
        for (lanes, routes, tasks) in [(256, 0, 0), (256, 1, 0), (100, 1, 1), (1, 250, 2)] {
            let mut stage = Stage::new();
            let names: Vec<String> = (0..lanes).map(|n| format!("lane{n}")).collect();
            for lane in &names {
                for route in 0..routes {
                    for task in 0..tasks.max(1) {
                        let new = new_task(&format!("{lane}-{route}-{task}"));
                        let tag = Some(format!("r{route}"));
                        let new = NewTask { lane: lane.as_str().into(), tag, ..new };
                        stage.must(Create::one(new.clone()));
                        if tasks == 0 {
                            let (task, reason) = (crate::testing::key(new.id.as_str()), "".into());
                            stage.must(crate::command::Cancel { task, reason });
                        }
                    }
                }
            }
            let lanes: Vec<LaneName> = names.iter().map(|name| name.as_str().into()).collect();
            let capabilities =
                WorkerCapabilities { tags: TagFilter::Any, ..WorkerCapabilities::default() };
            let claim = Claim { lanes, capabilities, limit: 100, ..claim() };
            let mut world = World::new(stage.now, crate::world::Hints::default());
            let mut rounds = 1;
            while crate::decide(&mut world, &claim.clone().into()) == crate::Decided::Parked {
                let wanted = world.take_load_request().unwrap();
                let loaded = stage.tables.load(&wanted);
                world.absorb(&wanted, loaded);
                rounds += 1;
            }
            assert!(rounds <= 12, "{rounds} rounds for {routes} routes and {tasks} tasks");
        }
    }

    #[test]
    fn a_recovered_task_has_the_next_epoch() {
        let mut stage = Stage::with_task("lease_expired");
        stage.must(Sweep::default());
        let Outcome::Claimed(tasks) = stage.must(claim()) else { panic!() };
        assert_eq!(tasks[0].fence(), fence(2));
    }
}
