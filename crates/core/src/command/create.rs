use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::admission::{Admission, Produced};
use crate::code_version::CodeVersion;
use crate::command::{Created, Outcome, Transition};
use crate::concurrency_limit::LimitKey;
use crate::digest::{Digest, Digester};
use crate::event::{Change, Event};
use crate::lane::Lane;
use crate::limits;
use crate::mailbox::{Mailbox, Message};
use crate::name::{IdempotencyKey, Kind, LaneName, TaskId, Tenant};
use crate::payload::{Payload, Slot};
use crate::primitive::{
    KeyRequest, KeyReservation, count_open_child, open, prefetch_parent, reserve_key, transition_to,
};
use crate::ready_route::ReadyRoute;
use crate::rejection::{Problem, Rejection};
use crate::task::{Lifecycle, Policy, Route, SESSIONS, Task, TaskKey};
use crate::time::Timestamp;
use crate::workflow::WorkflowState;
use crate::world::{Halt, World};

/// The scope of idempotency keys for tasks.
const SCOPE: &str = "task";

/// Creates tasks: all of them, or none.
#[derive(Clone, Debug)]
pub struct Create {
    pub tenant: Tenant,
    pub tasks: Vec<NewTask>,
}

/// The fields of a task to create.
#[derive(Clone, Debug)]
pub struct NewTask {
    pub id: TaskId,
    pub kind: Kind,
    pub lane: LaneName,
    pub payload: Option<Payload>,
    pub priority: i32,
    pub delay: Delay,
    /// How long from its creation until it expires, in whatever state it is.
    pub deadline_ms: Option<u64>,
    pub labels: BTreeMap<String, String>,
    pub capabilities: BTreeSet<String>,
    pub tag: Option<String>,
    pub policy: Policy,
    pub idempotency: Option<IdempotencyWindow>,
    /// The parent task: exists and has not ended, or comes earlier in the same bulk.
    pub parent: Option<TaskId>,
    /// The concurrency limit, session or affinity that it runs under.
    pub limit_key: Option<LimitKey>,
    /// It is a workflow: its handler is replayed.
    pub workflow: Option<NewWorkflow>,
    /// It is this step of its parent workflow, which receives a report of its end.
    pub step: Option<u64>,
}

/// The fields of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NewWorkflow {
    /// The version of its code. Only workers that can replay this version claim it.
    pub version: Option<String>,
}

/// How long a task is not ready, or a message not visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delay {
    #[default]
    None,
    For {
        ms: u64,
    },
    Until {
        at: Timestamp,
    },
}

impl Delay {
    /// The delay from now, in whole milliseconds.
    pub(crate) fn ms(self, now: Timestamp) -> u64 {
        match self {
            Delay::None => 0,
            Delay::For { ms } => ms,
            Delay::Until { at } => now.ms_until(at),
        }
    }
}

/// An idempotency key with its window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyWindow {
    pub key: IdempotencyKey,
    pub window_ms: u64,
}

impl Create {
    pub fn one(task: NewTask) -> Self {
        Self { tenant: Tenant::default(), tasks: vec![task] }
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.check(world.now())?;
        let routes: Vec<Route> = self.tasks.iter().map(NewTask::route).collect();
        for (task, route) in self.tasks.iter().zip(&routes) {
            self.prefetch(world, task, route);
        }
        let mut created = Vec::with_capacity(self.tasks.len());
        for (task, route) in self.tasks.iter().zip(&routes) {
            created.push(self.create(world, task, route)?);
        }
        Ok(Outcome::Created(created))
    }

    fn check(&self, now: Timestamp) -> Result<(), Rejection> {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::CREATE_TASKS.check(self.tasks.len())?;
        let mut ids = BTreeSet::new();
        for task in &self.tasks {
            task.check(now)?;
            if !ids.insert(&task.id) {
                let field = limits::TASK_ID.field;
                return Err(Rejection::Invalid { field, problem: Problem::Repeated });
            }
        }
        Ok(())
    }

    pub(super) fn prefetch(&self, world: &mut World, new: &NewTask, route: &Route) {
        if !world.prefetch(TaskKey::new(&self.tenant, &new.id).row_key()) {
            return;
        }
        world.prefetch(Lane::key_of(&self.tenant, &new.lane));
        world.prefetch(ReadyRoute::key_of(&self.tenant, &new.lane, route));
        if let Some(idempotency) = &new.idempotency {
            world.prefetch(Admission::key_of(&self.tenant, SCOPE, &idempotency.key));
        }
        if let Some(parent) = &new.parent {
            prefetch_parent(world, &self.tenant, parent);
        }
        if new.workflow.is_some() {
            world.prefetch(Mailbox::key_of(&self.tenant, &new.id));
        }
        if let Some(limit_key) = &new.limit_key {
            world.prefetch(limit_key.row_key(&self.tenant));
        }
    }

