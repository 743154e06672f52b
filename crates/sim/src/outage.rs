//! Outages: the store of one node is away while its worker holds leases, for longer than anybody
//! takes the worker for alive without a heartbeat.

use windlass_core::LaneState;
use windlass_store_test::{CrashPoint, Random};

use crate::scene::ask;
use crate::script::{Action, Mishap, NodeSpec, Step, Wish};

/// Longer than an outage.
const LONG_MS: u64 = 60_000;

/// More lookups than an engine makes before it says that an outcome is not known.
const LOOKUPS: u64 = 9;

/// Writes outages into every fourth script.
pub(crate) struct Outages {
    random: Random,
    often: u64,
    /// Nodes whose workers hold leases that outlast an outage, if there are any.
    nodes: Vec<u8>,
}

impl Outages {
    pub(crate) fn new(seed: u64, nodes: &[NodeSpec]) -> Self {
        let mut random = Random::new(seed.rotate_left(48) ^ seed);
        let often = if seed % 4 == 1 { *random.pick(&[2, 4]) } else { 0 };
        let outlasts = |node: &NodeSpec| node.slots > 0 && node.lease_ms > LONG_MS;
        let nodes = (0..).zip(nodes).filter(|(_, node)| outlasts(node));
        Self { random, often, nodes: nodes.map(|(number, _)| number).collect() }
    }

    /// What comes next, if anything.
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        if self.often == 0 || !self.random.percent(self.often) {
            return Vec::new();
        }
        let task = self.small();
        let node = if self.nodes.is_empty() { task } else { *self.random.pick(&self.nodes) };
        let rival = node.wrapping_add(1);
        let mut steps = Vec::new();
        let mut then = |action, rounds| steps.push(Step { action, rounds });
        let open = |lane| Wish::SetLaneState { lane, state: LaneState::Active };
        for wish in [open(0), open(1), Wish::Reap { task, id: 0 }] {
            then(ask(rival, wish), 6);
        }
        let create = Wish::Create { task, id: 0, variant: 0 };
        if self.random.percent(60) {
            // The answer to the commit that creates the task, and leases it to the worker that
            // waits there, is never heard.
            let (nth, point) = (1, CrashPoint::AfterCommit);
            let lost = Mishap::Unknown { nth, point, lookups: LOOKUPS };
            then(Action::Fault { node, fault: lost }, 0);
            then(ask(node, create), 6);
        } else {
            then(ask(rival, create), 6);
        }
        then(Action::Advance { ms: 20 }, 16);
        then(Action::Fault { node, fault: Mishap::Outage }, 4);
        for _ in 0..1 + self.random.below(5) {
            then(Action::Advance { ms: *self.random.pick(&[900, 2_000, 9_000]) }, 4);
        }
        then(Action::Fault { node, fault: Mishap::Recovery }, 16);
        then(Action::Advance { ms: *self.random.pick(&[400, 2_000]) }, 8);
        steps
    }

    fn small(&mut self) -> u8 {
        u8::try_from(self.random.below(12)).unwrap_or(0)
    }
}
