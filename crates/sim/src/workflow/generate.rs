use windlass_store_test::Random;

use crate::script::{Action, Operation, Point, ProcessFault, Step};
use crate::workflow::plan::{ActivityBehavior, NEVER, Op, Plan, WorkflowOperation, WorkflowSpec};

/// Longer than any run.
const FOR_EVER_MS: u64 = 36_000_000;

/// The number of message names.
const NAMES: u64 = 3;

/// Writes the programs of one workflow.
struct PlanWriter {
    is_confluent: bool,
    /// The last number used. All values have different numbers.
    next: u64,
}

impl PlanWriter {
    fn plan(&mut self, random: &mut Random) -> Plan {
        let acts = *random.pick(&[1, 1, 1, 2, 3]);
        let mut plan = Plan { is_confluent: self.is_confluent, ..Plan::one(Vec::new(), false) };
        plan.acts.clear();
        let mut before = None;
        for _ in 0..acts {
            let mut ops: Vec<Op> = before.map(Op::Recall).into_iter().collect();
            let number = self.number();
            ops.push(Op::Keep(number));
            ops.extend(self.ops(random, 2, true));
            before = Some(number);
            plan.acts.push(ops);
        }
        if random.percent(10) {
            plan.acts.last_mut().expect("there is one").push(Op::Fail);
        }
        plan
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn ops(&mut self, random: &mut Random, depth: u64, is_root: bool) -> Vec<Op> {
        let most = if depth == 0 { 2 } else { 4 };
        (0..random.below(most) + 1).map(|_| self.op(random, depth, is_root)).collect()
    }

    fn op(&mut self, random: &mut Random, depth: u64, is_root: bool) -> Op {
        match random.below(if depth == 0 { 13 } else { 22 }) {
            0..4 => Op::Activity(random.below(90), behavior(random)),
            4 => Op::Dropped(random.below(90), behavior(random)),
            5 => Op::Local(random.below(90)),
            6 => Op::Sleep(*random.pick(&[0, 1, 30, 300, 2_000])),
            7 | 8 if is_root => self.hear(random),
            7 => Op::Echo(random.below(90)),
            8 => Op::Status(random.below(90)),
            9 => Op::Echo(random.below(90)),
            10 => Op::Keep(self.number()),
            11 if self.is_confluent => Op::Status(random.below(90)),
            11 => Op::Hurried(random.below(90), *random.pick(&[40, 400, 4_000])),
            12 if self.is_confluent => Op::WaitSignal(NEVER, Some(*random.pick(&[0, 40, 800]))),
            12 => Op::Chance,
            13 => {
                let between = self.ops(random, depth - 1, is_root);
                Op::Started(random.below(90), behavior(random), between)
            }
            14 | 15 => self.other(random, depth),
            16 => Op::Join(self.branches(random, depth, is_root)),
            17 => {
                let fan = 2 + random.below(6);
                let act = |random: &mut Random| Op::Activity(random.below(90), behavior(random));
                Op::Join((0..fan).map(|_| vec![act(random)]).collect())
            }
            18 | 19 => Op::Select(self.rivals(random, depth, is_root)),
            20 => self.timeout(random, depth, is_root),
            _ => Op::Shielded(self.ops(random, depth - 1, is_root)),
        }
    }

    fn hear(&self, random: &mut Random) -> Op {
        let name = u8::try_from(random.below(NAMES)).unwrap_or(0);
        let wait_ms = *random.pick(&[Some(30), Some(900), Some(4_000), None]);
        match random.below(3) {
            0 => Op::SignalStream(name, u8::try_from(1 + random.below(3)).unwrap_or(1)),
            _ => Op::WaitSignal(name, wait_ms.filter(|_| !self.is_confluent)),
        }
    }

    /// A child or a detached workflow.
    fn other(&mut self, random: &mut Random, depth: u64) -> Op {
        let mut ops = self.ops(random, depth - 1, false);
        if random.percent(20) {
            ops.push(Op::Fail);
        }
        if random.percent(70) { Op::Child(ops) } else { Op::Detached(ops) }
    }

    fn branches(&mut self, random: &mut Random, depth: u64, is_root: bool) -> Vec<Vec<Op>> {
        (0..random.below(3) + 1).map(|_| self.ops(random, depth - 1, is_root)).collect()
    }

    /// In a confluent program, only the first branch ends.
    fn rivals(&mut self, random: &mut Random, depth: u64, is_root: bool) -> Vec<Vec<Op>> {
        if !self.is_confluent {
            let mut rivals = self.branches(random, depth, is_root);
            rivals.push(vec![Op::Sleep(*random.pick(&[20, 500, 3_000]))]);
            return rivals;
        }
        let mut rivals = vec![self.ops(random, depth - 1, is_root)];
        for _ in 0..=random.below(2) {
            let mut loser: Vec<Op> = match random.below(4) {
                0 => vec![Op::Activity(random.below(90), behavior(random))],
                1 => vec![Op::Activity(random.below(90), ActivityBehavior::Hang(20_000))],
                2 => vec![Op::Child(vec![Op::Sleep(FOR_EVER_MS)])],
                _ => Vec::new(),
            };
            let end = [Op::Sleep(FOR_EVER_MS), Op::WaitSignal(NEVER, None)];
            loser.push(random.pick(&end).clone());
            rivals.push(loser);
        }
        rivals
    }

    fn timeout(&mut self, random: &mut Random, depth: u64, is_root: bool) -> Op {
        let short = *random.pick(&[30, 700]);
        if !self.is_confluent {
            return Op::Timeout(short, self.ops(random, depth - 1, is_root));
        }
        if random.percent(40) {
            return Op::Timeout(short, vec![Op::WaitSignal(NEVER, None)]);
        }
        Op::Timeout(FOR_EVER_MS, self.ops(random, depth - 1, is_root))
    }
}

fn behavior(random: &mut Random) -> ActivityBehavior {
    match random.below(12) {
        0..5 => ActivityBehavior::Succeed,
        5 | 6 => ActivityBehavior::Later(*random.pick(&[5, 200, 1_500])),
        7 | 8 => ActivityBehavior::Flaky(*random.pick(&[1, 2])),
        9 => ActivityBehavior::Panicking,
        10 => ActivityBehavior::Never,
        _ => ActivityBehavior::Hang(*random.pick(&[900, 5_000])),
    }
}

/// Writes steps about workflows, from a separate random source: the rest of a script does not
/// depend on it.
pub(crate) struct WorkflowWriter {
    random: Random,
    count: u8,
    /// The chance of another step, in percent.
    often: u64,
}

impl WorkflowWriter {
    /// With the workflows of a script. Two of three scripts have none.
    pub(crate) fn new(seed: u64) -> (Self, Vec<WorkflowSpec>) {
        let mut random = Random::new(seed.rotate_left(16) ^ seed);
        let count = if seed.is_multiple_of(3) { *random.pick(&[1, 1, 2, 3]) } else { 0 };
        let specs = (0..count).map(|number| {
            let mut composer = PlanWriter { is_confluent: random.percent(60), next: 0 };
            let plan = composer.plan(&mut random);
            WorkflowSpec { id: format!("w{number}"), plan }
        });
        let specs = specs.collect();
        let often = *random.pick(&[5, 15, 30]);
        (Self { random, count, often }, specs)
    }