    fn create(&self, world: &mut World, new: &NewTask, route: &Route) -> Result<Created, Halt> {
        let existing = world.get::<Task>(&TaskKey::new(&self.tenant, &new.id).row_key())?;
        let fingerprint = new.fingerprint(route);
        if let Some(idempotency) = &new.idempotency {
            let request = KeyRequest {
                tenant: &self.tenant,
                scope: SCOPE,
                key: &idempotency.key,
                fingerprint,
                window_ms: idempotency.window_ms,
                produced: Produced::Task(new.id.clone()),
            };
            match reserve_key(world, request)? {
                KeyReservation::New => {}
                KeyReservation::Existing(Produced::Task(id)) => {
                    return Ok(Created { id, duplicate: true });
                }
                KeyReservation::Existing(_) => return Err(Rejection::Conflict.into()),
            }
        }
        if let Some(existing) = existing {
            if existing.fingerprint != fingerprint
                || !self.has_same_parent(world, new, &existing)?
            {
                return Err(Rejection::Conflict.into());
            }
            return Ok(Created { id: new.id.clone(), duplicate: true });
        }
        let mut task = self.build(world, new, route, fingerprint)?;
        world.emit(Event::of_task(&task, world.now(), Change::Created));
        deliver_buffered(world, &mut task)?;
        transition_to(world, task)?;
        Ok(Created { id: new.id.clone(), duplicate: false })
    }

    /// Builds a task without storing it: see [`transition_to`].
    fn build(
        &self,
        world: &mut World,
        new: &NewTask,
        route: &Route,
        fingerprint: Digest,
    ) -> Result<Task, Halt> {
        self.open_lane(world, new, route)?;
        if let Some(parent) = &new.parent {
            count_open_child(world, &self.tenant, parent)?;
        }
        let mut task = new.to_task(&self.tenant, route, fingerprint, world.now());
        task.epoch = world.first_epoch();
        if let Some(payload) = &new.payload {
            world.attach(task.payload_key(0, Slot::INPUT), payload.clone());
        }
        Ok(task)
    }

    /// Creates a task for a workflow, as a step or detached, without storing it. Returns none if
    /// the same detached task exists already.
    pub(super) fn create_for_workflow(
        &self,
        world: &mut World,
        new: &NewTask,
        step: Option<u64>,
    ) -> Result<Option<Task>, Halt> {
        new.check(world.now())?;
        let (route, key) = (new.route(), TaskKey::new(&self.tenant, &new.id));
        self.prefetch(world, new, &route);
        let (existing, fingerprint) = (world.get::<Task>(&key.row_key())?, new.fingerprint(&route));
        match existing {
            Some(existing) if step.is_none() && existing.fingerprint == fingerprint => Ok(None),
            Some(_) => Err(Rejection::Conflict.into()),
            None => {
                let step = step.or(new.step);
                let mut task = Task { step, ..self.build(world, new, &route, fingerprint)? };
                if task.workflow.is_some() {
                    world.emit(Event::of_task(&task, world.now(), Change::Created));
                }
                deliver_buffered(world, &mut task)?;
                Ok(Some(task))
            }
        }
    }

    /// Whether an existing child was created for the existing parent. A child of an earlier parent
    /// with the same id would report results that belong to that parent.
    fn has_same_parent(
        &self,
        world: &mut World,
        new: &NewTask,
        existing: &Task,
    ) -> Result<bool, Halt> {
        let Some(parent) = &new.parent else { return Ok(true) };
        let parent = world.get::<Task>(&TaskKey::new(&self.tenant, parent).row_key())?;
        Ok(parent.is_none_or(|parent| parent.created_at <= existing.created_at))
    }

