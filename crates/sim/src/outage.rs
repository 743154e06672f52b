//! Outages: the store of one node is unavailable while its worker holds leases, for longer than a
//! worker without heartbeats stays alive.

use windlass_core::LaneState;
use windlass_store_test::{CrashPoint, Random};

use crate::scenario::ask;
use crate::script::{Action, Behavior, FAST_STRIDE, Fault, NodeSpec, Operation, Step, TaskSpec};

/// More lookups than an engine makes before it reports an unknown outcome.
const LOOKUPS: u64 = 9;

/// The node that is cut off.
const NODE: u8 = 0;

/// The task whose grants are lost in every sixteenth script: the worker of [`NODE`] can always run
/// it.
const PLAIN_TASK: usize = 0;

/// Writes outages into every fourth script.
pub(crate) struct Outages {
    random: Random,
    often: u64,
    loses_grants: bool,
}

fn loses_grants(seed: u64) -> bool {
    seed % 16 == 13
}

impl Outages {
    /// Gives the node that is cut off a worker with leases that outlast an outage, and with a
    /// heartbeat interval so long that it is not declared dead meanwhile, or so short that it is.
    pub(crate) fn new(seed: u64, nodes: &mut [NodeSpec]) -> Self {
        let mut random = Random::new(seed.rotate_left(48) ^ seed);
        let loses_grants = loses_grants(seed);
        if seed % 4 != 1 {
            return Self { random, often: 0, loses_grants };
        }
        let often = *random.pick(&[2, 4]);
        let node = &mut nodes[usize::from(NODE)];
        (node.slots, node.lease_ms, node.deaf) = (node.slots.max(1), 120_000, false);
        node.beat_ms = *random.pick(&[2_000, 10_000, 10_000]);
        if loses_grants {
            (node.slots, node.beat_ms, node.stride) = (node.slots.max(2), 10_000, FAST_STRIDE);
        }
        Self { random, often, loses_grants }
    }

    /// Changes a task so that the worker of the node can always claim it at once: no delay, no
    /// deadline, no capability, no parent and no limit.
    pub(crate) fn prepare(seed: u64, tasks: &mut [TaskSpec]) {
        if loses_grants(seed) {
            let task = &mut tasks[PLAIN_TASK];
            (task.lane, task.start_ms, task.deadline_ms) = (0, 0, None);
            (task.special, task.parent, task.limit_key) = (false, None, None);
            // The handler outlasts the outage, and the task survives every lost lease.
            (task.timeout_ms, task.behaviors) = (None, vec![Behavior::Hang { ms: 90_000 }]);
            (task.max_attempts, task.max_lost_leases) = (Some(9), 100);
        }
    }

    /// The next steps, if any.
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        if self.often == 0 || !self.random.percent(self.often) {
            return Vec::new();
        }
        let task = if self.loses_grants { PLAIN_TASK as u8 } else { self.small() };
        let mut steps = Vec::new();
        let mut then = |action, rounds| steps.push(Step { action, rounds });
        let open = |lane| Operation::SetLaneState { lane, state: LaneState::Active };
        then(Action::Restart { node: NODE }, 8);
        for operation in [
            open(0),
            open(1),
            Operation::Cancel { task, id: 0 },
            Operation::DeleteTask { task, id: 0 },
        ] {
            then(ask(NODE, operation), 20);
        }
        let create = Operation::Create { task, id: 0, variant: 0 };
        let fault = |fault| Action::Fault { node: NODE, fault };
        let is_global = self.loses_grants && self.random.percent(50);
        if is_global {
            // No node reaches the store: the worker stops its handler, and no sweep declares the
            // worker dead meanwhile.
            then(ask(NODE, create), 20);
            then(Action::Advance { ms: 20 }, 16);
            for node in 0..3 {
                then(Action::Fault { node, fault: Fault::Outage }, 4);
            }
        } else if self.loses_grants || self.random.percent(60) {
            // The answer to the commit that creates the task, and leases it to the waiting worker
            // of the node, is lost.
            let point = CrashPoint::AfterCommit;
            then(fault(Fault::Unknown { nth: 1, point, lookups: LOOKUPS }), 0);
            then(ask(NODE, create), 20);
        } else {
            then(ask(NODE, create), 20);
            then(Action::Advance { ms: 20 }, 16);
            then(fault(Fault::Outage), 4);
        }
        // The engine reports the unknown outcome before the worker is declared dead.
        let away = match (is_global, self.loses_grants) {
            (true, _) => 5,
            (false, true) => 3,
            (false, false) => 2 + self.random.below(4),
        };
        for _ in 0..away {
            let ms =
                if self.loses_grants { 9_000 } else { *self.random.pick(&[900, 5_000, 9_000]) };
            then(Action::Advance { ms }, if self.loses_grants { 16 } else { 4 });
        }
        if is_global {
            for node in 1..3 {
                then(Action::Fault { node, fault: Fault::EndOutage }, 0);
            }
        }
        then(fault(Fault::EndOutage), 16);
        then(Action::Advance { ms: *self.random.pick(&[400, 2_000, 9_000]) }, 8);
        steps
    }

    fn small(&mut self) -> u8 {
        u8::try_from(self.random.below(12)).unwrap_or(0)
    }
}