    pub(crate) fn opening(&mut self) -> Vec<Step> {
        let start = |workflow| step(&mut self.random, WorkflowOperation::Start { workflow });
        (0..self.count).map(start).collect()
    }

    /// The next steps, if any.
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        while self.count > 0 && self.random.percent(self.often) {
            plan(&mut self.random, &mut steps);
        }
        steps
    }
}

fn step(random: &mut Random, operation: WorkflowOperation) -> Step {
    let node = number(random, 12);
    let also = random.percent(12).then(|| number(random, 12));
    let disconnect_after = random.percent(4).then(|| number(random, 12));
    let action = Action::Ask {
        node,
        also,
        disconnect_after,
        operations: vec![Operation::OfWorkflow(operation)],
    };
    Step { action, rounds: *random.pick(&[0, 4, 12, 30]) }
}

fn number(random: &mut Random, end: u64) -> u8 {
    u8::try_from(random.below(end)).unwrap_or(0)
}

fn plan(random: &mut Random, steps: &mut Vec<Step>) {
    let workflow = number(random, 12);
    let operation = match random.below(34) {
        0..3 => WorkflowOperation::Start { workflow },
        3..15 => WorkflowOperation::Tell { workflow, nth: number(random, 20) },
        15 => WorkflowOperation::Cancel { workflow },
        16 if random.percent(40) => WorkflowOperation::End { workflow },
        17 | 18 => WorkflowOperation::Prune { workflow, keep: number(random, 2) },
        19 => return claim(random, steps),
        20 | 24..27 => WorkflowOperation::Commit {
            lease: *random.pick(&[0, 0, 0, 1, 2]),
            ahead: number(random, 3),
        },
        21..24 => return strike(random, steps),
        _ => {
            let action = Action::Advance { ms: *random.pick(&[20, 300, 1_500, 5_000]) };
            return steps.push(Step { action, rounds: 8 });
        }
    };
    let step = step(random, operation);
    steps.push(step);
}

/// A client claims a turn and holds it until its lease has expired.
fn claim(random: &mut Random, steps: &mut Vec<Step>) {
    let lease_ms = *random.pick(&[100, 300]);
    steps.push(step(random, WorkflowOperation::Claim { lease_ms }));
    if random.percent(70) {
        let commit = WorkflowOperation::Commit { lease: 0, ahead: number(random, 3) };
        steps.push(step(random, commit));
    }
    let action = Action::Advance { ms: *random.pick(&[50, 400, 2_000]) };
    steps.push(Step { action, rounds: 12 });
    let commit = WorkflowOperation::Commit { lease: 0, ahead: number(random, 3) };
    steps.push(step(random, commit));
}

/// A process is stopped or crashes within a batch, and resumes or restarts later.
pub(crate) fn strike(random: &mut Random, steps: &mut Vec<Step>) {
    let node = number(random, 12);
    let point = *random.pick(&[Point::Loaded, Point::Decided, Point::Committed]);
    let fault = *random.pick(&[ProcessFault::Crash, ProcessFault::Stop]);
    steps.push(Step { action: Action::Trap { node, point, fault }, rounds: 30 });
    let ms = *random.pick(&[50, 900, 4_000]);
    steps.push(Step { action: Action::Advance { ms }, rounds: 20 });
    let back = match fault {
        ProcessFault::Crash => Action::Restart { node },
        ProcessFault::Stop => Action::Resume { node },
    };
    steps.push(Step { action: back, rounds: 16 });
}