    /// Creates a lane with its first task. Rejects tasks for a closed or a crowded lane.
    fn open_lane(&self, world: &mut World, new: &NewTask, route: &Route) -> Result<(), Halt> {
        let Some(lane) = world.get::<Lane>(&Lane::key_of(&self.tenant, &new.lane))? else {
            world.put::<Lane>(Lane::new(&self.tenant, &new.lane));
            return Ok(());
        };
        if !lane.state.accepts_tasks() {
            return Err(Rejection::LaneClosed { lane: new.lane.clone() }.into());
        }
        if lane.ready_routes >= limits::ROUTES_PER_LANE {
            let listed = ReadyRoute::key_of(&self.tenant, &new.lane, route);
            if world.get::<ReadyRoute>(&listed)?.is_none() {
                return Err(Rejection::TooManyRoutes { lane: new.lane.clone() }.into());
            }
        }
        Ok(())
    }
}

/// Delivers the messages that were buffered for a workflow before it was created.
fn deliver_buffered(world: &mut World, task: &mut Task) -> Result<(), Halt> {
    let mailbox = Mailbox::key_of(&task.tenant, &task.id);
    if task.workflow.is_some() && world.get::<Mailbox>(&mailbox)?.is_some() {
        open(world, task)?;
    }
    Ok(())
}

impl NewWorkflow {
    fn to_state(&self) -> WorkflowState {
        WorkflowState::new(self.version.clone())
    }
}

impl IdempotencyWindow {
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        limits::IDEMPOTENCY_KEY.check(self.key.expose_secret())?;
        limits::WINDOW_MS.check(self.window_ms)
    }
}

impl NewTask {
    pub fn new(id: impl Into<TaskId>, kind: impl Into<Kind>) -> Self {
        Self {
            id: id.into(),
            kind: kind.into(),
            lane: LaneName::default(),
            payload: None,
            priority: 0,
            delay: Delay::None,
            deadline_ms: None,
            labels: BTreeMap::new(),
            capabilities: BTreeSet::new(),
            tag: None,
            policy: Policy::default(),
            idempotency: None,
            limit_key: None,
            parent: None,
            workflow: None,
            step: None,
        }
    }

    pub fn route(&self) -> Route {
        let session = matches!(self.limit_key, Some(LimitKey::Session(_) | LimitKey::Affinity(_)));
        let session = session.then(|| SESSIONS.to_owned());
        let required: Vec<String> = session.into_iter().chain(self.required_version()).collect();
        if required.is_empty() {
            return Route::new(&self.capabilities, self.tag.as_deref());
        }
        let capabilities = self.capabilities.iter().cloned().chain(required).collect();
        Route::new(&capabilities, self.tag.as_deref())
    }

    /// The capability that a pinned version demands of the worker.
    fn required_version(&self) -> Option<String> {
        let version = self.workflow.as_ref()?.version.as_ref()?;
        version.parse::<CodeVersion>().ok().map(|version| version.capability(&self.kind))
    }

    pub(crate) fn check(&self, now: Timestamp) -> Result<(), Rejection> {
        limits::TASK_ID.check(self.id.as_str())?;
        limits::KIND.check(self.kind.as_str())?;
        limits::LANE.check(self.lane.as_str())?;
        limits::PRIORITY.check(self.priority)?;
        limits::check_labels(&self.labels)?;
        Route::check(&self.capabilities, self.tag.as_deref())?;
        limits::ROUTE_BYTES.check(self.route().as_str().len())?;
        self.policy.check()?;
        limits::DELAY_MS.check(self.delay.ms(now))?;
        if let Some(deadline_ms) = self.deadline_ms {
            limits::DEADLINE_MS.check(deadline_ms)?;
        }
        if let Some(payload) = &self.payload {
            payload.check()?;
        }
        if let Some(idempotency) = &self.idempotency {
            idempotency.check()?;
        }
        match &self.parent {
            Some(parent) => limits::PARENT.check(parent.as_str())?,
            None if self.step.is_some() => return Err(Rejection::ParentNotFound),
            None => {}
        }
        if let Some(limit_key) = &self.limit_key {
            limit_key.check()?;
        }
        self.check_workflow()
    }

    fn check_workflow(&self) -> Result<(), Rejection> {
        let Some(NewWorkflow { version }) = &self.workflow else { return Ok(()) };
        limits::WORKFLOW_ID.check(self.id.as_str())?;
        // Its id is the source of the messages that it sends.
        Message::check_source(self.id.as_str())?;
        if self.limit_key.is_some() {
            let problem = Problem::NotForWorkflows;
            return Err(Rejection::Invalid { field: "limit_key", problem });
        }
        version.as_ref().map_or(Ok(()), |version| version.parse::<CodeVersion>().map(drop))
    }

