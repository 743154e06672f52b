//! Scenarios: short sequences in which two nodes race for the same record; and children.

use windlass_core::command::Create;
use windlass_core::{Command, LaneState, OnTimeout, Tenant};
use windlass_store_test::Random;

use crate::client::{Client, new_task};
use crate::generate::Writer;
use crate::script::{Action, Operation, Point, ProcessFault, Step, TaskSpec, exactly};

/// Makes some tasks children of others.
pub(crate) fn adopt(random: &mut Random, tasks: &mut [TaskSpec]) {
    let count = tasks.len() as u64;
    for child in 1..tasks.len() {
        let parent = usize::try_from(random.below(count)).unwrap_or(0) % child;
        if tasks[child].key.is_none() && random.percent(70) {
            tasks[child].parent = Some(tasks[parent].ids[0].clone());
        }
    }
}

/// A call with one operation to one node.
pub(crate) fn ask(node: u8, operation: Operation) -> Action {
    Action::Ask { node, also: None, disconnect_after: None, operations: vec![operation] }
}

impl Writer {
    /// Plans children for the lease that a client is about to get.
    pub(crate) fn plan_children(&mut self) {
        self.plans.push_back(Operation::Spawn { lease: 0 });
        if self.random.percent(80) {
            self.plans.push_back(Operation::WaitChildren { lease: 0 });
            if self.random.percent(20) {
                self.plans.push_back(Operation::WaitChildren { lease: 0 });
            }
            return;
        }
        let ends =
            [Operation::Complete { lease: 0, result: 0 }, Operation::CancelHeld { lease: 0 }];
        let end = *self.random.pick(&ends);
        self.plans.push_back(end);
    }

    pub(crate) fn about_children(&mut self) -> Operation {
        match self.random.below(10) {
            0..5 => Operation::Spawn { lease: self.recent() },
            _ => Operation::WaitChildren { lease: self.recent() },
        }
    }

    pub(crate) fn plan_scenario(&mut self) {
        match self.random.below(11) {
            4 | 7 if self.weights.workers > 0 => self.plan_grant(),
            5 if self.weights.workers > 0 => self.plan_death(),
            0 if self.weights.children > 0 => self.plan_last_two(),
            2 | 3 if self.weights.limits > 0 => self.plan_limit_race(),
            1 | 6 if self.weights.waits > 0 => self.plan_signal(),
            8..11 if self.weights.requests > 0 => self.plan_request(),
            _ => self.plan_race(),
        }
    }

    /// Opens the lane of a task, recreates the task, and leases all tasks of the lane.
    pub(crate) fn lease_of(&mut self, node: u8, task: usize, id: usize) {
        let lane = u8::try_from(self.tasks[task].lane).unwrap_or(0);
        let named = exactly(task, id % self.tasks[task].ids.len());
        let parent = self.tasks[task].parent.clone();
        let mut operations = vec![Operation::SetLaneState { lane, state: LaneState::Active }];
        if let Some(parent) = parent.and_then(|parent| self.number_of(&parent)) {
            operations.push(Operation::Create { task: exactly(parent, 0), id: 0, variant: 0 });
        }
        operations.push(Operation::DeleteTask { task: named, id: 0 });
        operations.push(Operation::Create { task: named, id: 0, variant: 0 });
        self.then(Action::Ask { node, also: None, disconnect_after: None, operations }, 20);
        self.claim_all(node, lane);
    }

    pub(crate) fn number_of(&self, id: &str) -> Option<usize> {
        self.tasks.iter().position(|spec| spec.ids.iter().any(|known| known == id))
    }

    pub(crate) fn claim_all(&mut self, node: u8, lane: u8) {
        let (begin, wait_ms, special) = (self.random.percent(80), 0, true);
        let (lane, limit, lease_ms) = (Some(lane), 5, *self.random.pick(&[400, 3_000]));
        let sessions = self.random.percent(85);
        let claim = Operation::Claim { lane, begin, limit, lease_ms, wait_ms, special, sessions };
        self.then(ask(node, claim), 12);
    }

    pub(crate) fn then(&mut self, action: Action, rounds: u8) {
        self.race.push_back(Step { action, rounds });
    }

    /// One node has decided on the first operation when the others commit at another node; then it
    /// resumes.
    pub(crate) fn meet(&mut self, node: u8, first: Operation, others: &[Operation]) {
        let point = *self.random.pick(&[Point::Decided, Point::Decided, Point::Loaded]);
        self.then(Action::Trap { node, point, fault: ProcessFault::Stop }, 0);
        self.then(ask(node, first), 30);
        for other in others {
            self.then(ask(node.wrapping_add(1), *other), 30);
        }
        self.then(Action::Resume { node }, 20);
    }

    pub(crate) fn end(&mut self, lease: u8) -> Operation {
        match self.random.below(5) {
            0 => Operation::CancelHeld { lease },
            1 => Operation::Fail { lease, reason: 0, after_ms: None },
            2 => Operation::Cancel { task: lease, id: 0 },
            _ => Operation::Complete { lease, result: 0 },
        }
    }

