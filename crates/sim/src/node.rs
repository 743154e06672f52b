use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};
use windlass_core::command::Claim;
use windlass_core::{Cursor, SESSIONS};
use windlass_engine::{Config, Engine, Error};
use windlass_store::MemoryStore;
use windlass_worker::WorkerHandle;

use crate::clock::{Time, WallClock};
use crate::coverage::CoverageEvent;
use crate::handler::worker;
use crate::script::{CAPABILITY, FAST_STRIDE, LANES, NodeSpec, Point, ProcessFault};
use crate::store::SimStore;
use crate::watch::Watch;

/// The lease of a patient worker: longer than any run.
const PATIENT: Duration = Duration::from_secs(7_200);

/// The heartbeat interval of a worker that must not be declared dead.
const CALM: Duration = Duration::from_secs(10);

/// How long an idle session stays with its worker.
const SESSION_IDLE: Duration = Duration::from_millis(800);

/// A process of the simulation: a separate runtime, with an engine and perhaps a worker.
///
/// It runs only in its turns, and its time advances only by the driver. As long as its turns end
/// with the driver ready to continue, paused time does not advance automatically.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) spec: NodeSpec,
    process: Option<Process>,
    boots: u64,
}

#[derive(Debug)]
struct Process {
    runtime: Runtime,
    engine: Engine,
    store: SimStore,
    workers: Vec<WorkerHandle>,
    /// The time that passed while it was stopped; none while it runs.
    stopped: Option<Duration>,
    draining: Option<JoinHandle<()>>,
    reader: JoinHandle<()>,
}

/// What all nodes share.
#[derive(Debug)]
pub(crate) struct SimContext {
    pub(crate) memory: MemoryStore,
    pub(crate) time: Arc<Time>,
    pub(crate) watch: Watch,
    pub(crate) seed: u64,
}