    /// Identifies a request: covers everything but the id and the key.
    fn fingerprint(&self, route: &Route) -> Digest {
        let digester = Digester::new("create")
            .part(self.kind.as_str().as_bytes())
            .part(self.lane.as_str().as_bytes())
            .part(route.as_str().as_bytes())
            .number(i64::from(self.priority))
            .json(&(&self.delay, &self.deadline_ms, &self.labels, &self.policy));
        let digester = match &self.parent {
            Some(parent) => digester.part(b"parent").part(parent.as_str().as_bytes()),
            None => digester,
        };
        let digester = match &self.limit_key {
            Some(key) => digester.part(b"limit_key").json(key),
            None => digester,
        };
        let digester = match &self.workflow {
            Some(workflow) => digester.part(b"workflow").json(workflow),
            None => digester,
        };
        Payload::digest(self.payload.as_ref(), digester).finish()
    }

    fn to_task(&self, tenant: &Tenant, route: &Route, fingerprint: Digest, now: Timestamp) -> Task {
        let start_at = match self.delay {
            Delay::None => now,
            Delay::For { ms } => now.plus_ms(ms),
            Delay::Until { at } => at,
        };
        Task {
            tenant: tenant.clone(),
            id: self.id.clone(),
            kind: self.kind.clone(),
            lane: self.lane.clone(),
            route: route.clone(),
            priority: self.priority,
            labels: self.labels.clone(),
            created_at: now,
            started_at: now,
            fingerprint,
            policy: self.policy.clone(),
            deadline: self.deadline_ms.map(|ms| now.plus_ms(ms)),
            execution: 0,
            epoch: 0,
            claims: 0,
            attempts: 0,
            lost_leases: 0,
            lifecycle: Lifecycle::ready_or_delayed(start_at, None, now),
            due_at: None,
            progress: None,
            last_settle: None,
            input_bytes: self.payload.as_ref().map(|payload| payload.bytes.len() as u64),
            parent: self.parent.clone(),
            limit_key: self.limit_key.clone(),
            resumption: None,
            has_mailbox: false,
            has_effects: false,
            has_children: false,
            workflow: self.workflow.as_ref().map(|new| Box::new(new.to_state())),
            step: self.step,
            results: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, SetLaneState, Sweep};
    use crate::lane::LaneState;
    use crate::testing::{Stage, check_task, claim, key, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    |             | waiting e0 a0   | created    | created
            absent    | after=5000  | delayed e0 a0   | created    | created
            absent    | at=1005000  | delayed e0 a0   | created    | created
            absent    | at=999000   | waiting e0 a0   | created    | created
            waiting   |             | waiting e0 a0   | duplicate  |
            waiting   | priority=1  | waiting e0 a0   | ! conflict |
            delayed   | after=10000 | delayed e0 a0   | duplicate  |
            delayed   |             | delayed e0 a0   | ! conflict |
            granted   |             | granted e0 a0   | duplicate  |
            claimed   |             | claimed e1 a0   | duplicate  |
            active    |             | active e1 a1    | duplicate  |
            lease_expired    |             | active e1 a1    | duplicate  |
            completed |             | completed e1 a1 | duplicate  |
            failed    |             | failed e1 a1    | duplicate  |
            cancelled |             | cancelled e1 a1 | duplicate  |
            expired   | deadline=1000 | expired e1 a1 | duplicate  |
            expired   |             | expired e1 a1   | ! conflict |
            waiting_children | | waiting_children e1 a1 | duplicate |
            blocked   |             | blocked e0 a0   | ! conflict |
            blocked   | key=k       | blocked e0 a0   | duplicate  |
            blocked   | key=other   | blocked e0 a0   | ! conflict |
            owned     |             | owned e0 a0     | ! conflict |
            owned     | session=s   | owned e0 a0     | duplicate  |
            absent    | key=k       | waiting e0 a0   | created    | created
            absent    | session=s   | waiting e0 a0   | created    | created
            suspended | | suspended e1 a1 | duplicate |
            resumable | | resumable e1 a1 | duplicate |
            ",
            |args| {
                let mut new = new_task("t");
                new.priority = args.number("priority", 0);
                if args.has("after") {
                    new.delay = Delay::For { ms: args.number("after", 0) };
                }
                if args.has("at") {
                    new.delay = Delay::Until { at: Timestamp::from_millis(args.number("at", 0)) };
                }
                if args.has("key") {
                    new.limit_key = Some(LimitKey::Concurrency(args.text("key", "")));
                }
                if args.has("session") {
                    new.limit_key = Some(LimitKey::Session(args.text("session", "")));
                }
                if args.has("deadline") {
                    new.deadline_ms = Some(args.number("deadline", 0));
                }
                Create::one(new)
            },
        );
    }

