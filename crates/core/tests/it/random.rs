//! Random batches: a batch has the same result as its commands one by one, in the order in which
//! they were decided. Where a scan may have skipped rows, only the invariants are checked.

use std::collections::BTreeSet;

use windlass_core::command::{
    Begin, Cancel, CancelHeld, ChangePriority, Claim, ClaimGranted, Complete, CompleteWaitpoint,
    ConsumeMessages, Create, CreateWaitpoint, Delay, DeleteTask, DeregisterWorker, Fail, Grant,
    IdempotencyWindow, IfAbsent, LimitLane, NewMessage, NewTask, NewWaitpoint, NewWorkflow,
    QuotaScope, RegisterWorker, Release, ReleaseSession, Renew, Replay, Resume, Revoke,
    RotateSigningKey, SendMessages, SetLaneState, SetQuota, Snooze, Suspend, SuspendTimeout, Sweep,
    WaitChildren,
};
use windlass_core::{
    Command, Condition, Distinct, FailureClass, Fence, HeldLeases, Hints, LaneState, LeaseRequest,
    LimitKey, Matcher, OnTimeout, Outcome, Payload, Rate, ReferenceTables, Rejection, Retry,
    RetryPolicy, SESSIONS, Secret, TagFilter, Tenant, Timestamp, Token, WorkerCapabilities,
};

use crate::batch::{self, Order, START, key};
use crate::invariants::View;

const SEEDS: u64 = 300;
const BATCHES: usize = 8;
const ALL_BATCHES: usize = SEEDS as usize * BATCHES;

/// splitmix64: small, and the same everywhere.
struct Dice {
    state: u64,
    /// When batches were decided: epochs start from there.
    times: Vec<Timestamp>,
    /// The tokens of the created waitpoints.
    tokens: Vec<Token>,
}

