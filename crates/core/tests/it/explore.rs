//! Visits every state that a small alphabet of commands can reach, breadth first, so that a
//! reported sequence is a shortest one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use windlass_core::command::{
    Admit, Begin, Cancel, ChangePriority, Claim, ClaimEffect, ClaimGranted, Complete,
    CompleteRequest, CompleteWaitpoint, ConsumeMessages, Create, CreateWaitpoint, Delay,
    DeleteTask, DeregisterWorker, Fail, Grant, IdempotencyWindow, LimitLane, NewMessage, NewTask,
    NewWaitpoint, NewWorkflow, PruneExecutions, QuotaScope, RegisterWorker, Release,
    ReleaseRequest, ReleaseSession, Renew, Replay, RequestCancel, Resume, Revoke, RotateSigningKey,
    SendMessages, SetLaneState, SetQuota, SettleEffect, Snooze, Suspend, SuspendTimeout, Sweep,
    WaitChildren,
};
use windlass_core::{
    ChangeSet, Command, Condition, EffectOwner, FailureClass, Fence, LaneState, LimitKey,
    LimitKind, OnTimeout, Outcome, Payload, Rate, ReferenceTables, Rejection, RequestKey,
    RequestTtls, Retry, RetryPolicy, SESSIONS, Secret, Table, Tenant, fingerprint,
};

use crate::batch::{START, claim, key, lane, new_task};
use crate::invariants::View;
use crate::steps::{Ghost, Step};
use crate::workflows::{Operation, turn};

