use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use windlass_store::MemoryStore;
use windlass_store_test::{Call as StoreCall, CrashPoint, Failure, Random};

use crate::client::{self, Call, ClientRequest, Place};
use crate::clock::{Time, WallClock};
use crate::coverage::CoverageEvent;
use crate::model::Fenced;
use crate::node::{Node, SimContext};
use crate::script::{Action, Fault, Operation, Script};
use crate::watch::Watch;

/// Time advances in this many parts, so that events due at different times happen apart.
const PARTS: u32 = 4;
/// The number of rounds after each part.
const ROUNDS_PER_PART: u8 = 3;

/// Since when no handler runs under a lease, and how many heartbeats its worker had sent by then.
#[derive(Clone, Copy)]
pub(crate) struct Unattended {
    pub(crate) since: Duration,
    pub(crate) heartbeats: u32,
}

/// Plays a script. It alone decides which node runs when.
pub(crate) struct Driver<'s> {
    pub(crate) script: &'s Script,
    pub(crate) context: SimContext,
    pub(crate) nodes: Vec<Node>,
    pub(crate) calls: Vec<Call>,
    /// Leases without a handler, after recovery.
    pub(crate) unattended: BTreeMap<Fenced, Unattended>,
    random: Random,
    rounds: usize,
}

impl<'s> Driver<'s> {
    pub(crate) fn new(script: &'s Script, in_words: bool) -> Self {
        let time = Arc::new(Time::default());
        let clock = WallClock { time: time.clone(), skew_ms: 0 };
        let memory = MemoryStore::with_clock(Arc::new(clock));
        let watch = Watch::new(script, in_words);
        let context = SimContext { memory, time, watch, seed: script.seed };
        let nodes = script.nodes.iter().cloned().enumerate();
        let mut nodes: Vec<Node> = nodes.map(|(number, spec)| Node::new(number, spec)).collect();
        nodes.iter_mut().for_each(|node| node.boot(&context));
        let random = Random::new(script.seed.rotate_left(32));
        let (calls, unattended) = (Vec::new(), BTreeMap::new());
        Self { script, context, nodes, calls, unattended, random, rounds: 0 }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.context.watch.see().breach().is_some()
    }

    /// Plays every step, or stops at the first violation.
    pub(crate) fn play(&mut self) {
        for (number, step) in self.script.steps.iter().enumerate() {
            self.note(format_args!("step {number}: {:?}", step.action));
            self.act(&step.action);
            self.run(step.rounds);
            if self.is_broken() {
                return;
            }
        }
    }