impl Dice {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("it is an index")]
    }

    fn id(&mut self) -> &'static str {
        self.pick(&["a", "b", "c", "d", "e", "f"])
    }

    /// Often of a current or a past lease.
    fn fence(&mut self) -> Fence {
        let at = self.below(self.times.len() as u64);
        let created_at = self.times[usize::try_from(at).expect("it is an index")];
        let first = u64::try_from(created_at.micros()).expect("it is past the epoch");
        Fence { task: key(self.id()), epoch: first + 1 + self.below(3) }
    }

    fn lane(&mut self) -> &'static str {
        self.pick(&["l", "l", "m"])
    }

    fn payload(&mut self, odds: u64) -> Option<Payload> {
        let text = self.below(3).to_string();
        (odds > 0 && self.one_in(odds)).then(|| Payload::json(text))
    }

    fn new_task(&mut self, payload_odds: u64) -> NewTask {
        let mut new = NewTask::new(self.id(), "k");
        new.lane = self.lane().into();
        new.payload = self.payload(payload_odds);
        new.priority = self.pick(&[0, 0, 0, 1, 2]);
        new.tag = self.one_in(3).then(|| self.pick(&["x", "y"]).to_owned());
        if self.one_in(4) {
            new.delay = Delay::For { ms: self.pick(&[1, 5_000, 40_000]) };
        }
        if self.one_in(6) {
            new.deadline_ms = Some(self.pick(&[1_000, 45_000]));
        }
        if self.one_in(4) {
            let (key, window_ms) = (self.pick(&["k1", "k2"]).into(), 20_000);
            new.idempotency = Some(IdempotencyWindow { key, window_ms });
        }
        if self.one_in(3) {
            new.parent = Some(self.id().into());
        }
        new.policy.retry = self.one_in(2).then(|| RetryPolicy::exponential(2));
        new.policy.attempt_timeout_ms = self.one_in(6).then_some(10_000);
        new.policy.retention_ms = self.pick(&[0, 60_000, 604_800_000]);
        new.policy.accept_expired_lease = self.one_in(6);
        if self.one_in(3) {
            new.limit_key = Some(match self.below(3) {
                0 => LimitKey::Session(self.pick(&["s1", "s2"]).to_owned()),
                _ => LimitKey::Concurrency(self.pick(&["g1", "g2"]).to_owned()),
            });
        }
        new
    }

    fn create(&mut self, payload_odds: u64) -> Create {
        let mut ids = BTreeSet::new();
        let some = (0..1 + self.below(3)).map(|_| self.new_task(payload_odds)).collect::<Vec<_>>();
        let tasks = some.into_iter().filter(|new| ids.insert(new.id.clone())).collect();
        Create { tenant: Tenant::default(), tasks }
    }

    fn claim(&mut self) -> Claim {
        let mut claim = Claim::new(self.pick(&["w1", "w2"]));
        claim.lanes = self
            .pick(&[&["l"][..], &["m"], &["l", "m"], &["m", "l"]])
            .iter()
            .map(|&l| l.into())
            .collect();
        claim.limit = self.pick(&[1, 1, 2, 4]);
        claim.begin = !self.one_in(3);
        claim.registered = self.one_in(2);
        claim.rotation = u32::try_from(self.below(3)).expect("it is below 3");
        let only = TagFilter::Only(BTreeSet::from(["x".to_owned()]));
        claim.session_idle_ms = 4_000;
        if self.one_in(2) {
            claim.capabilities.names.insert(SESSIONS.to_owned());
        }
        claim.capabilities.tags = if self.one_in(4) { only } else { TagFilter::Any };
        claim
    }

    fn fail(&mut self) -> Fail {
        let class = self.pick(&[FailureClass::Transient, FailureClass::Permanent]);
        let retry = self.pick(&[Retry::Policy, Retry::Never, Retry::After { ms: 5_000 }]);
        Fail { fence: self.fence(), class, reason: "no".into(), retry }
    }

    fn set_quota(&mut self) -> SetQuota {
        let scope = match self.below(6) {
            0 => QuotaScope::Lane(self.lane().into()),
            1 => QuotaScope::Tenant,
            2 => QuotaScope::Session(self.pick(&["s1", "s2"]).to_owned()),
            _ => QuotaScope::Concurrency(self.pick(&["g1", "g2"]).to_owned()),
        };
        let limit = self.one_in(2).then(|| self.pick(&[0, 1, 2, 3]));
        let rate = Rate { limit: self.pick(&[1, 2]), window_ms: self.pick(&[3_000, 20_000]) };
        let rate = self.one_in(2).then_some(rate);
        SetQuota { tenant: Tenant::default(), scope, limit, rate }
    }

    /// Commands about worker records and granted tasks.
    fn about_workers(&mut self) -> Command {
        let (tenant, task) = (Tenant::default(), key(self.id()));
        let worker = self.pick(&["w1", "w2"]).into();
        match self.below(8) {
            0 | 1 => {
                let (lanes, capabilities) =
                    ([self.lane().into()].into(), WorkerCapabilities::default());
                let heartbeat_interval_ms = self.pick(&[1_000, 10_000]);
                let responded_below = self.pick(&[0, 1, 2]);
                let held = HeldLeases { instance: 1, responded_below, ..HeldLeases::default() };
                let held = self.one_in(2).then_some(held);
                RegisterWorker {
                    tenant,
                    id: worker,
                    lanes,
                    capabilities,
                    heartbeat_interval_ms,
                    held,
                }
                .into()
            }
            2 => DeregisterWorker { tenant, id: worker }.into(),
            3 | 4 => Grant { task, worker, ttl_ms: self.pick(&[1_000, 20_000]) }.into(),
            5 | 6 => {
                let (begin, registered) = (!self.one_in(3), self.one_in(2));
                let request = LeaseRequest { instance: 1, number: self.pick(&[0, 1]) };
                let (lease_ms, request) = (30_000, Some(request));
                ClaimGranted { task, worker, lease_ms, begin, registered, request }.into()
            }
            _ => Revoke { task, reason: "elsewhere".into() }.into(),
        }
    }

    fn message(&mut self, payload_odds: u64) -> NewMessage {
        let mut message = NewMessage::new(self.id(), self.pick(&["go", "more"]), "ops");
        message.payload = self.payload(payload_odds);
        message.delay = Delay::For { ms: self.pick(&[0, 0, 0, 5_000]) };
        message.if_absent = match self.below(9) {
            0..3 => IfAbsent::Buffer { ttl_ms: 20_000 },
            3 => IfAbsent::Start(Box::new(self.workflow_to_start())),
            _ => IfAbsent::Reject,
        };
        if self.one_in(3) {
            let (key, window_ms) = (self.pick(&["k1", "k2"]).into(), 20_000);
            message.idempotency = Some(IdempotencyWindow { key, window_ms });
        }
        message
    }

    fn workflow_to_start(&mut self) -> NewTask {
        let workflow = Some(NewWorkflow::default());
        NewTask { lane: self.lane().into(), workflow, ..NewTask::new("replaced", "order") }
    }

    fn waitpoint(&mut self) -> NewWaitpoint {
        NewWaitpoint { id: self.pick(&["p", "q", "r"]).into(), ttl_ms: 40_000 }
    }

    fn suspend(&mut self) -> Suspend {
        let condition = match self.below(5) {
            0 => Condition::signal("go"),
            1 => Condition::All(vec![Condition::signal("go"), Condition::signal("more")]),
            2 => Condition::waitpoint(self.pick(&["p", "q"])),
            3 => {
                let distinct = self.pick(&[Distinct::Names, Distinct::Waitpoints]);
                Condition::Count { n: 2, distinct, of: Matcher::default() }
            }
            _ => Condition::Operator,
        };
        let action = self.pick(&[OnTimeout::Fail, OnTimeout::Resume, OnTimeout::Escalate]);
        let timeout = self.one_in(2).then_some(SuspendTimeout { after_ms: 5_000, action });
        let waitpoints = if self.one_in(3) { vec![self.waitpoint()] } else { Vec::new() };
        Suspend { timeout, waitpoints, ..Suspend::new(self.fence(), condition) }
    }

    fn message_command(&mut self, payload_odds: u64) -> Command {
        let tenant = Tenant::default();
        match self.below(8) {
            0 | 1 => {
                let some = (0..1 + self.below(3)).map(|_| self.message(payload_odds));
                SendMessages { tenant, messages: some.collect() }.into()
            }
            2 | 3 => self.suspend().into(),
            4 => CreateWaitpoint { task: key(self.id()), epoch: None, waitpoint: self.waitpoint() }
                .into(),
            5 if !self.tokens.is_empty() => {
                let at = self.below(self.tokens.len() as u64);
                let token = self.tokens[usize::try_from(at).expect("it is an index")].clone();
                let (name, source) = ("go".into(), "ada".into());
                let payload = self.payload(payload_odds);
                CompleteWaitpoint { tenant, token, name, source, idempotency: None, payload }.into()
            }
            6 if self.one_in(2) => Resume { task: key(self.id()), by: "ada".into() }.into(),
            6 => ConsumeMessages { fence: self.fence(), seqs: vec![1, 2] }.into(),
            _ => {
                let (id, secret) = (self.pick(&["k1", "k2", "k3"]).into(), "07".repeat(32));
                let secret = Secret::new(secret);
                RotateSigningKey { tenant, id, secret, grace_ms: 5_000, if_absent: false }.into()
            }
        }
    }

    fn command(&mut self, payload_odds: u64) -> Command {
        if self.one_in(6) {
            return self.about_workers();
        }
        let tenant = Tenant::default();
        if self.one_in(5) {
            return self.message_command(payload_odds);
        }
        match self.below(30) {
            0..=4 => self.create(payload_odds).into(),
            5..=9 => self.claim().into(),
            10 => Begin { fence: self.fence() }.into(),
            11 | 12 => Complete { fence: self.fence(), result: self.payload(payload_odds) }.into(),
            13 => self.fail().into(),
            14 => Snooze { fence: self.fence(), delay_ms: self.pick(&[0, 5_000]) }.into(),
            15 => Release { fence: self.fence() }.into(),
            16 => Renew { fence: self.fence(), lease_ms: self.pick(&[5_000, 60_000]) }.into(),
            17 => CancelHeld { fence: self.fence(), reason: "held".into() }.into(),
            18 => Cancel { task: key(self.id()), reason: "stop".into() }.into(),
            19 => ChangePriority { task: key(self.id()), priority: self.pick(&[0, 3]) }.into(),
            20 => Replay { task: key(self.id()), execution: self.pick(&[0, 0, 1]) }.into(),
            21 => DeleteTask { task: key(self.id()) }.into(),
            22 if self.one_in(2) => {
                let lane = self.lane().into();
                let state = self.pick(&[LaneState::Active, LaneState::Paused, LaneState::Draining]);
                SetLaneState { tenant, lane, state }.into()
            }
            22 => {
                let limit = Some(self.pick(&[1, 2, 3]));
                LimitLane { tenant, lane: self.lane().into(), limit }.into()
            }
            23 | 24 => WaitChildren { fence: self.fence() }.into(),
            25 => self.set_quota().into(),
            26 => ReleaseSession {
                tenant,
                session: self.pick(&["s1", "s2"]).to_owned(),
                affinity: false,
            }
            .into(),
            _ => Sweep { page: self.pick(&[1, 3, 256]) }.into(),
        }
    }
}