/// An act of the alphabet. Acts under a lease use the fence of the last claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// With a payload, without a retry policy.
    CreatePlain(&'static str),
    /// Two attempts with a backoff, each shorter than a lease.
    CreateRetried(&'static str),
    /// With its own route.
    CreateTagged(&'static str),
    /// A child of the second, deleted soon after it has ended.
    CreateChild(&'static str, &'static str),
    /// The second and then a child of it, together.
    CreateFamily(&'static str, &'static str),
    Claim,
    ClaimOnly,
    Begin,
    Complete,
    /// Under the fence of the claim before the last.
    CompleteEarlier,
    Fail,
    Release,
    Snooze,
    Renew,
    /// Under the fence of the last claim of this task.
    WaitChildren(&'static str),
    /// Under the fence of the last claim of this task.
    CompleteOf(&'static str),
    Cancel(&'static str),
    Replay(&'static str),
    DeleteTask(&'static str),
    Lane(LaneState),
    Limit(Option<u32>),
    /// With a condition, and the action when it times out after `LEASE_MS`.
    Suspend(Until, Option<OnTimeout>),
    Send(&'static str),
    /// Visible after `LEASE_MS`.
    PostLater(&'static str),
    /// With an idempotency key and a payload.
    PostKeyed(&'static str),
    /// Through the waitpoint whose token was issued last.
    CompleteWaitpoint,
    Waitpoint,
    Resume,
    /// Takes the first message.
    Take,
    /// Adds this signing key, without a grace period for the previous one.
    Rotate(&'static str),
    Sweep,
    /// Time passes, then a sweep.
    After(u64),
    /// Time passes, without a sweep.
    Wait(u64),
    /// One at a time, by its concurrency key.
    CreateKeyed(&'static str),
    /// A child of the second, with the same concurrency key.
    CreateKeyedChild(&'static str, &'static str),
    /// The same, with a deadline before a lease ends.
    CreateKeyedDated(&'static str),
    CreateInSession(&'static str),
    /// A claim by a worker that owns sessions.
    ClaimAs(&'static str),
    /// How many at once, and how many starts in how many milliseconds.
    Quota(LimitKind, Option<u32>, Option<(u32, u64)>),
    ReleaseSession,
    Raise(&'static str),
    /// As a registered worker, with a lease that ends long after the worker is declared dead.
    ClaimRegistered,
    /// A heartbeat of the worker of all claims.
    Register,
    Retire,
    /// Granted to the worker of all claims, or to another one.
    Grant(&'static str),
    GrantOther(&'static str),
    ClaimGranted(&'static str),
    Revoke(&'static str),
    /// Admits the one request, for this owner.
    Admit(&'static str),
    /// The same key with another fingerprint.
    AdmitOther(&'static str),
    CompleteRequest(&'static str),
    ReleaseRequest(&'static str),
    /// Claims an effect for the request, as this owner.
    Call(&'static str),
    Settle(&'static str),
    /// Claims an effect for the task of the last claim.
    CallOfTask,
    SettleOfTask,
    CreateWorkflow(&'static str),
    /// Under the fence of the last claim of this workflow.
    Turn(&'static str, Operation),
    /// Under the fence of the claim of it before the last.
    TurnEarlier(&'static str),
    /// Under the fence of the last claim of a step of this workflow.
    CompleteStep(&'static str),
    RequestCancel(&'static str),
    Prune(&'static str),
    /// Two nodes decide on the same state; the second commits on top of the first, or decides again
    /// on a conflict.
    Race(&'static Act, &'static Act),
}

/// The condition of a suspension.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Go,
    /// Two different ones.
    Both,
    /// A message through a waitpoint that is created with it.
    Approved,
    Operator,
}

pub(crate) const LEASE_MS: u64 = 30_000;
pub(crate) const BACKOFF_MS: u64 = 10_000;
pub(crate) const IDLE_MS: u64 = 20_000;
pub(crate) const REPLAY_MS: u64 = 3_600_000;
pub(crate) const GRANT_MS: u64 = 10_000;
pub(crate) const BEAT_MS: u64 = 4_000;
/// When a silent worker is suspect; after the same time again it is declared dead.
pub(crate) const SILENT_MS: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct Scope {
    /// The acts before the search starts; checked like the rest.
    pub(crate) start: &'static [Act],
    pub(crate) alphabet: &'static [Act],
    /// Acts of which every two also race each other.
    pub(crate) racing: &'static [Act],
    pub(crate) depth: usize,
    /// The fewest states and steps that the search has to visit.
    pub(crate) floor: (usize, usize),
}

#[derive(Clone)]
struct Node {
    view: View,
    ghost: Ghost,
    path: Vec<Act>,
}

/// The result of a search: how much it visited, and a shortest path to each broken invariant.
#[derive(Debug, Default)]
pub(crate) struct SearchResult {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    broken: BTreeMap<&'static str, String>,
}

impl Act {
    /// The command; none without the claim that it needs.
    fn command(self, node: &Node) -> Option<Command> {
        let fences = &node.ghost.fences;
        let last = || fences.last().cloned();
        let (tenant, lane) = (Tenant::default(), lane());
        Some(match self {
            Act::CreatePlain(id) => {
                let mut new = new_task(id);
                new.payload = Some(Payload::json(format!("{id:?}")));
                Create::one(new).into()
            }
            Act::CreateRetried(id) => {
                let mut new = new_task(id);
                new.policy.retry = Some(RetryPolicy::fixed(2, BACKOFF_MS));
                new.policy.attempt_timeout_ms = Some(LEASE_MS - BACKOFF_MS);
                Create::one(new).into()
            }
            Act::CreateTagged(id) => {
                let mut new = new_task(id);
                new.tag = Some(id.to_owned());
                Create::one(new).into()
            }
            Act::CreateChild(id, parent) => Create::one(child(id, parent)).into(),
            Act::CreateFamily(id, parent) => {
                let tasks = vec![new_task(parent), child(id, parent)];
                Create { tenant, tasks }.into()
            }
            Act::Claim => Claim { lease_ms: LEASE_MS, ..claim(1) }.into(),
            Act::ClaimOnly => Claim { lease_ms: LEASE_MS, begin: false, ..claim(1) }.into(),
            Act::Begin => Begin { fence: last()? }.into(),
            Act::Complete => complete(last()?),
            Act::CompleteEarlier => complete(fences.iter().rev().nth(1).cloned()?),
            Act::Fail => fail(last()?),
            Act::Release => Release { fence: last()? }.into(),
            Act::Snooze => Snooze { fence: last()?, delay_ms: 5_000 }.into(),
            Act::Renew => Renew { fence: last()?, lease_ms: 2 * LEASE_MS }.into(),
            Act::WaitChildren(id) => WaitChildren { fence: last_of(fences, id)? }.into(),
            Act::CompleteOf(id) => complete(last_of(fences, id)?),
            Act::Cancel(id) => Cancel { task: key(id), reason: "stop".into() }.into(),
            Act::Replay(id) => {
                let execution = node.view.tasks.get(&id.into()).map_or(0, |task| task.execution);
                Replay { task: key(id), execution }.into()
            }
            Act::DeleteTask(id) => DeleteTask { task: key(id) }.into(),
            Act::Lane(state) => SetLaneState { tenant, lane, state }.into(),
            Act::Limit(limit) => LimitLane { tenant, lane, limit }.into(),
            Act::Suspend(until, action) => suspend(last()?, until, action),
            Act::Send(name) => SendMessages::one(message(name)).into(),
            Act::PostLater(name) => SendMessages::one(NewMessage {
                delay: Delay::For { ms: LEASE_MS },
                ..message(name)
            })
            .into(),
            Act::PostKeyed(name) => {
                let idempotency = Some(IdempotencyWindow { key: "k".into(), window_ms: LEASE_MS });
                let payload = Some(Payload::json("1"));
                SendMessages::one(NewMessage { idempotency, payload, ..message(name) }).into()
            }
            Act::CompleteWaitpoint => CompleteWaitpoint {
                tenant,
                token: node.ghost.token.clone()?,
                name: "yes".into(),
                source: "ada".into(),
                idempotency: None,
                payload: None,
            }
            .into(),
            Act::Waitpoint => {
                CreateWaitpoint { task: key("a"), epoch: None, waitpoint: waitpoint("p") }.into()
            }
            Act::Resume => Resume { task: key("a"), by: "ada".into() }.into(),
            Act::Take => ConsumeMessages { fence: last()?, seqs: vec![1] }.into(),
            Act::Rotate(id) => {
                let secret = Secret::new("07".repeat(32));
                RotateSigningKey { tenant, id: id.into(), secret, grace_ms: 0, if_absent: false }
                    .into()
            }
            Act::Sweep | Act::After(_) => Sweep::default().into(),
            Act::CreateKeyed(id) => create_limited(id, LimitKey::Concurrency("k".into())),
            Act::CreateKeyedChild(id, parent) => {
                let limit_key = Some(LimitKey::Concurrency("k".into()));
                Create::one(NewTask { limit_key, ..child(id, parent) }).into()
            }
            Act::CreateKeyedDated(id) => {
                let mut new = new_task(id);
                new.limit_key = Some(LimitKey::Concurrency("k".into()));
                new.deadline_ms = Some(LEASE_MS / 2);
                Create::one(new).into()
            }
            Act::CreateInSession(id) => create_limited(id, LimitKey::Session("s".into())),
            Act::ClaimAs(worker) => {
                let mut claim = Claim { lease_ms: LEASE_MS, worker: worker.into(), ..claim(1) };
                claim.capabilities.names.insert(SESSIONS.to_owned());
                claim.session_idle_ms = IDLE_MS;
                claim.into()
            }
            Act::Quota(kind, limit, rate) => {
                let scope = match kind {
                    LimitKind::Concurrency => QuotaScope::Concurrency("k".into()),
                    LimitKind::Session => QuotaScope::Session("s".into()),
                    LimitKind::Lane => QuotaScope::Lane(lane),
                    LimitKind::Tenant => QuotaScope::Tenant,
                    LimitKind::Affinity => unreachable!("an affinity has no quota"),
                };
                let rate = rate.map(|(limit, window_ms)| Rate { limit, window_ms });
                SetQuota { tenant, scope, limit, rate }.into()
            }
            Act::ReleaseSession => {
                ReleaseSession { tenant, session: "s".into(), affinity: false }.into()
            }
            Act::Raise(id) => ChangePriority { task: key(id), priority: 5 }.into(),
            Act::ClaimRegistered => {
                Claim { lease_ms: 100 * LEASE_MS, registered: true, ..claim(1) }.into()
            }
            Act::Register => {
                let (id, capabilities) = ("w".into(), claim(1).capabilities);
                let (lanes, heartbeat_interval_ms, held) = ([lane].into(), BEAT_MS, None);
                RegisterWorker { tenant, id, lanes, capabilities, heartbeat_interval_ms, held }
                    .into()
            }
            Act::Retire => DeregisterWorker { tenant, id: "w".into() }.into(),
            Act::Grant(id) => grant(id, "w"),
            Act::GrantOther(id) => grant(id, "v"),
            Act::ClaimGranted(id) => ClaimGranted {
                registered: true,
                lease_ms: 100 * LEASE_MS,
                ..ClaimGranted::new(id, "w")
            }
            .into(),
            Act::Revoke(id) => Revoke { task: key(id), reason: "elsewhere".into() }.into(),
            Act::Admit(owner) => admit(owner, "this"),
            Act::AdmitOther(owner) => admit(owner, "other"),
            Act::CompleteRequest(owner) => {
                let (request, response) = (request(), Payload::json(format!("{owner:?}")));
                CompleteRequest { request, owner: owner.into(), response }.into()
            }
            Act::ReleaseRequest(owner) => {
                ReleaseRequest { request: request(), owner: owner.into() }.into()
            }
            Act::Call(owner) => call(for_request(owner), owner),
            Act::Settle(owner) => settle(for_request(owner), owner),
            Act::CallOfTask => call(EffectOwner::Task(last()?), &last()?.epoch.to_string()),
            Act::SettleOfTask => settle(EffectOwner::Task(last()?), &last()?.epoch.to_string()),
            Act::CreateWorkflow(id) => {
                let workflow = Some(NewWorkflow::default());
                let payload = Some(Payload::json("0"));
                Create::one(NewTask { workflow, payload, ..new_task(id) }).into()
            }
            Act::Turn(id, doing) => return turn(&node.view, last_of(fences, id)?, doing),
            Act::TurnEarlier(id) => {
                let mut own = fences.iter().rev().filter(|fence| fence.task.id.as_str() == id);
                return turn(&node.view, own.nth(1)?.clone(), Operation::Make);
            }
            Act::CompleteStep(id) => {
                let of = |fence: &&Fence| fence.task.id.as_str().starts_with(&format!("{id}/"));
                complete(fences.iter().rev().find(of)?.clone())
            }
            Act::RequestCancel(id) => {
                RequestCancel { task: key(id), reason: "please".into() }.into()
            }
            Act::Prune(id) => PruneExecutions { task: key(id), keep_last: 0, before: None }.into(),
            Act::Wait(_) | Act::Race(..) => return None,
        })
    }

    fn takes_ms(self) -> u64 {
        match self {
            Act::After(ms) | Act::Wait(ms) => ms,
            Act::Race(first, second) => first.takes_ms().max(second.takes_ms()),
            _ => 0,
        }
    }
}

fn request() -> RequestKey {
    let (principal, account) = ("p".to_owned(), String::new());
    RequestKey { tenant: Tenant::default(), principal, account, key: "key".into() }
}

fn admit(owner: &str, asks: &str) -> Command {
    let in_flight_ms = LEASE_MS;
    let ttls = RequestTtls {
        replay_ms: REPLAY_MS,
        in_flight_ms,
        tombstone_ms: REPLAY_MS,
        ..RequestTtls::default()
    };
    let fingerprint = fingerprint("pay", asks.as_bytes(), &[]);
    Admit { request: request(), fingerprint, owner: owner.into(), ttls, rate_limit: None }.into()
}

fn for_request(owner: &str) -> EffectOwner {
    EffectOwner::Request { request: request(), owner: owner.into() }
}

/// The id differs from caller to caller, so that a second one would show.
fn call(caller: EffectOwner, id: &str) -> Command {
    let fingerprint = fingerprint("charge", b"1", &[]);
    let (provider, name) = ("bank".to_owned(), "charge".to_owned());
    ClaimEffect { owner: caller, provider, name, fingerprint, request_id: format!("r-{id}").into() }
        .into()
}

fn settle(caller: EffectOwner, id: &str) -> Command {
    let (provider, name) = ("bank".to_owned(), "charge".to_owned());
    SettleEffect { owner: caller, provider, name, result: Payload::json(format!("{id:?}")) }.into()
}

fn child(id: &str, parent: &str) -> NewTask {
    let mut new = new_task(id);
    new.parent = Some(parent.into());
    new.policy.retention_ms = LEASE_MS;
    new
}

fn last_of(fences: &[Fence], id: &str) -> Option<Fence> {
    fences.iter().rfind(|fence| fence.task.id.as_str() == id).cloned()
}

fn create_limited(id: &str, limit_key: LimitKey) -> Command {
    let mut new = new_task(id);
    new.limit_key = Some(limit_key);
    Create::one(new).into()
}

/// The result differs from lease to lease, so that a second one would show.
fn complete(fence: Fence) -> Command {
    let result = Some(Payload::json(format!("{}", fence.epoch)));
    Complete { fence, result }.into()
}

fn grant(id: &str, worker: &str) -> Command {
    Grant { task: key(id), worker: worker.into(), ttl_ms: GRANT_MS }.into()
}

fn message(name: &str) -> NewMessage {
    NewMessage::new("a", name, "ops")
}

fn waitpoint(id: &str) -> NewWaitpoint {
    NewWaitpoint { id: id.into(), ttl_ms: 2 * LEASE_MS }
}

fn suspend(fence: Fence, until: Until, action: Option<OnTimeout>) -> Command {
    let condition = match until {
        Until::Go => Condition::signal("go"),
        Until::Both => Condition::All(vec![Condition::signal("go"), Condition::signal("more")]),
        Until::Approved => Condition::waitpoint("w"),
        Until::Operator => Condition::Operator,
    };
    let made = matches!(until, Until::Approved).then(|| waitpoint("w"));
    let timeout = action.map(|action| SuspendTimeout { after_ms: LEASE_MS, action });
    let waitpoints = made.into_iter().collect();
    Suspend { timeout, waitpoints, ..Suspend::new(fence, condition) }.into()
}

fn fail(fence: Fence) -> Command {
    let (class, retry) = (FailureClass::Transient, Retry::Policy);
    Fail { fence, class, reason: "no".into(), retry }.into()
}

impl Node {
    fn first() -> Self {
        let view = View::new(ReferenceTables::default(), START);
        Self { view, ghost: Ghost::default(), path: Vec::new() }
    }

    /// Hashes everything that a later response could depend on, which excludes versions.
    fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.view.now.hash(&mut hasher);
        for row in self.view.tables.rows() {
            (&row.key, &row.body).hash(&mut hasher);
        }
        for (key, payload) in self.view.tables.payloads() {
            (key, &payload.bytes).hash(&mut hasher);
        }
        format!("{:?}", self.ghost).hash(&mut hasher);
        hasher.finish()
    }

    /// The next state, unless the act does not apply here or breaks an invariant.
    fn step(&self, act: Act, found: &mut SearchResult) -> Option<Node> {
        let mut start = self.clone();
        start.path.push(act);
        start.view.now = start.view.now.plus_ms(act.takes_ms());
        let now = start.view.now;
        match act {
            Act::Wait(_) => Some(start),
            Act::Race(first, second) => {
                let (first, second) = (first.command(self)?, second.command(self)?);
                let one = start.view.tables.attempt(now, &first);
                let other = start.view.tables.attempt(now, &second);
                let between = start.commit(&first, &one, found)?;
                let late = !other.1.inserts.is_empty() && now < between.view.now;
                if late || between.view.tables.clone().commit(&other.1).is_err() {
                    let again = between.view.tables.attempt(between.view.now, &second);
                    return between.commit(&second, &again, found);
                }
                between.commit(&second, &other, found)
            }
            _ => {
                let command = act.command(self)?;
                let decided = start.view.tables.attempt(now, &command);
                start.commit(&command, &decided, found)
            }
        }
    }

    fn commit(
        &self,
        command: &Command,
        decided: &Attempt,
        found: &mut SearchResult,
    ) -> Option<Node> {
        let (outcome, changes) = decided;
        let mut view = if changes.is_empty() {
            self.view.clone()
        } else {
            let mut tables = self.view.tables.clone();
            // No invariant reads the log, so it is dropped.
            let without_events = ChangeSet { events: Vec::new(), ..changes.clone() };
            tables.commit(&without_events).expect("conflicts are handled before");
            View::new(tables, self.view.now)
        };
        let (before, after, ghost) = (&self.view, &view, &self.ghost);
        let raced = matches!(self.path.last(), Some(Act::Race(..)));
        let step = Step { before, after, command, outcome, changes, ghost, raced };
        found.steps += 1;
        let whole = found.note(&self.path, step.broken());
        let ghost = step.remember();
        // Time rises with every commit. It matters only where a task is deleted, and states that
        // differ only by time would never be equal.
        if changes.deletes.iter().any(|(key, _)| key.table == Table::Task) {
            view.now = changes.commit_time.next();
        }
        whole.then(|| Node { view, ghost, path: self.path.clone() })
    }
}

type Attempt = (Result<Outcome, Rejection>, ChangeSet);

impl SearchResult {
    /// Whether nothing is broken. Records the first path to a broken invariant: none is shorter.
    fn note(&mut self, path: &[Act], broken: Vec<(&'static str, String)>) -> bool {
        let whole = broken.is_empty();
        for (name, words) in broken {
            self.broken.entry(name).or_insert_with(|| format!("{path:?}\n    {words}"));
        }
        whole
    }
}

impl Scope {
    fn acts(&self) -> Vec<Act> {
        let pairs = self.racing.iter().flat_map(|a| self.racing.iter().map(move |b| (a, b)));
        let races = pairs.map(|(a, b)| Act::Race(a, b));
        self.alphabet.iter().copied().chain(races).collect()
    }

    pub(crate) fn search(&self) -> SearchResult {
        let mut found = SearchResult::default();
        let mut first = Node::first();
        for &act in self.start {
            first = first.step(act, &mut found).expect("the start of a scope breaks nothing");
        }
        let acts = self.acts();
        let mut visited = BTreeSet::from([first.print()]);
        let mut layer = vec![first];
        for _ in 0..self.depth {
            let mut next = Vec::new();
            for (node, &act) in layer.iter().flat_map(|n| acts.iter().map(move |a| (n, a))) {
                let reached = node.step(act, &mut found);
                let Some(reached) = reached.filter(|reached| visited.insert(reached.print()))
                else {
                    continue;
                };
                if found.note(&reached.path, reached.view.broken()) {
                    next.push(reached);
                }
            }
            layer = next;
        }
        found.states = visited.len();
        found
    }

    #[track_caller]
    pub(crate) fn check(&self, name: &str) -> SearchResult {
        let found = self.search();
        let mut report = String::new();
        for (invariant, way) in &found.broken {
            let _ = write!(report, "\n  {invariant}:\n    {way}");
        }
        assert!(found.broken.is_empty(), "{name}: broken by\n{report}");
        let (states, steps) = self.floor;
        assert!(found.states >= states && found.steps >= steps, "{name} is too small: {found:?}");
        found
    }
}
