use std::fmt;

use windlass_core::{LaneState, LimitKey, OnTimeout};
use windlass_store_test::CrashPoint;

use crate::external_runtime::ExternalOperation;
use crate::requests::{Handling, Holder};
use crate::workflow::{WorkflowOperation, WorkflowSpec};

/// A run as plain data: the nodes, the possible tasks, and the steps in order.
///
/// Steps name tasks, leases, calls and nodes by a number modulo the number of choices, so that a
/// script stays meaningful when steps are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Seeds the delays inside the store.
    pub seed: u64,
    pub nodes: Vec<NodeSpec>,
    pub tasks: Vec<TaskSpec>,
    pub workflows: Vec<WorkflowSpec>,
    pub steps: Vec<Step>,
}

/// The lanes of every script.
pub const LANES: [&str; 3] = ["a", "b", "c"];

/// The stride of a node that polls every ready task in one turn.
pub(crate) const FAST_STRIDE: u32 = 61;

/// One process: an engine, and perhaps a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// The concurrency of its worker; zero for a node without a worker.
    pub slots: usize,
    pub lease_ms: u64,
    /// The heartbeat interval of its worker.
    pub beat_ms: u64,
    /// The skew of its clock against that of the store.
    pub skew_ms: i64,
    /// How many tasks of its runtime are polled in one turn: with one, a crash can fall between
    /// any two polls.
    pub stride: u32,
    /// It receives no wakes of other nodes.
    pub deaf: bool,
    pub batch_commands: usize,
    pub max_concurrent_batches: usize,
}

/// A task that scripts create, under one of its ids and in one of its variants. Two variants are
/// different requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    pub ids: Vec<String>,
    pub key: Option<String>,
    /// The window of its idempotency key.
    pub window_ms: u64,
    pub lane: usize,
    pub priority: i32,
    pub start_ms: u64,
    pub deadline_ms: Option<u64>,
    pub max_attempts: Option<u32>,
    pub backoff_ms: u64,
    /// The backoff doubles up to its cap.
    pub doubling: bool,
    pub timeout_ms: Option<u64>,
    pub max_lost_leases: u32,
    pub max_replays: u32,
    pub retention_ms: Option<u64>,
    pub accept_expired_lease: bool,
    /// Demands a capability that ordinary workers do not have.
    pub special: bool,
    /// Its parent task.
    pub parent: Option<String>,
    /// Its concurrency key or session.
    pub limit_key: Option<LimitKey>,
    /// What its handler does, attempt by attempt, in a cycle.
    pub behaviors: Vec<Behavior>,
}

/// Numbers from here on name one task exactly, and its last lease; smaller ones are taken modulo
/// the number of choices.
const EXACTLY: usize = 100;

/// The maximum number of ids of a task.
const MOST_IDS: usize = 6;

/// The number of a task under one of its ids.
pub(crate) fn exactly(task: usize, id: usize) -> u8 {
    u8::try_from(EXACTLY + MOST_IDS * task + id % MOST_IDS).unwrap_or(u8::MAX)
}

/// The task and the id of a number, if it names exactly one.
pub(crate) fn exact(number: u8) -> Option<(usize, usize)> {
    let number = usize::from(number).checked_sub(EXACTLY)?;
    Some((number / MOST_IDS, number % MOST_IDS))
}

/// The kinds of tasks.
pub const KINDS: [&str; 2] = ["first", "second"];

/// The number of variants of a task: some differ in their kinds, all in their inputs.
pub(crate) const VARIANTS: u8 = 3;

/// The cap of a doubling backoff.
pub(crate) const BACKOFF_CAP_MS: u64 = 2_000;

/// The share of a doubling backoff that jitter may subtract.
pub(crate) const JITTER_PERCENT: u8 = 20;

impl TaskSpec {
    /// The input of a variant.
    pub(crate) fn input(&self, variant: u8) -> String {
        format!("input {variant} of {}", self.ids[0])
    }

