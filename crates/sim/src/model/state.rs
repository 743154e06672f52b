use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use windlass_core::command::Claim;
use windlass_core::{ChangeSet, LaneName, Retry, TaskId, Timestamp};
use windlass_store::{MemoryStore, Store};
use windlass_store_test::LogFold;

use crate::coverage::CoverageEvent;
use crate::model::facts::{Facts, LaneFacts, SettleSeen, Track};
use crate::model::outcome::{Fenced, Since};
use crate::ready::ready;
use crate::script::{LANES, TaskSpec};
use crate::violation::Breach;
use crate::workflow::WorkflowSpec;

/// The state of the model.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) specs: Vec<TaskSpec>,
    /// The spec of each id.
    pub(crate) of_id: BTreeMap<TaskId, usize>,
    pub(super) tasks: BTreeMap<TaskId, Track<Facts>>,
    pub(super) lanes: BTreeMap<LaneName, Track<LaneFacts>>,
    /// By idempotency key, the tasks that it referred to, in order.
    pub(super) keys: BTreeMap<String, Vec<super::create_request::KeySeen>>,
    /// Tasks that the observed commit created, with or without keys.
    pub(super) keyed: Vec<TaskId>,
    pub(super) claims: BTreeMap<Fenced, ClaimSeen>,
    pub(super) begun: BTreeMap<Fenced, u32>,
    pub(super) renewals: BTreeMap<(Fenced, Timestamp), u64>,
    pub(super) progress: BTreeMap<(Fenced, u8), u64>,
    pub(super) settles: BTreeMap<Fenced, SettleSeen>,
    /// By task and event name, its last log event.
    pub(super) happened: BTreeMap<(TaskId, &'static str), u64>,
    /// Claims that a caller received.
    pub(super) leased: BTreeSet<Fenced>,
    pub(super) started: BTreeSet<Fenced>,
    /// Results that holders submitted.
    pub(super) results: BTreeMap<Fenced, Vec<Option<Vec<u8>>>>,
    /// Completions of the observed commit whose results are still to be read.
    pub(super) unread: Vec<(Fenced, u32)>,
    /// By worker, its claim.
    pub(super) offers: BTreeMap<String, Claim>,
    /// By worker, the number of its claims.
    pub(super) claim_counts: BTreeMap<String, u32>,
    /// The requested durations of renewals.
    pub(super) renewing: BTreeMap<Fenced, BTreeSet<u64>>,
    /// Failures that holders reported, and the retries they asked for.
    pub(super) failing: BTreeMap<Fenced, Vec<(String, Retry)>>,
    /// Tasks that a caller asked to delete.
    pub(super) deleting: BTreeSet<TaskId>,
    pub(super) last_seq: u64,
    /// The state from the log alone, of the tasks of every tenant.
    pub(super) fold: LogFold,
    /// The position of the log when the observed commit began.
    pub(super) view: u64,
    /// The time of that commit.
    pub(super) now: Timestamp,
    /// The latest time of any batch.
    pub(super) latest: Timestamp,
    /// The time of the last log event: no batch that begins later has an earlier time.
    pub(super) logged_at: Timestamp,
    /// The times of batches that are about to begin, each with the worker of its node.
    beginning: Vec<(String, Weak<Timestamp>)>,
    /// Whether the store's clock was set.
    pub(crate) clock_is_set: bool,
    /// Ended tasks as they were when they ended.
    pub(super) frozen: BTreeMap<TaskId, super::record::Frozen>,
    /// Registered workers.
    pub(super) workers: super::workers::Workers,
    /// Concurrency limits, quotas, and the owners of sessions.
    pub(super) concurrency: super::concurrency_limit::ConcurrencyLimits,
    /// Messages to tasks.
    pub(super) mailboxes: super::mailbox::Mailboxes,
    pub(super) requests: super::idempotent_request::Requests,
    pub(super) effects: super::effect::Effects,
    pub(super) limiters: super::limiter::Limiters,
    /// The number of commits; orders changes that the log does not show.
    pub(super) moment: u64,
    pub(crate) workflows: super::workflow::Workflows,
    pub(crate) external_runtime: super::external_runtime::ExternalRuntime,
}

#[derive(Clone, Debug)]
pub(super) struct ClaimSeen {
    pub(super) worker: String,
    pub(super) attempt: Option<u32>,
    pub(super) seq: u64,
}

