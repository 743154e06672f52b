//! Tables as tests: a state, a command, and what comes of it.

use std::collections::BTreeMap;

use crate::command::{
    Beat, Cancel, Claim, Command, Complete, Create, CreateWaitpoint, Fail, Grant, Leave, LimitLane,
    NewMessage, NewTask, NewWaitpoint, Outcome, Post, QuotaScope, RegisterWorker, RetireWorker,
    RotateKey, SetLaneState, SetQuota, Start, Suspend, Sweep, WaitChildren,
};
use crate::gate::{Gate, GateKey, Rate};
use crate::keyring::Secret;
use crate::lane::LaneState;
use crate::mailbox::{Mailbox, Message};
use crate::name::{LaneName, Tenant};
use crate::node::Node;
use crate::record::{Filed, read_row};
use crate::rejection::Rejection;
use crate::row::{Row, RowKey};
use crate::shelf::Shelf;
use crate::task::{
    Condition, FailureClass, Fence, Lifecycle, Offer, Retry, RetryPolicy, SESSIONS, Settled, Task,
    TaskKey,
};
use crate::time::Timestamp;
use crate::token::Token;
use crate::worker::Worker;

/// The states that every table about tasks must have a row for.
pub(crate) const TASK_STATES: &[&str] = &[
    "absent",
    "waiting",
    "delayed",
    "granted",
    "claimed",
    "active",
    "lapsed",
    "completed",
    "failed",
    "cancelled",
    "expired",
    "waiting_children",
    "gated",
    "reserved",
    "suspended",
    "resumable",
];

/// The states that every table about lanes must have a row for.
pub(crate) const LANE_STATES: &[&str] =
    &["absent", "active", "paused", "draining", "disabled", "limited"];

/// The states that every table about nodes must have a row for.
pub(crate) const NODE_STATES: &[&str] = &["absent", "registered", "late", "gone", "left", "lost"];

/// The states that every table about workers must have a row for.
pub(crate) const WORKER_STATES: &[&str] =
    &["absent", "registered", "late", "silent", "dying", "retired", "dead"];
/// The states that every table about gates must have a row for.
pub(crate) const GATE_STATES: &[&str] = &["absent", "full", "wide", "rated"];

/// A shelf with a clock.
pub(crate) struct Stage {
    pub(crate) shelf: Shelf,
    pub(crate) now: Timestamp,
}

pub(crate) fn key(id: &str) -> TaskKey {
    TaskKey { tenant: Tenant::default(), id: id.into() }
}

/// The fence of the `nth` claim of task `t`, when it was created at the start.
pub(crate) fn fence(nth: u64) -> Fence {
    fence_of("t", nth)
}

pub(crate) fn fence_of(id: &str, nth: u64) -> Fence {
    Fence { task: key(id), epoch: START.micros() as u64 + nth }
}

const START: Timestamp = Timestamp::from_millis(1_000_000);

pub(crate) fn lane() -> LaneName {
    LaneName::new("l")
}

/// The task of the tables: two attempts, a minute apart.
pub(crate) fn new_task(id: &str) -> NewTask {
    let mut task = NewTask::new(id, "k");
    task.lane = lane();
    task.policy.retry = Some(RetryPolicy::fixed(2, 60_000));
    task
}

/// A child of task `t`, in a lane of its own.
pub(crate) fn child(id: &str) -> NewTask {
    NewTask { parent: Some("t".into()), lane: "children".into(), ..new_task(id) }
}

pub(crate) fn claim() -> Claim {
    Claim { lanes: vec![lane()], ..Claim::new("w") }
}

/// A claim of a worker that owns sessions.
pub(crate) fn session_claim(worker: &str) -> Claim {
    let mut claim = Claim { worker: worker.into(), ..claim() };
    claim.offer.capabilities.insert(SESSIONS.to_owned());
    claim
}

/// What opens the waitpoint that task `t` has from its creation on.
pub(crate) fn token() -> Token {
    Stage::with_task("waiting").open_waitpoint()
}

/// A message to `t`.
pub(crate) fn message(name: &str) -> NewMessage {
    NewMessage::new("t", name, "ops")
}