impl Node {
    pub(crate) fn new(number: usize, spec: NodeSpec) -> Self {
        Self { number, spec, process: None, boots: 0 }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.draining.is_none())
    }

    /// The number of the present boot.
    pub(crate) fn boots(&self) -> u64 {
        self.boots
    }

    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.process.as_ref().map(|process| &process.engine)
    }

    /// The heartbeat interval of the worker with this name, if it belongs to this process.
    pub(crate) fn employs(&self, worker: &str) -> Option<Duration> {
        let of_process = |role: &str| format!("{role}-{}-{}", self.number, self.boots);
        self.process.as_ref()?;
        match worker {
            _ if worker == of_process("worker") => Some(Duration::from_millis(self.spec.beat_ms)),
            _ if worker == of_process("finisher") => Some(CALM),
            _ => None,
        }
    }

    /// Whether its runtime polls only a few tasks in each turn.
    pub(crate) fn is_slow(&self) -> bool {
        self.spec.stride < FAST_STRIDE
    }

    pub(crate) fn faults(&self) -> Option<&windlass_store_test::FaultStore> {
        self.process.as_ref().map(|process| &process.store.faults)
    }

    pub(crate) fn set_trap(&self, point: Point, fault: ProcessFault) {
        if let Some(process) = &self.process {
            process.store.set_trap(point, fault);
        }
    }

    pub(crate) fn disarm(&self) {
        if let Some(process) = &self.process {
            process.store.disarm();
        }
    }

    /// Crashes or stops the process if its trap has sprung.
    pub(crate) fn spring(&mut self, context: &SimContext) {
        let Some(fault) = self.process.as_ref().and_then(|process| process.store.caught()) else {
            return;
        };
        match fault {
            ProcessFault::Crash => self.crash(context),
            ProcessFault::Stop => {
                self.stop();
                let mut seen = context.watch.see();
                seen.note(format_args!("node {} is stopped", self.number));
                seen.count(CoverageEvent::StopInBatch);
            }
        }
    }

    pub(crate) fn boot(&mut self, context: &SimContext) {
        if self.process.is_some() {
            return;
        }
        self.boots += 1;
        let (number, boots) = (self.number, self.boots);
        context.watch.see().note(format_args!("node {number} starts, boot {boots}"));
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(true).event_interval(self.spec.stride);
        let runtime = builder.build().expect("a runtime without I/O needs no system resources");
        let seed = context.seed ^ (boots << 20) ^ ((number as u64) << 40);
        let store = SimStore::new(context, workflow_worker(number, boots), seed, self.spec.deaf);
        let clock = WallClock { time: context.time.clone(), skew_ms: self.spec.skew_ms };
        let config = Config {
            batch_commands: self.spec.batch_commands,
            max_concurrent_batches: Some(self.spec.max_concurrent_batches),
            clock: Arc::new(clock),
            requests: crate::requests::policy(number),
            ..Config::default()
        };
        let start = Engine::with_store(store.clone(), config);
        let engine = runtime.block_on(start).expect("starting does not read the store");
        let reader = runtime.spawn(read(engine.clone(), context.watch.clone()));
        let mut process = Process {
            runtime,
            engine,
            store,
            workers: Vec::new(),
            stopped: None,
            draining: None,
            reader,
        };
        if self.spec.slots > 0 {
            process.employ(self, &context.watch, false);
        }
        process.employ_for_workflows(self, &context.watch, false);
        self.process = Some(process);
    }

    /// Adds a worker that claims every task in every lane.
    pub(crate) fn boot_finisher(&mut self, context: &SimContext) {
        let Some(mut process) = self.process.take() else { return };
        process.employ(self, &context.watch, true);
        process.employ_for_workflows(self, &context.watch, true);
        self.process = Some(process);
    }

    /// Crashes the process without any shutdown.
    pub(crate) fn crash(&mut self, context: &SimContext) {
        let Some(process) = self.process.take() else { return };
        let mut seen = context.watch.see();
        seen.note(format_args!("node {} crashes", self.number));
        seen.count(CoverageEvent::Crash);
        seen.crashed.insert(workflow_worker(self.number, self.boots));
        if process.store.untold.load(Ordering::Relaxed) {
            seen.count(CoverageEvent::CrashAfterCommit);
        }
        drop(seen);
        let Process { runtime, .. } = process;
        drop(runtime);
    }

    pub(crate) fn stop(&mut self) {
        if let Some(process) = &mut self.process {
            process.stopped.get_or_insert(Duration::ZERO);
        }
    }

    /// Resumes after a stop: the runtime's clock jumps by the time that passed.
    pub(crate) fn resume(&mut self) {
        let Some(process) = &mut self.process else { return };
        if let Some(missed) = process.stopped.take() {
            process.runtime.block_on(tokio::time::advance(missed));
        }
    }

    /// Drains the worker and shuts the engine down.
    pub(crate) fn drain(&mut self, grace: Duration) {
        let Some(process) = self.process.as_mut().filter(|process| process.draining.is_none())
        else {
            return;
        };
        let (engine, workers) = (process.engine.clone(), std::mem::take(&mut process.workers));
        process.draining = Some(process.runtime.spawn(async move {
            for worker in workers {
                worker.drain(grace).await;
            }
            // An unavailable store cannot be closed; the process ends all the same.
            drop(engine.shutdown().await);
        }));
    }

    /// Whether a draining process has ended; it is then removed.
    pub(crate) fn has_left(&mut self) -> bool {
        let over =
            |process: &Process| process.draining.as_ref().is_some_and(JoinHandle::is_finished);
        let left = self.process.as_ref().is_some_and(over);
        if left {
            self.process = None;
        }
        left
    }

    /// Spawns a task in the process.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        self.process.as_ref().map(|process| process.runtime.spawn(task))
    }

    /// Runs the process for some turns.
    pub(crate) fn turn(&mut self, turns: u32) {
        let Some(process) = self.process.as_mut().filter(|process| process.stopped.is_none())
        else {
            return;
        };
        process.runtime.block_on(async {
            for _ in 0..turns {
                yield_now().await;
            }
        });
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        let Some(process) = &mut self.process else { return };
        match &mut process.stopped {
            Some(missed) => *missed += by,
            None => process.runtime.block_on(tokio::time::advance(by)),
        }
    }

    /// Starts another log reader at the position of the last one, if that one has ended.
    pub(crate) fn keep_reading(&mut self, context: &SimContext) {
        let Some(process) = &mut self.process else { return };
        if process.reader.is_finished() {
            let reader = read(process.engine.clone(), context.watch.clone());
            process.reader = process.runtime.spawn(reader);
        }
    }
}