    fn keyed(id: &str, key: &str) -> NewTask {
        let idempotency = Some(IdempotencyWindow { key: key.into(), window_ms: 60_000 });
        NewTask { idempotency, ..new_task(id) }
    }

    fn created(id: &str, duplicate: bool) -> Result<Outcome, Rejection> {
        Ok(Outcome::Created(vec![Created { id: id.into(), duplicate }]))
    }

    #[test]
    fn a_key_takes_effect_once_within_its_window() {
        let mut stage = Stage::new();
        assert_eq!(stage.run(Create::one(keyed("a", "k1"))), created("a", false));
        assert_eq!(stage.run(Create::one(keyed("b", "k1"))), created("a", true));
        assert_eq!(stage.task("b"), None);
        let other = NewTask { priority: 1, ..keyed("b", "k1") };
        assert_eq!(stage.run(Create::one(other)), Err(Rejection::Conflict));
        stage.later(59_999);
        assert_eq!(stage.run(Create::one(keyed("b", "k1"))), created("a", true));
        stage.later(1);
        assert_eq!(stage.run(Create::one(keyed("b", "k1"))), created("b", false));
    }

    #[test]
    fn a_swept_key_can_be_used_again() {
        let mut stage = Stage::new();
        stage.must(Create::one(keyed("a", "k1")));
        stage.later(60_000);
        stage.must(Sweep::default());
        let left = Admission::key_of(&Tenant::default(), SCOPE, &"k1".into());
        assert_eq!(stage.record::<Admission>(&left), None);
        assert_eq!(stage.run(Create::one(keyed("b", "k1"))), created("b", false));
    }