    /// The same as JSON.
    pub(crate) fn payload(&self, variant: u8) -> String {
        format!("\"{}\"", self.input(variant))
    }
}

/// The names and sources of messages.
pub(crate) const NAMES: [&str; 3] = ["go", "more", "other"];
pub(crate) const SOURCES: [&str; 2] = ["ada", "bob"];

/// The window of a message's idempotency key.
pub(crate) const MESSAGE_WINDOW_MS: u64 = 2_000;

/// The lifetimes of a task's waitpoints.
pub(crate) const WAITPOINT_MS: [u64; 2] = [60_000, 1_500];

/// The number of different conditions.
pub(crate) const CONDITIONS: u8 = 10;

/// The capability of special workers.
pub const CAPABILITY: &str = "special";

/// What a handler does with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    Succeed,
    SucceedLater {
        ms: u64,
    },
    Fail,
    FailForGood,
    NonRetryable,
    RetryAfter {
        ms: u64,
    },
    Panic,
    /// Waits for messages, and succeeds when it is resumed.
    Wait {
        condition: u8,
        timeout: Option<(u64, OnTimeout)>,
    },
    /// Creates all children of its task, and waits for them.
    Gather,
    /// Makes an external call, once over all attempts.
    Call {
        name: u8,
        idempotent_provider: bool,
    },
    /// Runs for this long, even if cancelled.
    Hang {
        ms: u64,
    },
}

/// An action, and the number of rounds after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub action: Action,
    pub rounds: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client calls a node, perhaps a second node concurrently. It disconnects after
    /// `disconnect_after` rounds.
    Ask {
        node: u8,
        also: Option<u8>,
        disconnect_after: Option<u8>,
        operations: Vec<Operation>,
    },
    /// Repeats an earlier call exactly.
    Again {
        node: u8,
        call: u8,
    },
    /// A client with an open call disconnects.
    Leave {
        call: u8,
    },
    /// The process crashes without any shutdown.
    Crash {
        node: u8,
    },
    Restart {
        node: u8,
    },
    /// The process is stopped, as by a signal.
    Pause {
        node: u8,
    },
    Resume {
        node: u8,
    },
    /// The process crashes, or is stopped, when its store next reaches this point.
    Trap {
        node: u8,
        point: Point,
        fault: ProcessFault,
    },
    /// The worker drains and the engine shuts down.
    Drain {
        node: u8,
    },
    Fault {
        node: u8,
        fault: Fault,
    },
    /// Time advances for all nodes.
    Advance {
        ms: u64,
    },
    /// The wall clock is set.
    SetClock {
        by_ms: i64,
    },
}

/// A point in the processing of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Its records are loaded.
    Loaded,
    /// It is decided, and nothing is written.
    Decided,
    /// It is committed, and not yet answered.
    Committed,
}

/// A fault of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFault {
    Crash,
    Stop,
}

/// A fault of a node's store, at the `nth` call of its kind from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Conflict {
        times: u64,
    },
    BeginFails,
    LoadFails,
    CommitFails {
        nth: u64,
    },
    Rejected,
    Full,
    /// A commit whose answer is lost, and the number of outcome lookups that fail.
    Unknown {
        nth: u64,
        point: CrashPoint,
        lookups: u64,
    },
    ReadsFail {
        times: u64,
    },
    Outage,
    EndOutage,
}

