use std::collections::VecDeque;

use windlass_core::{LaneState, limits};
use windlass_store_test::{CrashPoint, Random};

use crate::concurrency;
use crate::external_runtime::ExternalRuntimeWriter;
use crate::outage::Outages;
use crate::scenario::adopt;
use crate::script::{
    Action, Behavior, FAST_STRIDE, Fault, LANES, NodeSpec, Operation, Point, ProcessFault, Script,
    Step, TaskSpec,
};
use crate::workflow;

/// Writes the script of a seed.
pub(crate) fn script(seed: u64) -> Script {
    let mut random = Random::new(seed);
    let nodes = 2 + random.below(2);
    let mut nodes: Vec<NodeSpec> = (0..nodes).map(|_| node(&mut random)).collect();
    let plain = 2 + random.below(4);
    let keyed = random.below(3);
    let mut tasks = Vec::new();
    for number in 0..plain {
        let ids = ["a", "b", "c", "d", "e", "f"].iter().take(*random.pick(&[1, 2, 3, 6]));
        let ids = ids.map(|suffix| format!("t{number}{suffix}")).collect();
        tasks.push(task(&mut random, ids, None));
    }
    for number in 0..keyed {
        let ids = vec![format!("k{number}-x"), format!("k{number}-y")];
        tasks.push(task(&mut random, ids, Some(format!("key-{number}"))));
    }
    let weights = Weights::of(&mut random);
    if weights.children > 0 {
        adopt(&mut random, &mut tasks);
    }
    concurrency::assign_keys(&mut random, weights.limits, &mut tasks);
    Outages::prepare(seed, &mut tasks);
    let mut writer = Writer {
        weights,
        random,
        tasks: tasks.clone(),
        plans: VecDeque::new(),
        race: VecDeque::new(),
    };
    let length = 60 + writer.random.below(200);
    let mut steps = vec![writer.opening(), writer.opening()];
    if writer.weights.waits > 0 && writer.random.percent(65) {
        let action = writer.ask(vec![Operation::RotateSigningKey { grace_ms: 60_000 }]);
        steps.push(Step { action, rounds: 6 });
    }
    let (mut workflow_writer, workflows) = workflow::WorkflowWriter::new(seed);
    steps.extend(workflow_writer.opening());
    let mut external_runtime = ExternalRuntimeWriter::new(seed);
    let mut outages = Outages::new(seed, &mut nodes);
    for _ in 0..length {
        steps.push(writer.step());
        // A scenario is not interrupted.
        if writer.race.is_empty() {
            steps.extend(workflow_writer.steps());
            steps.extend(external_runtime.steps());
            steps.extend(outages.steps());
        }
    }
    Script { seed, nodes, tasks, workflows, steps }
}

fn node(random: &mut Random) -> NodeSpec {
    let deaf = random.percent(10);
    // A node without wakes has to poll often.
    let lease_ms = *random.pick(&[600, 1_200, 3_000, 120_000]);
    NodeSpec {
        slots: *random.pick(&[0, 0, 1, 2]),
        lease_ms: if deaf { lease_ms.min(3_000) } else { lease_ms },
        beat_ms: *random.pick(&[500, 2_000, 10_000]),
        skew_ms: *random.pick(&[0, 0, 0, -2_500, 4_000]),
        stride: *random.pick(&[1, 2, FAST_STRIDE, FAST_STRIDE]),
        deaf,
        batch_commands: *random.pick(&[1_024, 1_024, 1, 2]),
        max_concurrent_batches: *random.pick(&[1, 1, 2, 3]),
    }
}

fn task(random: &mut Random, ids: Vec<String>, key: Option<String>) -> TaskSpec {
    let behaviors = 1 + random.below(3);
    TaskSpec {
        ids,
        key,
        window_ms: *random.pick(&[1_000, 2_000, limits::DEFAULT_WINDOW_MS]),
        lane: usize::try_from(random.below(LANES.len() as u64)).unwrap_or(0),
        priority: i32::try_from(random.below(3)).unwrap_or(0),
        start_ms: *random.pick(&[0, 0, 0, 300, 2_000]),
        deadline_ms: random.percent(15).then(|| 500 + random.below(6_000)),
        max_attempts: random.percent(75).then(|| *random.pick(&[1, 1, 2, 3])),
        backoff_ms: *random.pick(&[0, 0, 200, 1_500]),
        doubling: random.percent(30),
        timeout_ms: random.percent(15).then(|| 200 + random.below(2_000)),
        max_lost_leases: *random.pick(&[0, 1, 3, 100]),
        max_replays: *random.pick(&[0, 1, 100]),
        retention_ms: random.percent(35).then(|| 200 + random.below(2_000)),
        accept_expired_lease: random.percent(15),
        special: random.percent(35),
        parent: None,
        limit_key: None,
        behaviors: (0..behaviors).map(|_| behavior(random)).collect(),
    }
}