    /// Two nodes end the last two children concurrently: each has decided while the other child
    /// was open. Or the parent is cancelled meanwhile, or waits only then.
    fn plan_last_two(&mut self) {
        let pairs = (0..self.tasks.len()).filter_map(|child| {
            let parent = self.tasks[child].parent.as_deref()?;
            Some((self.number_of(parent)?, child))
        });
        let pairs: Vec<(usize, usize)> = pairs.collect();
        if pairs.is_empty() {
            return self.plan_race();
        }
        let (parent, child) = *self.random.pick(&pairs);
        let node = self.small();
        let rival = node.wrapping_add(1);
        let held = exactly(parent, 0);
        let own = pairs.iter().filter(|pair| pair.0 == parent);
        let own = own.flat_map(|pair| (0..self.tasks[pair.1].ids.len()).map(|id| (pair.1, id)));
        let own: Vec<u8> = own.map(|(child, id)| exactly(child, id)).collect();
        let state = LaneState::Active;
        let lanes = (0..3).map(|lane| Operation::SetLaneState { lane, state });
        let operations =
            lanes.chain(own.iter().map(|child| Operation::DeleteTask { task: *child, id: 0 }));
        let operations = operations.collect();
        self.then(Action::Ask { node: rival, also: None, disconnect_after: None, operations }, 8);
        self.lease_of(rival, parent, 0);
        self.then(ask(rival, Operation::Spawn { lease: held }), 16);
        let wait = Operation::WaitChildren { lease: held };
        let waits_late = self.random.percent(25);
        if !waits_late {
            self.then(ask(rival, wait), 16);
        }
        let lane = u8::try_from(self.tasks[child].lane).unwrap_or(0);
        self.claim_all(rival, lane);
        let mut ends: Vec<Operation> = own.iter().map(|child| self.end(*child)).collect();
        if waits_late {
            ends.push(wait);
        }
        if self.random.percent(20) {
            ends.push(Operation::Cancel { task: held, id: 0 });
        }
        let first = ends.swap_remove(usize::from(self.small()) % ends.len());
        self.meet(node, first, &ends);
    }

    /// A task is suspended, signalled, resumed, cancelled or timed out, two of these
    /// concurrently.
    fn plan_signal(&mut self) {
        let node = self.small();
        let task = usize::from(self.small()) % self.tasks.len();
        let id = usize::from(self.small());
        let rival = node.wrapping_add(1);
        self.lease_of(rival, task, id);
        let lease = exactly(task, id % self.tasks[task].ids.len());
        self.then(ask(rival, Operation::Begin { lease }), 8);
        if self.random.percent(30) {
            let made =
                Operation::CreateWaitpoint { lease, number: 1, held: self.random.percent(80) };
            self.then(ask(rival, made), 12);
        }
        let timeout = self.random.percent(40).then_some((100, OnTimeout::Resume));
        let suspend = Operation::Suspend { lease, condition: 0, timeout, open: false, nth: 0 };
        let send = Operation::SendMessages {
            task: lease,
            id: 0,
            name: 0,
            source: self.small(),
            key: None,
            after_ms: *self.random.pick(&[0, 0, 50]),
            also: None,
        };
        let pause = self.random.pick(&[20, 2_000]);
        let mut rivals = vec![send];
        if self.random.percent(50) {
            self.then(ask(rival, suspend), 16);
            let end = [
                Operation::Resume { task: lease, id: 0 },
                Operation::Cancel { task: lease, id: 0 },
            ];
            rivals.push(*self.random.pick(&end));
        } else {
            rivals.push(suspend);
        }
        if self.random.percent(30) {
            self.then(Action::Advance { ms: 100 }, 0);
            rivals.push(Operation::Sweep);
        }
        let first = rivals.swap_remove(usize::from(self.small()) % rivals.len());
        self.meet(node, first, &rivals);
        // A message that resumed the attempt does not resume it again.
        let again = Operation::Suspend { lease, condition: 0, timeout: None, open: false, nth: 1 };
        if self.random.percent(40) {
            self.then(ask(rival, again), 12);
        }
        if self.random.percent(60) {
            let lane = u8::try_from(self.tasks[task].lane).unwrap_or(0);
            self.claim_all(rival, lane);
            if self.random.percent(50) {
                self.then(ask(rival, again), 12);
            }
            self.then(ask(rival, Operation::ConsumeMessages { lease, seq: 0 }), 8);
        }
        if self.random.percent(40) {
            self.then(Action::Advance { ms: *pause }, 4);
            let signal = Operation::Signal { token: 0, name: 0, key: None, spoilt: false };
            self.then(ask(rival, signal), 12);
        }
    }
}

impl Client<'_> {
    /// Creates every child of a leased task.
    pub(crate) fn spawn(&self, lease: u8) -> Option<Command> {
        let parent = self.fence(lease)?.task.id;
        let own = |spec: &&TaskSpec| spec.parent.as_deref() == Some(parent.as_str());
        let specs = self.script.tasks.iter().filter(own);
        let tasks = specs.flat_map(|spec| {
            let ids = 0..u8::try_from(spec.ids.len()).unwrap_or(0);
            ids.map(|id| new_task(spec, id, 0))
        });
        let (tenant, tasks) = (Tenant::default(), tasks.collect::<Vec<_>>());
        (!tasks.is_empty()).then(|| Create { tenant, tasks }.into())
    }
}