    fn note(&self, line: std::fmt::Arguments<'_>) {
        self.context.watch.see().note(line);
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Ask { node, also, disconnect_after, operations } => {
                self.operation(*node, *disconnect_after, operations);
                if also.is_some() && !self.calls.is_empty() {
                    let request = self.calls[self.calls.len() - 1].request.clone();
                    self.ask(also.unwrap_or_default(), None, request);
                }
            }
            Action::Again { node, call } => {
                if let Some(at) = self.back(*call) {
                    let request = self.calls[at].request.clone();
                    self.ask(*node, None, request);
                }
            }
            Action::Leave { call } => {
                if let Some(at) = self.back(*call) {
                    self.leave(at);
                }
            }
            Action::Crash { node } => {
                let at = self.at(*node);
                self.nodes[at].crash(&self.context);
            }
            Action::Restart { node } => {
                let at = self.at(*node);
                self.nodes[at].boot(&self.context);
            }
            Action::Pause { node } => {
                let at = self.at(*node);
                self.nodes[at].stop();
                self.context.watch.see().count(CoverageEvent::Stop);
            }
            Action::Resume { node } => {
                let at = self.at(*node);
                self.nodes[at].resume();
            }
            Action::Trap { node, point, fault } => {
                let at = self.at(*node);
                self.nodes[at].set_trap(*point, *fault);
            }
            Action::Drain { node } => self.drain(*node),
            Action::Fault { node, fault } => self.fault(*node, *fault),
            Action::Advance { ms } => self.advance(Duration::from_millis(*ms)),
            Action::SetClock { by_ms } => {
                self.context.time.set_wall(*by_ms);
                let mut seen = self.context.watch.see();
                seen.model.clock_is_set = true;
                seen.count(CoverageEvent::ClockSet);
            }
        }
    }

    fn at(&self, node: u8) -> usize {
        usize::from(node) % self.nodes.len()
    }

    /// The call made `call` calls ago.
    fn back(&self, call: u8) -> Option<usize> {
        let count = self.calls.len();
        (count > 0).then(|| count - 1 - usize::from(call) % count)
    }

    fn operation(&mut self, node: u8, disconnect_after: Option<u8>, operations: &[Operation]) {
        let request = {
            let seen = self.context.watch.see();
            let view = client::ClientView {
                leases: &seen.leases,
                workflows: &seen.model.workflows,
                external_runtime: &seen.model.external_runtime,
                tokens: &seen.tokens,
                owned_requests: &seen.owned_requests,
            };
            client::request(self.script, operations, view, self.calls.len())
        };
        if let Some(request) = request {
            self.ask(node, disconnect_after, request);
        }
    }

    /// Calls a node, or the next one that is up.
    fn ask(&mut self, node: u8, disconnect_after: Option<u8>, request: ClientRequest) {
        let (first, count) = (self.at(node), self.nodes.len());
        let mut order = (0..count).map(|offset| &self.nodes[(first + offset) % count]);
        let Some(node) = order.find(|node| node.is_up()) else { return };
        let Some(engine) = node.engine().cloned() else { return };
        let place = Place { call: self.calls.len(), node: node.number, boot: node.boots() };
        let answered = Arc::default();
        let watch = self.context.watch.clone();
        let task = client::ask(engine, request.clone(), place, watch, Arc::clone(&answered));
        let Some(task) = node.spawn(task) else { return };
        let Place { node, boot, .. } = place;
        self.calls.push(Call {
            request,
            node,
            boot,
            task,
            answered,
            disconnect_after,
            left: false,
        });
    }

    fn leave(&mut self, at: usize) {
        let call = &mut self.calls[at];
        if !call.left && !call.task.is_finished() {
            call.left = true;
            call.task.abort();
            let mut seen = self.context.watch.see();
            seen.note(format_args!("the client of call {at} disconnects"));
            seen.count(CoverageEvent::Left);
        }
    }

    fn drain(&mut self, node: u8) {
        let at = self.at(node);
        if !self.nodes[at].is_up() {
            return;
        }
        let mut seen = self.context.watch.see();
        let boots = self.nodes[at].boots();
        seen.draining.insert((at, boots));
        seen.model.deregistration_submitted(&format!("worker-{at}-{boots}"));
        seen.count(CoverageEvent::Drain);
        drop(seen);
        self.nodes[at].drain(Duration::from_millis(500));
    }

    fn fault(&mut self, node: u8, fault: Fault) {
        let at = self.at(node);
        let Some(faults) = self.nodes[at].faults() else { return };
        match fault {
            Fault::Conflict { times } => faults.conflict(times),
            Fault::BeginFails => faults.fail(StoreCall::Begin, 1, Failure::Unavailable),
            Fault::LoadFails => faults.fail(StoreCall::Load, 1, Failure::Unavailable),
            Fault::CommitFails { nth } => faults.crash(nth, CrashPoint::BeforeCommit),
            Fault::Rejected => faults.fail(StoreCall::Commit, 1, Failure::Rejected),
            Fault::Full => faults.fail(StoreCall::Commit, 1, Failure::Full),
            Fault::Unknown { nth, point, lookups } => {
                faults.crash(nth, point);
                faults.fail_times(StoreCall::Outcome, lookups, Failure::Unavailable);
            }
            Fault::ReadsFail { times } => {
                for call in [StoreCall::Payloads, StoreCall::Events, StoreCall::Query] {
                    faults.fail_times(call, times, Failure::Unavailable);
                }
            }
            Fault::Outage => faults.outage(Failure::Unavailable),
            Fault::EndOutage => faults.recover(),
        }
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        for _ in 0..PARTS {
            self.pass(by / PARTS);
            self.run(ROUNDS_PER_PART);
            if self.is_broken() {
                return;
            }
        }
    }

    /// Advances the time, for stopped nodes as well.
    pub(crate) fn pass(&mut self, by: Duration) {
        self.context.time.advance(by);
        self.nodes.iter_mut().for_each(|node| node.advance(by));
    }

    fn run(&mut self, rounds: u8) {
        for _ in 0..rounds {
            let turns = 1 + u32::try_from(self.random.below(3)).unwrap_or(0);
            self.round(turns);
        }
    }

    /// Gives every node its turns, each round starting with the next node.
    pub(crate) fn round(&mut self, turns: u32) {
        self.rounds += 1;
        let count = self.nodes.len();
        for offset in 0..count {
            let node = &mut self.nodes[(self.rounds + offset) % count];
            node.turn(turns);
            node.spring(&self.context);
            node.has_left();
            node.keep_reading(&self.context);
        }
        for at in 0..self.calls.len() {
            match &mut self.calls[at].disconnect_after {
                Some(0) => self.leave(at),
                Some(disconnect_after) => *disconnect_after -= 1,
                None => {}
            }
        }
    }

    /// The unanswered calls of clients that still wait on a process that still exists.
    pub(crate) fn open_calls(&self) -> Vec<usize> {
        let open = |at: &usize| {
            let call = &self.calls[*at];
            let node = &self.nodes[call.node];
            let lives = node.boots() == call.boot && node.engine().is_some();
            lives && !call.left && !call.answered.load(Ordering::Relaxed)
        };
        (0..self.calls.len()).filter(open).collect()
    }
}