fn behavior(random: &mut Random) -> Behavior {
    match random.below(20) {
        0..4 => Behavior::Succeed,
        4 => Behavior::SucceedLater { ms: 100 + random.below(2_000) },
        5 | 6 => Behavior::Fail,
        7 => Behavior::FailForGood,
        8 => Behavior::NonRetryable,
        9 => Behavior::RetryAfter { ms: random.below(1_000) },
        10 => Behavior::Panic,
        11..15 => crate::messages::wait(random),
        15 | 16 => Behavior::Gather,
        17 | 18 => crate::generate_requests::call(random),
        _ => Behavior::Hang { ms: 1_000 + random.below(6_000) },
    }
}

/// The weights of a script, so that some have many crashes and others none.
#[derive(Debug)]
pub(crate) struct Weights {
    crashes: u64,
    faults: u64,
    clocks: u64,
    operators: u64,
    repeats: u64,
    races: u64,
    pub(crate) waits: u64,
    pub(crate) children: u64,
    pub(crate) limits: u64,
    pub(crate) workers: u64,
    pub(crate) requests: u64,
}

impl Weights {
    fn of(random: &mut Random) -> Self {
        Self {
            crashes: *random.pick(&[0, 5, 12]),
            faults: *random.pick(&[0, 4, 12]),
            clocks: *random.pick(&[0, 0, 4]),
            operators: *random.pick(&[4, 12, 25]),
            repeats: *random.pick(&[4, 10, 18]),
            races: *random.pick(&[0, 5, 10, 18]),
            waits: *random.pick(&[0, 40, 65]),
            children: *random.pick(&[0, 25, 50]),
            limits: *random.pick(&[0, 60, 90]),
            workers: *random.pick(&[0, 15, 30]),
            requests: *random.pick(&[0, 15, 30]),
        }
    }
}

pub(crate) struct Writer {
    pub(crate) weights: Weights,
    pub(crate) random: Random,
    pub(crate) tasks: Vec<TaskSpec>,
    /// The next operations of a client that claimed a task.
    pub(crate) plans: VecDeque<Operation>,
    /// The remaining steps of a scenario.
    pub(crate) race: VecDeque<Step>,
}

impl Writer {
    fn opening(&mut self) -> Step {
        let operations = vec![self.create()];
        Step { action: self.ask(operations), rounds: 6 }
    }

    fn step(&mut self) -> Step {
        if let Some(step) = self.race.pop_front() {
            return step;
        }
        if self.random.below(100) < self.weights.races {
            self.plan_scenario();
        }
        let action = self.action();
        let rounds = u8::try_from(*self.random.pick(&[0, 2, 4, 8, 16, 30])).unwrap_or(0);
        Step { action, rounds }
    }

    /// One node is stopped with a decided batch; another one changes the records it was decided
    /// on; then the first one resumes.
    pub(crate) fn plan_race(&mut self) {
        let (node, task, id, lane) = (self.small(), self.small(), self.small(), self.small());
        let create = Operation::Create { task, id, variant: 0 };
        let claim = self.claim();
        let first = *self.random.pick(&[create, create, claim, claim, Operation::Sweep]);
        let states = [LaneState::Paused, LaneState::Draining, LaneState::Disabled];
        let state = *self.random.pick(&states);
        let close = Operation::SetLaneState { lane, state };
        let other = match self.random.below(5) {
            0 => create,
            1 => Operation::Cancel { task, id },
            _ => close,
        };
        let (first, other) = if self.random.percent(80) { (first, other) } else { (other, first) };
        let ask = |node, operation| Action::Ask {
            node,
            also: None,
            disconnect_after: None,
            operations: vec![operation],
        };
        let trap = Action::Trap { node, point: Point::Decided, fault: ProcessFault::Stop };
        let rival = node.wrapping_add(1);
        for (action, rounds) in [
            (trap, 0),
            (ask(node, first), 30),
            (ask(rival, other), 30),
            (Action::Resume { node }, 20),
        ] {
            self.race.push_back(Step { action, rounds });
        }
        if other == close {
            let state = LaneState::Active;
            let operation = Operation::SetLaneState { lane, state };
            self.race.push_back(Step { action: ask(rival, operation), rounds: 8 });
        }
    }