/// An operation of a client. Leases and calls are counted backwards from the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create {
        task: u8,
        id: u8,
        variant: u8,
    },
    /// Two tasks, both or none.
    CreateBoth {
        task: u8,
        other: u8,
    },
    Claim {
        lane: Option<u8>,
        begin: bool,
        limit: u32,
        lease_ms: u64,
        wait_ms: u64,
        special: bool,
        sessions: bool,
    },
    Begin {
        lease: u8,
    },
    Renew {
        lease: u8,
        lease_ms: u64,
    },
    Progress {
        lease: u8,
        percent: u8,
    },
    Complete {
        lease: u8,
        result: u8,
    },
    Fail {
        lease: u8,
        reason: u8,
        after_ms: Option<u64>,
    },
    Snooze {
        lease: u8,
        ms: u64,
    },
    Release {
        lease: u8,
    },
    CancelHeld {
        lease: u8,
    },
    Cancel {
        task: u8,
        id: u8,
    },
    SendMessages {
        task: u8,
        id: u8,
        name: u8,
        source: u8,
        key: Option<u8>,
        after_ms: u64,
        /// A message to another task with it: both or none.
        also: Option<u8>,
    },
    Suspend {
        lease: u8,
        condition: u8,
        timeout: Option<(u64, OnTimeout)>,
        /// With a waitpoint.
        open: bool,
        nth: u32,
    },
    Resume {
        task: u8,
        id: u8,
    },
    /// By a lease holder, or by an operator.
    CreateWaitpoint {
        lease: u8,
        number: u8,
        held: bool,
    },
    Signal {
        token: u8,
        name: u8,
        key: Option<u8>,
        spoilt: bool,
    },
    ConsumeMessages {
        lease: u8,
        seq: u8,
    },
    RotateSigningKey {
        grace_ms: u64,
    },
    /// By an operator: a limit of concurrent leases, and of starts per window in milliseconds.
    SetQuota {
        scope: u8,
        limit: Option<u32>,
        rate: Option<(u32, u64)>,
    },
    ReleaseSession {
        session: u8,
    },
    /// One of a few workers sends a heartbeat, with its interval.
    RegisterWorker {
        worker: u8,
        heartbeat_interval_ms: u64,
    },
    DeregisterWorker {
        worker: u8,
    },
    /// One of these workers claims.
    ClaimAs {
        worker: u8,
        limit: u32,
    },
    Grant {
        task: u8,
        worker: u8,
        ttl_ms: u64,
    },
    ClaimGranted {
        task: u8,
        worker: u8,
    },
    Revoke {
        task: u8,
    },
    /// Sends a request, whose handler runs unless a response is stored.
    Send {
        key: u8,
        variant: u8,
        behavior: Handling,
    },
    /// Admits a request: its client becomes the owner, unless there is one.
    Admit {
        key: u8,
        variant: u8,
    },
    /// By the owner of `back` admissions ago.
    CompleteRequest {
        back: u8,
        says: u8,
    },
    ReleaseRequest {
        back: u8,
    },
    ClaimEffect {
        by: Holder,
        name: u8,
        variant: u8,
    },
    SettleEffect {
        by: Holder,
        name: u8,
        says: u8,
    },
    Spend {
        key: u8,
        limiter: u8,
        units: u32,
        /// From both limiters, or from none.
        both: bool,
    },
    /// All children that a leased task can have, or none.
    Spawn {
        lease: u8,
    },
    WaitChildren {
        lease: u8,
    },
    Replay {
        task: u8,
        id: u8,
        execution: u32,
    },
    ChangePriority {
        task: u8,
        id: u8,
        priority: i32,
    },
    DeleteTask {
        task: u8,
        id: u8,
    },
    SetLaneState {
        lane: u8,
        state: LaneState,
    },
    LimitLane {
        lane: u8,
        limit: Option<u32>,
    },
    OfWorkflow(WorkflowOperation),
    OfExternalRuntime(ExternalOperation),
    Sweep,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, node) in self.nodes.iter().enumerate() {
            writeln!(f, "  node {number}: {node:?}")?;
        }
        for (number, task) in self.tasks.iter().enumerate() {
            writeln!(f, "  task {number}: {task:?}")?;
        }
        for (number, workflow) in self.workflows.iter().enumerate() {
            writeln!(f, "  workflow {number}: {workflow:?}")?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {number:>3}. {:?}, then {} rounds", step.action, step.rounds)?;
        }
        Ok(())
    }
}