/// A key whose secret is this pair of digits, again and again.
pub(crate) fn rotation(id: &str, secret: &str) -> RotateKey {
    RotateKey {
        tenant: Tenant::default(),
        id: id.into(),
        secret: Secret::new(secret.repeat(32)),
        grace_ms: 60_000,
        seed: false,
    }
}

/// The beat of the tables: every five seconds, two seconds after its start.
pub(crate) fn beat() -> Beat {
    Beat {
        id: "n".into(),
        name: "host".into(),
        pid: 7,
        version: "1.0.0".into(),
        format: 2,
        up_ms: 2_000,
        every_ms: 5_000,
    }
}

/// The registration of the tables: every five seconds.
pub(crate) fn register() -> RegisterWorker {
    RegisterWorker {
        tenant: Tenant::default(),
        id: "w".into(),
        lanes: [lane()].into(),
        offer: Offer::default(),
        every_ms: 5_000,
    }
}

/// The grant of the tables: for ten seconds.
pub(crate) fn grant(id: &str) -> Grant {
    Grant { task: key(id), worker: "w".into(), ttl_ms: 10_000 }
}

/// A waiting task that was just created.
pub(crate) fn task(id: &str) -> Task {
    let mut stage = Stage::new();
    stage.must(Create::one(new_task(id)));
    stage.task(id).expect("it was just created")
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { shelf: Shelf::default(), now: START }
    }

    pub(crate) fn run(&mut self, command: impl Into<Command>) -> Result<Outcome, Rejection> {
        self.shelf.execute(self.now, &command.into())
    }

    pub(crate) fn must(&mut self, command: impl Into<Command>) -> Outcome {
        self.run(command).expect("a fixture is accepted")
    }

    pub(crate) fn later(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    pub(crate) fn record<R: Filed>(&self, key: &RowKey) -> Option<R> {
        let row = self.shelf.row(key)?;
        let record = read_row::<R>(row.schema, &row.body).expect("it was written by this version");
        Some((*record).clone())
    }

    pub(crate) fn task(&self, id: &str) -> Option<Task> {
        self.record(&key(id).row_key())
    }

    pub(crate) fn lane(&self) -> Option<crate::lane::Lane> {
        self.record(&crate::lane::Lane::key_of(&Tenant::default(), &lane()))
    }

    pub(crate) fn gates(&self) -> Vec<Gate> {
        let rows = self.shelf.rows().filter(|row| row.key.table == Gate::TABLE);
        let read = |row: &Row| read_row::<Gate>(row.schema, &row.body).expect("it can be read");
        rows.map(|row| (*read(row)).clone()).collect()
    }

    /// Makes a record one that this version cannot read.
    pub(crate) fn garble(&mut self, key: &RowKey) {
        let row = self.shelf.row(key).expect("there is such a record").clone();
        self.shelf.plant(Row { schema: 99, body: "{\"unheard\":\"of\"}".into(), ..row });
    }

    /// A stage on which task `t` is in the named state, with epoch 1 once it was claimed.
    pub(crate) fn with_task(state: &str) -> Self {
        Self::with_new_task(state, new_task("t"))
    }

    pub(crate) fn with_new_task(state: &str, new: NewTask) -> Self {
        Self::with_new_task_then(state, new, |_| {})
    }

    /// The same, with something that happens to the task before anybody has claimed it.
    fn with_new_task_then(state: &str, mut new: NewTask, then: impl Fn(&mut Self)) -> Self {
        let mut stage = Self::new();
        match state {
            "absent" => return stage,
            "delayed" => new.start = Start::After { ms: 10_000 },
            "expired" => new.deadline_ms = Some(1_000),
            "gated" => stage.saturate(&mut new),
            "reserved" => stage.own(&mut new),
            _ => {}
        }
        stage.must(Create::one(new));
        then(&mut stage);
        match state {
            "waiting" | "delayed" | "gated" | "reserved" => {}
            "granted" => drop(stage.must(grant("t"))),
            "ungranted" => {
                stage.must(grant("t"));
                stage.later(10_000);
            }
            "claimed" => drop(stage.must(Claim { begin: false, ..claim() })),
            "active" => drop(stage.must(claim())),
            "lapsed" => {
                stage.must(claim());
                stage.later(30_000);
            }
            "completed" => {
                stage.must(claim());
                stage.must(Complete { fence: fence(1), result: None });
            }
            "failed" => {
                stage.must(claim());
                stage.must(Fail {
                    fence: fence(1),
                    class: FailureClass::Permanent,
                    reason: "no".into(),
                    retry: Retry::Policy,
                });
            }
            "cancelled" => {
                stage.must(claim());
                stage.must(Cancel { task: key("t"), reason: "stop".into() });
            }
            "expired" => {
                stage.must(claim());
                stage.later(1_000);
                stage.must(Sweep::default());
            }
            "waiting_children" => {
                stage.must(claim());
                stage.must(Create::one(child("c")));
                stage.must(WaitChildren { fence: fence(1) });
            }
            "suspended" => stage.suspend(),
            "resumable" => {
                stage.suspend();
                stage.must(Post::one(message("go")));
            }
            other => panic!("no such state: {other}"),
        }
        stage
    }

    /// Gives a task a key of which another one, of another lane, was let through.
    fn saturate(&mut self, new: &mut NewTask) {
        new.gate = Some(GateKey::Key("k".into()));
        let first = NewTask { lane: "other".into(), gate: new.gate.clone(), ..new_task("first") };
        self.must(Create::one(first));
    }

    /// Gives a task a session that worker `w` owns, with nothing of it left.
    fn own(&mut self, new: &mut NewTask) {
        new.gate = Some(GateKey::Session("s".into()));
        let first = NewTask { lane: "other".into(), gate: new.gate.clone(), ..new_task("first") };
        self.must(Create::one(first));
        self.must(Claim { lanes: vec!["other".into()], ..session_claim("w") });
        self.must(Complete { fence: fence_of("first", 1), result: None });
    }

    /// Claims `t` and suspends it until it is told to go.
    fn suspend(&mut self) {
        self.must(claim());
        self.must(Suspend::new(fence(1), Condition::signal("go")));
    }

    /// Gives task `t` its waitpoint `w`, and says what opens it.
    pub(crate) fn open_waitpoint(&mut self) -> Token {
        self.seed();
        let waitpoint = NewWaitpoint { id: "w".into(), expires_ms: 10_000 };
        let create = CreateWaitpoint { task: key("t"), epoch: None, waitpoint };
        match self.must(create) {
            Outcome::WaitpointMade(made) => made.token,
            other => panic!("{other:?}"),
        }
    }

    /// Gives the tenant its first key.
    pub(crate) fn seed(&mut self) {
        self.must(rotation("k1", "07"));
    }

    pub(crate) fn mailbox(&self) -> Option<Mailbox> {
        self.record(&Mailbox::key_of(&Tenant::default(), &"t".into()))
    }

    pub(crate) fn message(&self, seq: u64) -> Option<Message> {
        self.record(&Message::key_of(&Tenant::default(), &"t".into(), seq))
    }

    pub(crate) fn with_lane(state: &str) -> Self {
        let mut stage = Self::new();
        if state == "absent" {
            return stage;
        }
        stage.must(Create::one(new_task("t")));
        let mut set = |state| {
            stage.must(SetLaneState { tenant: Tenant::default(), lane: lane(), state });
        };
        match state {
            "active" => {}
            "paused" => set(LaneState::Paused),
            "draining" => set(LaneState::Draining),
            "disabled" => set(LaneState::Disabled),
            "limited" => drop(stage.must(LimitLane {
                tenant: Tenant::default(),
                lane: lane(),
                limit: Some(1),
            })),
            other => panic!("no such state: {other}"),
        }
        stage
    }

    /// A stage on which node `n` is in the named state.
    pub(crate) fn with_node(state: &str) -> Self {
        let mut stage = Self::new();
        if state == "absent" {
            return stage;
        }
        stage.must(beat());
        match state {
            "registered" => {}
            "late" => stage.later(17_499),
            "gone" => stage.later(17_500),
            "left" => drop(stage.must(Leave { id: "n".into() })),
            "lost" => {
                stage.later(17_500);
                stage.must(Sweep::default());
            }
            other => panic!("no such state: {other}"),
        }
        stage
    }

    /// A stage on which worker `w` is in the named state.
    pub(crate) fn with_worker(state: &str) -> Self {
        let mut stage = Self::new();
        if state == "absent" {
            return stage;
        }
        stage.must(register());
        match state {
            "registered" => {}
            "late" => stage.later(17_499),
            "silent" => stage.later(17_500),
            "dying" => {
                for n in 0..33 {
                    stage.must(Create::one(new_task(&n.to_string())));
                }
                let claim = Claim { limit: 33, lease_ms: 3_600_000, registered: true, ..claim() };
                stage.must(claim);
                stage.later(17_500);
                stage.must(Sweep::default());
            }
            "retired" => {
                let tenant = Tenant::default();
                stage.must(RetireWorker { tenant, id: "w".into() });
            }
            "dead" => {
                stage.later(17_500);
                stage.must(Sweep::default());
            }
            other => panic!("no such state: {other}"),
        }
        stage
    }

    fn worker_after(&self) -> String {
        match self.record::<Worker>(&Worker::key_of(&Tenant::default(), &"w".into())) {
            None => "absent".into(),
            Some(worker) => {
                let ago = |at: Timestamp| at.ms_until(self.now);
                let dead = if worker.dead_since.is_some() { " dead" } else { "" };
                let (seen, since) = (ago(worker.seen_at), ago(worker.registered_at));
                format!("seen +{seen} since +{since}{dead}")
            }
        }
    }

    /// A stage on which one task of key `k` runs and three are behind it: no limit was set, or they
    /// may be three at once, or one may start in ten seconds.
    pub(crate) fn with_gate(state: &str) -> Self {
        let mut stage = Self::new();
        let gate = Some(GateKey::Key("k".into()));
        let rate = Rate { starts: 1, window_ms: 10_000 };
        let (limit, rate) = match state {
            "absent" => return stage,
            "full" => (None, None),
            "wide" => (Some(3), None),
            "rated" => (None, Some(rate)),
            other => panic!("no such state: {other}"),
        };
        let scope = QuotaScope::Key("k".into());
        stage.must(SetQuota { tenant: Tenant::default(), scope, limit, rate });
        for id in ["t", "u", "v", "w"] {
            stage.must(Create::one(NewTask { gate: gate.clone(), ..new_task(id) }));
        }
        stage.must(claim());
        stage
    }

    /// Running, let through, the most of them, the most starts per time, and those behind.
    fn gate_after(&self) -> String {
        let gates = self.gates();
        let Some(gate) = gates.first() else { return "absent".into() };
        let limit = gate.limit.map_or("-".into(), |limit| limit.to_string());
        let rate = gate.rate.map_or(String::new(), |rate| format!(" {}r", rate.starts));
        format!("{}+{}/{limit}{rate} behind {}", gate.running, gate.admitted, gate.waiting)
    }

    pub(crate) fn task_after(&self) -> String {
        match self.task("t") {
            None => "absent".into(),
            Some(task) => {
                let mut state = task.lifecycle.public().as_str();
                if let Lifecycle::Active(lease) = &task.lifecycle {
                    state = if lease.run.is_some() { "active" } else { "claimed" };
                }
                if let Lifecycle::Reserved { until, .. } = &task.lifecycle {
                    state = if until.is_some() { "granted" } else { "reserved" };
                }
                format!("{state} e{} a{}", task.claims, task.attempts)
            }
        }
    }

    fn lane_after(&self) -> String {
        match self.lane() {
            None => "absent".into(),
            Some(lane) => {
                let gate = lane.gate.map(|gate| {
                    let limit = gate.limit.map_or("-".into(), |limit| limit.to_string());
                    format!(" {}/{limit}", gate.running)
                });
                format!("{}{}", lane.state.as_str(), gate.unwrap_or_default())
            }
        }
    }

    fn node_after(&self) -> String {
        match self.record::<Node>(&Node::key_of(&"n".into())) {
            None => "absent".into(),
            Some(node) => {
                let ago = |at: Timestamp| at.ms_until(self.now);
                format!("seen +{} up +{}", ago(node.seen_at), ago(node.started_at))
            }
        }
    }

    fn events_since(&self, seq: u64) -> String {
        let names: Vec<_> = self.shelf.events_after(seq).map(|logged| logged.name).collect();
        names.join(" ")
    }

    fn answer(&self, answer: &Result<Outcome, Rejection>) -> String {
        let plus = |at: Timestamp| format!("+{}", self.now.ms_until(at));
        match answer {
            Err(rejection) => format!("! {}", rejection.code()),
            Ok(Outcome::Created(created)) if created[0].duplicate => "duplicate".into(),
            Ok(Outcome::Created(_)) => "created".into(),
            Ok(Outcome::Claimed(tasks)) => format!("claimed {}", tasks.len()),
            Ok(Outcome::Renewed { expires_at }) => format!("until {}", plus(*expires_at)),
            Ok(Outcome::Progressed) => "progressed".into(),
            Ok(Outcome::Begun(run)) => format!("attempt {}", run.attempt),
            Ok(Outcome::Settled(Settled::RetryAt(at))) => format!("retry {}", plus(*at)),
            Ok(Outcome::Settled(Settled::DelayedUntil(at))) => format!("delayed {}", plus(*at)),
            Ok(Outcome::Settled(settled)) => format!("{settled:?}").to_lowercase(),
            Ok(Outcome::Cancelled) => "cancelled".into(),
            Ok(Outcome::PriorityChanged) => "changed".into(),
            Ok(Outcome::Replayed { generation }) => format!("generation {generation}"),
            Ok(Outcome::Reaped) => "reaped".into(),
            Ok(Outcome::LaneChanged) => "changed".into(),
            Ok(Outcome::Swept { swept, next_due }) => {
                format!("swept {swept} next {}", next_due.map_or("none".into(), plus))
            }
            Ok(Outcome::Trimmed { trimmed, more }) => format!("trimmed {trimmed} more {more}"),
            Ok(Outcome::Registered { joined, nodes, format }) => {
                let joined = if *joined { "joined " } else { "" };
                format!("{joined}{nodes} nodes format {format}")
            }
            Ok(Outcome::Left) => "left".into(),
            Ok(Outcome::ChildrenDone(counts)) => {
                format!("done {} of {}", counts.completed, counts.total())
            }
            Ok(Outcome::QuotaSet) => "set".into(),
            Ok(Outcome::SessionReleased { running }) => format!("released {running} running"),
            Ok(Outcome::WorkerRegistered { joined: true }) => "joined".into(),
            Ok(Outcome::WorkerRegistered { joined: false }) => "registered".into(),
            Ok(Outcome::WorkerRetired) => "retired".into(),
            Ok(Outcome::Granted { until }) => format!("until {}", plus(*until)),
            Ok(Outcome::Revoked) => "revoked".into(),
            Ok(Outcome::BookmarkAt(cursor)) => format!("at {}", cursor.seq),
            Ok(Outcome::BookmarkDropped { known }) => format!("dropped {known}"),
            Ok(Outcome::Posted(posted)) => {
                let posted = posted.iter().map(|p| match (p.duplicate, p.resumed) {
                    (true, _) => format!("duplicate {}", p.seq),
                    (false, true) => format!("resumed {}", p.seq),
                    (false, false) => format!("posted {}", p.seq),
                });
                posted.collect::<Vec<_>>().join(" ")
            }
            Ok(Outcome::WaitpointMade(made)) => {
                format!("{} until {}", made.id, plus(made.expires_at))
            }
            Ok(Outcome::Suspended { waitpoints }) => format!("suspended {}", waitpoints.len()),
            Ok(Outcome::AlreadySatisfied(resumption)) => {
                format!("satisfied {:?}", resumption.messages)
            }
            Ok(Outcome::Resumed) => "resumed".into(),
            Ok(Outcome::Taken { taken }) => format!("taken {taken}"),
            Ok(Outcome::KeyRotated { known }) => format!("known {known}"),
        }
    }
}