impl Model {
    pub(crate) fn new(specs: Vec<TaskSpec>, workflows: Vec<WorkflowSpec>) -> Self {
        let mut of_id = BTreeMap::new();
        for (number, spec) in specs.iter().enumerate() {
            of_id.extend(spec.ids.iter().map(|id| (TaskId::new(id), number)));
        }
        let tasks = of_id.keys().map(|id| (id.clone(), Track::new(Facts::absent()))).collect();
        let lane = |name: &&str| (LaneName::new(name), Track::new(LaneFacts::default()));
        Self {
            specs,
            of_id,
            tasks,
            lanes: LANES.iter().map(lane).collect(),
            keys: BTreeMap::new(),
            keyed: Vec::new(),
            claims: BTreeMap::new(),
            begun: BTreeMap::new(),
            renewals: BTreeMap::new(),
            progress: BTreeMap::new(),
            settles: BTreeMap::new(),
            happened: BTreeMap::new(),
            leased: BTreeSet::new(),
            started: BTreeSet::new(),
            results: BTreeMap::new(),
            unread: Vec::new(),
            offers: BTreeMap::new(),
            claim_counts: BTreeMap::new(),
            renewing: BTreeMap::new(),
            failing: BTreeMap::new(),
            deleting: BTreeSet::new(),
            last_seq: 0,
            fold: LogFold::default(),
            view: 0,
            now: Timestamp::default(),
            latest: Timestamp::default(),
            logged_at: Timestamp::default(),
            beginning: Vec::new(),
            clock_is_set: false,
            frozen: BTreeMap::new(),
            workers: super::workers::Workers::default(),
            concurrency: super::concurrency_limit::ConcurrencyLimits::default(),
            mailboxes: super::mailbox::Mailboxes::default(),
            requests: super::idempotent_request::Requests::default(),
            effects: super::effect::Effects::default(),
            limiters: super::limiter::Limiters::default(),
            moment: 0,
            workflows: super::workflow::Workflows::new(workflows),
            external_runtime: super::external_runtime::ExternalRuntime::default(),
        }
    }

    pub(crate) fn spec(&self, id: &TaskId) -> &TaskSpec {
        &self.specs[self.of_id[id]]
    }

    /// The position for a command submitted at the node of this worker. A command that arrives
    /// while a batch is about to begin is decided with that batch, at its time.
    pub(crate) fn since(&self, worker: &str) -> Since {
        let beginning = self.beginning.iter().filter(|(of, _)| of == worker);
        let times = beginning.filter_map(|(_, at)| at.upgrade());
        let at = times.fold(self.logged_at, |at, time| at.min(*time));
        Since { seq: self.last_seq, at, moment: self.moment }
    }

    /// Takes the events that no answer shows.
    pub(crate) fn take_met(&mut self) -> Vec<CoverageEvent> {
        let mut met = std::mem::take(&mut self.requests.met);
        met.append(&mut self.workflows.met);
        met
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    pub(crate) fn facts(&self, id: &TaskId) -> &Facts {
        self.tasks[id].last()
    }

    /// Every task that exists, and its state.
    pub(crate) fn present(&self) -> impl Iterator<Item = (&TaskId, &Facts)> {
        let all = self.tasks.iter().map(|(id, track)| (id, track.last()));
        all.filter(|(_, facts)| facts.exists())
    }

    /// The number of lanes whose leases have reached their limit.
    pub(crate) fn full_lanes(&self) -> usize {
        let full = |track: &&Track<LaneFacts>| {
            let lane = track.last();
            lane.limit.is_some_and(|limit| lane.running >= limit)
        };
        self.lanes.values().filter(full).count()
    }

    /// Records the time of a batch, which is about to begin while the caller holds the result.
    #[must_use]
    pub(crate) fn begins_at(&mut self, now: Timestamp, worker: &str) -> Arc<Timestamp> {
        self.latest = self.latest.max(now);
        let time = Arc::new(now);
        self.beginning.retain(|(_, at)| at.strong_count() > 0);
        self.beginning.push((worker.to_owned(), Arc::downgrade(&time)));
        time
    }

    /// Reads the log events and the records of a commit. Passes each log event to `visit`.
    pub(crate) fn observe(
        &mut self,
        memory: &MemoryStore,
        changes: &ChangeSet,
        (view, now): (u64, Timestamp),
        visit: &mut dyn FnMut(&windlass_core::LogEvent),
    ) -> Result<(), Breach> {
        (self.view, self.now) = (view, now);
        self.latest = self.latest.max(now);
        self.moment += 1;
        self.learn_dead(changes);
        let entries = ready(memory.events(self.last_seq, usize::MAX));
        for entry in entries.expect("memory does not fail") {
            visit(&entry);
            self.read(&entry)?;
        }
        self.compare_with_log(memory, changes)?;
        self.read_results(memory)?;
        self.compare(memory, changes)?;
        self.check_waits()
    }

    /// Reads the changes of a commit to workflows, by a node with this workflow worker.
    pub(crate) fn observe_workflows(
        &mut self,
        memory: &MemoryStore,
        changes: &ChangeSet,
        now: Timestamp,
        worker: &str,
    ) -> Result<(), Breach> {
        let writer = super::workflow::Writer { worker, now, moment: self.moment };
        self.workflows.observe(memory, changes, &writer)?;
        self.external_runtime.observe(memory, changes, now)
    }
}