    fn action(&mut self) -> Action {
        let Weights { crashes, faults, clocks, repeats, .. } = self.weights;
        let lot = self.random.below(100);
        let node = self.small();
        let mut bound = crashes;
        if lot < bound {
            return self.accident(node);
        }
        bound += faults;
        if lot < bound {
            return Action::Fault { node, fault: self.fault() };
        }
        bound += clocks;
        if lot < bound {
            let by_ms = *self.random.pick(&[-60_000, -2_000, -300, 300, 2_000, 60_000]);
            return Action::SetClock { by_ms };
        }
        bound += repeats;
        if lot < bound {
            return Action::Again { node, call: self.recent() };
        }
        if lot < bound + 14 {
            return Action::Advance { ms: *self.random.pick(&[20, 120, 400, 900, 2_000, 5_000]) };
        }
        let many = self.random.percent(12);
        let mut operations = vec![self.next_operation()];
        if many {
            operations.push(self.next_operation());
        }
        self.ask(operations)
    }

    /// Mostly continues with a claimed lease, so that leases are settled.
    fn next_operation(&mut self) -> Operation {
        if self.random.percent(70)
            && let Some(operation) = self.plans.pop_front()
        {
            return operation;
        }
        let operation = self.operation();
        if let Operation::Claim { begin, .. } = operation
            && self.random.percent(75)
        {
            self.plan(begin);
        }
        operation
    }

    /// Plans the operations on the lease that a client is about to get.
    fn plan(&mut self, begun: bool) {
        let (lease, lease_ms) = (0, *self.random.pick(&[100, 500, 2_000]));
        if !begun && self.random.percent(85) {
            self.plans.push_back(Operation::Begin { lease });
        }
        if self.random.percent(35) {
            self.plans.push_back(Operation::Renew { lease, lease_ms });
        }
        if self.random.below(100) < self.weights.children {
            self.plan_children();
            return;
        }
        if self.random.below(100) < self.weights.waits {
            self.plan_wait();
            return;
        }
        if self.random.below(100) < self.weights.requests {
            self.plan_call();
        }
        let end = match self.random.below(12) {
            0..5 => Operation::Complete { lease, result: 0 },
            5..8 => Operation::Fail { lease, reason: 0, after_ms: None },
            8 => Operation::Snooze { lease, ms: self.random.below(900) },
            9 => Operation::Release { lease },
            10 => Operation::CancelHeld { lease },
            _ => return,
        };
        self.plans.push_back(end);
        if self.random.percent(25) {
            self.plans.push_back(end);
        }
    }

    fn ask(&mut self, operations: Vec<Operation>) -> Action {
        let node = self.small();
        let also = self.random.percent(12).then(|| self.small());
        let disconnect_after = self.random.percent(4).then(|| self.small());
        Action::Ask { node, also, disconnect_after, operations }
    }

    fn accident(&mut self, node: u8) -> Action {
        match self.random.below(24) {
            0..2 => Action::Crash { node },
            2..9 => {
                let point = *self.random.pick(&[Point::Loaded, Point::Decided, Point::Committed]);
                let fault = *self.random.pick(&[ProcessFault::Crash, ProcessFault::Stop]);
                Action::Trap { node, point, fault }
            }
            9..14 => Action::Restart { node },
            14..16 => Action::Pause { node },
            16..21 => Action::Resume { node },
            21 | 22 => Action::Leave { call: self.recent() },
            _ => Action::Drain { node },
        }
    }

    fn fault(&mut self) -> Fault {
        let nth = 1 + self.random.below(3);
        match self.random.below(12) {
            0 | 1 => Fault::Conflict { times: *self.random.pick(&[1, 2, 9]) },
            2 => Fault::BeginFails,
            3 => Fault::LoadFails,
            4 => Fault::CommitFails { nth },
            5 => Fault::Rejected,
            6 => Fault::Full,
            7 | 8 => {
                let points = [CrashPoint::InCommit, CrashPoint::AfterCommit];
                let point = *self.random.pick(&points);
                Fault::Unknown { nth, point, lookups: *self.random.pick(&[0, 1, 6, 6]) }
            }
            9 => Fault::ReadsFail { times: 1 + self.random.below(3) },
            10 => Fault::Outage,
            _ => Fault::EndOutage,
        }
    }