/// The second column of a row: words, and words with a value.
pub(crate) struct Args(BTreeMap<String, String>);

impl Args {
    fn parse(text: &str) -> Self {
        let pair = |word: &str| match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (word.to_owned(), String::new()),
        };
        Self(text.split_whitespace().map(pair).collect())
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.0.contains_key(word)
    }

    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str, otherwise: N) -> N {
        match self.0.get(name) {
            None => otherwise,
            Some(text) => match text.parse() {
                Ok(number) => number,
                Err(_) => panic!("not a number: {text}"),
            },
        }
    }

    pub(crate) fn text(&self, name: &str, otherwise: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| otherwise.to_owned())
    }

    /// The fence a row acts under: epoch 1 unless it says otherwise.
    pub(crate) fn fence(&self) -> Fence {
        fence(self.number("epoch", 1))
    }
}

/// Rows of `task state | arguments | state after | answer | events`. A `policy=` argument changes
/// the fixture: `none` for no retry policy, `late` for accepting late writes. With `waitpoint` the
/// task has one from its creation on.
#[track_caller]
pub(crate) fn check_task<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    let stage = |state: &str, args: &Args| {
        let mut new = new_task("t");
        match args.text("policy", "").as_str() {
            "none" => new.policy.retry = None,
            "late" => new.policy.accept_late = true,
            _ => {}
        }
        let waitpoint = args.has("waitpoint");
        let mut stage = Stage::with_new_task_then(state, new, |stage| {
            if waitpoint {
                stage.open_waitpoint();
            }
        });
        if !waitpoint {
            stage.seed();
        }
        stage
    };
    check(table, TASK_STATES, stage, command, Stage::task_after);
}