/// Everything the tables hold but versions: a batch writes a record once, its commands often.
fn content(tables: &ReferenceTables) -> Vec<String> {
    let rows = tables.rows().map(|row| format!("{:?} {:?} {}", row.key, row.columns, row.body));
    let payloads = tables.payloads().map(|(key, payload)| format!("{key:?} {:?}", payload.bytes));
    let events = tables.events_after(0).map(|logged| format!("{logged:?}"));
    rows.chain(payloads).chain(events).collect()
}

/// The first line in which two sets of tables differ.
fn difference(together: &ReferenceTables, apart: &ReferenceTables) -> Option<String> {
    let (together, apart) = (content(together), content(apart));
    let at = (0..together.len().max(apart.len())).find(|&at| together.get(at) != apart.get(at))?;
    let (together, apart) = (together.get(at), apart.get(at));
    Some(format!("together: {together:?}\n   apart: {apart:?}"))
}

type Outcomes = Vec<Result<Outcome, Rejection>>;

fn one_by_one(
    tables: &mut ReferenceTables,
    now: Timestamp,
    commands: &[Command],
    order: &[usize],
) -> Outcomes {
    let mut outcomes: Vec<Option<Result<Outcome, Rejection>>> = vec![None; commands.len()];
    for &at in order {
        outcomes[at] = Some(tables.execute(now, &commands[at]));
    }
    outcomes.into_iter().flatten().collect()
}