    fn operation(&mut self) -> Operation {
        if self.random.below(100) < self.weights.operators {
            return self.order();
        }
        if self.random.below(200) < self.weights.children {
            return self.about_children();
        }
        if self.random.below(100) < self.weights.workers {
            return self.about_workers();
        }
        if self.random.below(100) < self.weights.requests {
            return self.about_requests();
        }
        if self.random.below(600) < self.weights.limits {
            return self.limit_operation();
        }
        if self.random.below(100) < self.weights.waits {
            return self.waiting();
        }
        match self.random.below(100) {
            0..22 => self.create(),
            22..25 => Operation::CreateBoth { task: self.small(), other: self.small() },
            25..50 => self.claim(),
            50..56 => Operation::Begin { lease: self.recent() },
            56..58 => {
                let percent = u8::try_from(self.random.below(101)).unwrap_or(100);
                Operation::Progress { lease: self.recent(), percent }
            }
            58..62 => {
                let lease_ms = *self.random.pick(&[100, 500, 2_000]);
                Operation::Renew { lease: self.recent(), lease_ms }
            }
            62..76 => Operation::Complete { lease: self.recent(), result: self.variant() },
            76..86 => {
                let after_ms = self.random.percent(30).then(|| self.random.below(800));
                Operation::Fail { lease: self.recent(), reason: self.variant(), after_ms }
            }
            86..90 => Operation::Snooze { lease: self.recent(), ms: self.random.below(900) },
            90..97 => Operation::Release { lease: self.recent() },
            _ => Operation::CancelHeld { lease: self.recent() },
        }
    }

    /// An operation of an operator.
    fn order(&mut self) -> Operation {
        let (task, id, lane) = (self.small(), self.small(), self.small());
        match self.random.below(20) {
            0 | 1 => Operation::Cancel { task, id },
            2..7 => {
                let execution = u32::try_from(*self.random.pick(&[0, 0, 0, 1])).unwrap_or(0);
                Operation::Replay { task, id, execution }
            }
            7 => {
                let priority = i32::try_from(self.random.below(4)).unwrap_or(0);
                Operation::ChangePriority { task, id, priority }
            }
            8..11 => Operation::DeleteTask { task, id },
            11..16 => {
                use LaneState::{Active, Disabled, Draining, Paused};
                let states = [Active, Active, Paused, Paused, Draining, Disabled];
                Operation::SetLaneState { lane, state: *self.random.pick(&states) }
            }
            16..19 => {
                let limit = *self.random.pick(&[Some(1), Some(1), Some(2), None]);
                Operation::LimitLane { lane, limit }
            }
            _ => Operation::Sweep,
        }
    }

    fn create(&mut self) -> Operation {
        let variant = u8::try_from(*self.random.pick(&[0, 0, 0, 0, 0, 0, 1, 2])).unwrap_or(0);
        Operation::Create { task: self.small(), id: self.small(), variant }
    }

    pub(crate) fn claim(&mut self) -> Operation {
        Operation::Claim {
            lane: self.random.percent(40).then(|| self.small()),
            begin: self.random.percent(60),
            limit: u32::try_from(*self.random.pick(&[1, 1, 1, 2, 5])).unwrap_or(1),
            lease_ms: *self.random.pick(&[100, 400, 1_000, 3_000]),
            wait_ms: *self.random.pick(&[0, 0, 0, 300, 2_000]),
            special: self.random.percent(70),
            sessions: self.random.percent(70),
        }
    }

    pub(crate) fn variant(&mut self) -> u8 {
        u8::from(self.random.percent(25))
    }

    /// A small number, for anything picked by a number.
    pub(crate) fn small(&mut self) -> u8 {
        u8::try_from(self.random.below(12)).unwrap_or(0)
    }

    /// How far back: mostly the last, seldom an old one.
    pub(crate) fn recent(&mut self) -> u8 {
        u8::try_from(*self.random.pick(&[0, 0, 0, 0, 1, 1, 2, 3, 5, 9])).unwrap_or(0)
    }
}