/// Rows of `lane state | arguments | state after | answer | events`.
#[track_caller]
pub(crate) fn check_lane<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    check(table, LANE_STATES, |state, _| Stage::with_lane(state), command, Stage::lane_after);
}

/// Rows of `node state | arguments | state after | answer | events`.
#[track_caller]
pub(crate) fn check_node<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    check(table, NODE_STATES, |state, _| Stage::with_node(state), command, Stage::node_after);
}

/// Rows of `gate state | arguments | state after | answer | events`.
#[track_caller]
pub(crate) fn check_gate<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    check(table, GATE_STATES, |state, _| Stage::with_gate(state), command, Stage::gate_after);
}

/// Rows of `worker state | arguments | state after | answer | events`.
#[track_caller]
pub(crate) fn check_worker<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    check(table, WORKER_STATES, |state, _| Stage::with_worker(state), command, Stage::worker_after);
}

#[track_caller]
pub(crate) fn check<C: Into<Command>>(
    table: &str,
    states: &[&str],
    stage: impl Fn(&str, &Args) -> Stage,
    command: impl Fn(&Args) -> C,
    after: impl Fn(&Stage) -> String,
) {
    let mut wrong = Vec::new();
    let rows = table.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in rows.clone() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [state, args, ..] = cells[..] else { panic!("too few columns: {line}") };
        let args = Args::parse(args);
        let mut stage = stage(state, &args);
        let seen = stage.shelf.events_after(0).last().map_or(0, |logged| logged.seq);
        let before = stage.shelf.clone();
        let answer = stage.run(command(&args));
        if answer.is_err() {
            assert_eq!(before, stage.shelf, "a rejection changed something: {line}");
        }
        let found = [after(&stage), stage.answer(&answer), stage.events_since(seen)]
            .map(|s| s.trim().to_owned());
        if cells[2..] != found {
            wrong.push(format!("{line}\n    found: {}", found.join(" | ")));
        }
    }
    assert!(wrong.is_empty(), "rows that differ:\n{}", wrong.join("\n"));
    for state in states {
        let named = rows.clone().any(|line| line.split('|').next().map(str::trim) == Some(*state));
        assert!(named, "no row for the state {state}");
    }
}