impl Process {
    fn employ(&mut self, node: &Node, watch: &Watch, for_all: bool) {
        let role = if for_all { "finisher" } else { "worker" };
        let name = format!("{role}-{}-{}", node.number, node.boots);
        // A finisher polls so rarely that only a wake brings it ready tasks. A node without wakes
        // has to poll.
        let patient = for_all && !node.spec.deaf;
        let lease = if patient { PATIENT } else { Duration::from_millis(node.spec.lease_ms) };
        let mut worker = worker(self.engine.clone(), &name, watch)
            .lease(lease)
            .concurrency(node.spec.slots.max(1))
            .session_idle(SESSION_IDLE)
            .heartbeat_interval(if for_all {
                CALM
            } else {
                Duration::from_millis(node.spec.beat_ms)
            });
        let lanes = if for_all { &LANES[..] } else { &LANES[..2] };
        worker = worker.lanes(lanes.iter().copied());
        let mut claim = Claim { lanes: Vec::new(), registered: true, ..Claim::new(name) };
        claim.lanes.extend(lanes.iter().copied().map(Into::into));
        claim.lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        if for_all {
            worker = worker.capabilities([CAPABILITY]);
            claim.capabilities.names.insert(CAPABILITY.to_owned());
        }
        if for_all || node.number.is_multiple_of(2) {
            worker = worker.sessions();
            claim.capabilities.names.insert(SESSIONS.to_owned());
        }
        claim.session_idle_ms = u64::try_from(SESSION_IDLE.as_millis()).unwrap_or(u64::MAX);
        watch.see().model.claim_submitted(&claim);
        let _inside = self.runtime.enter();
        self.workers.push(worker.start().expect("its names are within their limits"));
    }

    /// Adds a workflow worker, if there are workflows.
    fn employ_for_workflows(&mut self, node: &Node, watch: &Watch, for_all: bool) {
        if watch.see().model.workflows.is_empty() {
            return;
        }
        let name = workflow_worker(node.number, node.boots);
        let name = if for_all { format!("last-{name}") } else { name };
        let slots = node.spec.slots.max(1);
        // Long enough for a turn without faults, however slow the node is.
        let lease_ms = if for_all { 60_000 } else { node.spec.lease_ms.clamp(3_000, 9_000) };
        let worker = crate::workflow::worker(self.engine.clone(), &name, watch)
            .lease(Duration::from_millis(lease_ms))
            .concurrency(if for_all { slots + 1 } else { slots })
            // With such a small cache, other workflows are replayed.
            .workflow_cache_size(slots)
            .heartbeat_interval(if for_all {
                CALM
            } else {
                Duration::from_millis(node.spec.beat_ms)
            });
        let _inside = self.runtime.enter();
        self.workers.push(worker.start().expect("its names are within their limits"));
    }
}

/// The name of the workflow worker in this boot of a node.
pub(crate) fn workflow_worker(number: usize, boots: u64) -> String {
    format!("workflow_worker-{number}-{boots}")
}

/// Reads the log from the position of the last reader. Only one reads at a time: the others find
/// that the position has advanced.
async fn read(engine: Engine, watch: Watch) {
    let start = watch.see().shown.len() as u64;
    let Ok(description) = engine.describe().await else { return };
    let cursor = Cursor { incarnation: description.incarnation, seq: start };
    let Ok(mut log) = engine.subscribe(Some(cursor)).await else { return };
    loop {
        let before = log.cursor().seq;
        match log.next().await {
            Ok(entries) => {
                let mut seen = watch.see();
                if seen.shown.len() as u64 != before {
                    return;
                }
                seen.read(entries);
            }
            Err(Error::Disconnected { .. }) => return,
            Err(error) => {
                let what = format!("a reader at {before} failed: {error}");
                let kind = crate::violation::Kind::Reader;
                return watch.see().judge(crate::violation::breach(kind, what));
            }
        }
    }
}