/// No two claims of a batch hold the same task under the same epoch.
fn leased_once(outcomes: &[Result<Outcome, Rejection>], repro: &str) {
    let mut leases = BTreeSet::new();
    for outcome in outcomes {
        let Ok(Outcome::Claimed(tasks)) = outcome else { continue };
        for task in tasks {
            assert!(leases.insert(task.fence()), "{repro}: {:?} was leased twice", task.fence());
        }
    }
}

fn tokens(outcomes: &[Result<Outcome, Rejection>]) -> Vec<Token> {
    let made = |outcome: &Result<Outcome, Rejection>| match outcome {
        Ok(Outcome::WaitpointCreated(made)) => vec![made.token.clone()],
        Ok(Outcome::Suspended { waitpoints }) => {
            waitpoints.iter().map(|made| made.token.clone()).collect()
        }
        _ => Vec::new(),
    };
    outcomes.iter().flat_map(made).collect()
}

/// One in `payload_odds` gets a payload; zero for none. Returns the number of batches compared.
fn check(seed: u64, order: Order, payload_odds: u64) -> usize {
    let mut dice = Dice { state: seed, times: Vec::new(), tokens: Vec::new() };
    let (mut together, mut apart) = (ReferenceTables::default(), ReferenceTables::default());
    let (mut now, mut hints, mut compared) = (START, Hints::default(), 0);
    for _ in 0..BATCHES {
        now = now.plus_ms(dice.pick(&[1, 1, 1, 5_000, 31_000, 3_600_000, 60_000]));
        dice.times.push(now);
        let size = 1 + dice.below(10);
        let commands: Vec<Command> = (0..size).map(|_| dice.command(payload_odds)).collect();
        if dice.one_in(3) {
            hints = Hints::default();
        }
        let batch = batch::run(&together, now, hints, &commands, order);
        hints = batch.hints;
        let repro = format!("seed={seed} {order:?} payload_odds={payload_odds}: {commands:?}");
        together.commit(&batch.changes).unwrap_or_else(|clash| panic!("{repro}: {clash:?}"));
        leased_once(&batch.outcomes, &repro);
        dice.tokens.extend(tokens(&batch.outcomes));
        // A recreated id starts at an epoch that the commands one by one never reach.
        if batch.overtook || batch.changes.commit_time != now {
            apart = together.clone();
        } else {
            compared += 1;
            let outcomes = one_by_one(&mut apart, now, &commands, &batch.decided);
            assert_eq!(batch.outcomes, outcomes, "{repro}");
            if let Some(difference) = difference(&together, &apart) {
                panic!("{repro}\n{difference}");
            }
        }
        let broken = View::new(together.clone(), now).broken();
        assert!(broken.is_empty(), "{repro}: {broken:#?}");
    }
    compared
}

fn compared(order: Order, payload_odds: u64) -> usize {
    (0..SEEDS).map(|seed| check(seed, order, payload_odds)).sum()
}

#[test]
fn batches_in_order_equal_their_commands() {
    let compared = compared(Order::Fixed, 0);
    assert!(compared > ALL_BATCHES - 10, "only {compared} of {ALL_BATCHES} batches were compared");
}

#[test]
fn batches_out_of_order_equal_their_commands_as_decided() {
    let compared = compared(Order::Free, 0);
    assert!(compared > ALL_BATCHES / 2, "only {compared} of {ALL_BATCHES} batches were compared");
}

#[test]
fn batches_with_payloads_equal_their_commands() {
    let compared = compared(Order::Fixed, 2);
    assert!(compared > ALL_BATCHES - 10, "only {compared} of {ALL_BATCHES} batches were compared");
}