    #[test]
    fn a_bulk_is_all_or_nothing() {
        let mut stage = Stage::new();
        stage.must(Create::one(new_task("b")));
        let clash = NewTask { priority: 9, ..new_task("b") };
        let bulk = Create { tenant: Tenant::default(), tasks: vec![new_task("a"), clash] };
        assert_eq!(stage.run(bulk), Err(Rejection::Conflict));
        assert_eq!(stage.task("a"), None);
        let bulk = Create { tenant: Tenant::default(), tasks: vec![new_task("a"), new_task("b")] };
        let Outcome::Created(created) = stage.must(bulk) else { panic!() };
        assert_eq!(created.iter().map(|a| a.duplicate).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn an_id_is_named_once_in_a_bulk() {
        let mut stage = Stage::new();
        let bulk = Create { tenant: Tenant::default(), tasks: vec![new_task("a"), new_task("a")] };
        let repeated = Rejection::Invalid { field: "id", problem: Problem::Repeated };
        assert_eq!(stage.run(bulk), Err(repeated));
    }

    #[test]
    fn tenants_are_isolated() {
        let mut stage = Stage::new();
        stage.must(Create::one(new_task("a")));
        let other = Create { tenant: "other".into(), tasks: vec![new_task("a")] };
        assert_eq!(stage.run(other), created("a", false));
        let Outcome::Claimed(tasks) = stage.must(Claim { limit: 10, ..claim() }) else { panic!() };
        assert_eq!(tasks.len(), 1);
    }

    #[test]
    fn a_closed_lane_rejects_tasks() {
        for (state, taken) in [
            (LaneState::Active, true),
            (LaneState::Paused, true),
            (LaneState::Draining, false),
            (LaneState::Disabled, false),
        ] {
            let mut stage = Stage::with_lane("active");
            let (tenant, lane) = (Tenant::default(), crate::testing::lane());
            stage.must(SetLaneState { tenant, lane: lane.clone(), state });
            let outcome = stage.run(Create::one(new_task("u")));
            if taken {
                assert_eq!(outcome, created("u", false));
            } else {
                assert_eq!(outcome, Err(Rejection::LaneClosed { lane }));
            }
        }
    }

    #[test]
    fn a_lane_has_a_limited_number_of_routes() {
        let mut stage = Stage::new();
        let tagged = |n: u32| NewTask { tag: Some(format!("tag{n}")), ..new_task(&n.to_string()) };
        for n in 0..limits::ROUTES_PER_LANE {
            stage.must(Create::one(tagged(n)));
        }
        let crowded = Rejection::TooManyRoutes { lane: crate::testing::lane() };
        assert_eq!(stage.run(Create::one(tagged(999))), Err(crowded));
        let listed = NewTask { tag: Some("tag7".into()), ..new_task("again") };
        assert_eq!(stage.run(Create::one(listed)), created("again", false));
    }

    #[test]
    fn bad_input_is_rejected_by_name_and_changes_nothing() {
        let labels = |name: &str| BTreeMap::from([(name.to_owned(), String::new())]);
        let many = || (0..257).map(|n| n.to_string()).collect();
        let wide = || (10..18).map(|n| format!("{n}{}", "x".repeat(200))).collect();
        let payload = |bytes: usize| Some(Payload::new("a/b", vec![0; bytes]));
        let base = || new_task("t");
        let policy = |change: fn(&mut Policy)| {
            let mut new = base();
            change(&mut new.policy);
            new
        };
        let rows = [
            ("id", NewTask { id: "".into(), ..base() }),
            ("id", NewTask { id: "x".repeat(256).into(), ..base() }),
            ("kind", NewTask { kind: "a\0b".into(), ..base() }),
            ("lane", NewTask { lane: "a\0b".into(), ..base() }),
            ("priority", NewTask { priority: i32::MAX, ..base() }),
            ("priority", NewTask { priority: i32::MIN, ..base() }),
            ("payload_bytes", NewTask { payload: payload(4 * 1_024 * 1_024 + 1), ..base() }),
            ("content_type", NewTask { payload: Some(Payload::new("", vec![])), ..base() }),
            ("capabilities", NewTask { capabilities: many(), ..base() }),
            ("capability", NewTask { capabilities: ["a b".to_owned()].into(), ..base() }),
            ("route_bytes", NewTask { capabilities: wide(), ..base() }),
            ("tag", NewTask { tag: Some("a,b".into()), ..base() }),
            ("label_name", NewTask { labels: labels(""), ..base() }),
            ("delay_ms", NewTask { delay: Delay::For { ms: u64::MAX }, ..base() }),
            (
                "delay_ms",
                NewTask { delay: Delay::Until { at: Timestamp::from_micros(i64::MAX) }, ..base() },
            ),
            ("deadline_ms", NewTask { deadline_ms: Some(0), ..base() }),
            ("idempotency_key", NewTask { ..keyed("t", "") }),
            (
                "concurrency_key",
                NewTask { limit_key: Some(LimitKey::Concurrency(String::new())), ..base() },
            ),
            ("session", NewTask { limit_key: Some(LimitKey::Session("a\0".into())), ..base() }),
            ("max_attempts", policy(|p| p.retry = Some(crate::task::RetryPolicy::fixed(0, 0)))),
            (
                "backoff_ms",
                policy(|p| p.retry = Some(crate::task::RetryPolicy::fixed(1, u64::MAX))),
            ),
            ("attempt_timeout_ms", policy(|p| p.attempt_timeout_ms = Some(0))),
            ("max_lost_leases", policy(|p| p.max_lost_leases = u32::MAX)),
            ("max_replays", policy(|p| p.max_replays = u32::MAX)),
            ("retention_ms", policy(|p| p.retention_ms = u64::MAX)),
        ];
        for (named, new) in rows {
            let mut stage = Stage::new();
            match stage.run(Create::one(new)) {
                Err(Rejection::Invalid { field, .. }) => assert_eq!(field, named),
                other => panic!("{named}: {other:?}"),
            }
            assert_eq!(
                stage.tables,
                crate::reference_tables::ReferenceTables::default(),
                "{named}"
            );
        }
        let none = Create { tenant: Tenant::default(), tasks: vec![] };
        assert_eq!(Stage::new().run(none).unwrap_err().code(), "invalid");
        let without_tenant = Create { tenant: "".into(), tasks: vec![base()] };
        assert_eq!(Stage::new().run(without_tenant).unwrap_err().code(), "invalid");
    }

    #[test]
    fn the_payload_is_stored_beside_the_task() {
        let mut stage = Stage::new();
        let payload = Payload::json("{\"a\":1}");
        stage.must(Create::one(NewTask { payload: Some(payload.clone()), ..new_task("t") }));
        let input = stage.task("t").unwrap().input_key().unwrap();
        assert_eq!(stage.tables.payload(&input), Some(&payload));
        assert_eq!(stage.task("t").unwrap().result_key(), None);
        assert_eq!(stage.task("t").unwrap().task_key(), key("t"));
    }
}
