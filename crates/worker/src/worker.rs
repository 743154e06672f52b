use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use windlass_core::command::{Claim, ClaimGranted, ClearSticky, NewTask};
use windlass_core::{
    Kind, LaneName, Payload, Problem, Rejection, SESSIONS, TagFilter, TaskId, TaskKey, Tenant,
    WorkerId, limits,
};
use windlass_engine::{Engine, Error};

use crate::attempt_report::{AttemptReport, Listener};
use crate::context::Context;
use crate::failure::Failure;
use crate::handler::Handler;
use crate::lease_registry::{LeaseRegistry, PendingRequest};
use crate::short_lease::ShortLease;
use crate::worker_handle::WorkerHandle;
use crate::worker_heartbeat::SHUTDOWN_TIMEOUT;
use crate::workflow::{AnonymousFunction, Workflow, WorkflowDefinition, name_of};
use crate::workflow_cache::WorkflowCache;
use crate::workflow_definitions::WorkflowDefinitions;

/// The default heartbeat interval.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// The default size of the workflow cache.
const WORKFLOW_CACHE_SIZE: usize = 1_000;

/// Builder of a worker: the tasks that it claims, its concurrency, and the code for each kind.
///
/// By default it claims untagged tasks of the default lane of the default tenant that require no
/// capability, one at a time, under leases of thirty seconds.
#[derive(Debug)]
pub struct Worker {
    pub(crate) engine: Engine,
    pub(crate) claim: Claim,
    pub(crate) concurrency: usize,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) handlers: BTreeMap<Kind, Handler>,
    pub(crate) definitions: WorkflowDefinitions,
    /// A registered function without a stable name.
    anonymous: Option<AnonymousFunction>,
    /// Why registered code was rejected.
    rejected: Option<Rejection>,
    pub(crate) cache: WorkflowCache,
    pub(crate) leases: Arc<LeaseRegistry>,
    pub(crate) stop_when: StopCondition,
    pub(crate) listener: Listener<AttemptReport>,
    pub(crate) heartbeat_failures: Listener<Error>,
    pub(crate) short_leases: Listener<ShortLease>,
}

/// When a worker stops without a drain; by default never.
#[derive(Debug, Default)]
pub(crate) struct StopCondition {
    /// After this many tasks.
    pub(crate) tasks: Option<u64>,
    /// After this long without work.
    pub(crate) idle: Option<Duration>,
}

impl Worker {
    pub fn new(engine: Engine, name: impl Into<WorkerId>) -> Self {
        let claim = Claim { registered: true, ..Claim::new(name) };
        Self {
            engine,
            claim,
            concurrency: 1,
            heartbeat_interval: HEARTBEAT_INTERVAL,
            handlers: BTreeMap::new(),
            definitions: WorkflowDefinitions::default(),
            anonymous: None,
            rejected: None,
            cache: WorkflowCache::new(WORKFLOW_CACHE_SIZE),
            leases: Arc::default(),
            stop_when: StopCondition::default(),
            listener: Listener::default(),
            heartbeat_failures: Listener::default(),
            short_leases: Listener::default(),
        }
    }

    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<Tenant>) -> Self {
        self.claim.tenant = tenant.into();
        self
    }

    /// The lanes to claim tasks from, in rotation.
    #[must_use]
    pub fn lanes<L: Into<LaneName>>(mut self, lanes: impl IntoIterator<Item = L>) -> Self {
        self.claim.lanes = lanes.into_iter().map(Into::into).collect();
        self
    }

    #[must_use]
    pub fn capabilities<C>(mut self, capabilities: impl IntoIterator<Item = C>) -> Self
    where
        C: Into<String>,
    {
        let sessions = self.claim.capabilities.accepts_sessions();
        self.claim.capabilities.names = capabilities.into_iter().map(Into::into).collect();
        if sessions { self.sessions() } else { self }
    }

    /// Claims tasks of sessions as well. The worker that claims the first task of a session owns
    /// the session: its tasks run at that worker until none has run there for a minute.
    #[must_use]
    pub fn sessions(mut self) -> Self {
        self.claim.capabilities.names.insert(SESSIONS.to_owned());
        self
    }

    /// How long this worker owns a session after it last ran one of its tasks; clamped to
    /// [`limits::SESSION_IDLE_MS`].
    #[must_use]
    pub fn session_idle(mut self, idle: Duration) -> Self {
        let ms = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
        let ms = ms.clamp(limits::SESSION_IDLE_MS.min, limits::SESSION_IDLE_MS.max);
        self.claim.session_idle_ms = ms.unsigned_abs();
        self
    }

    /// Claims tasks granted to this worker by name as well. Every claim looks for them.
    /// Implied by [`Worker::sessions`].
    #[must_use]
    pub fn accept_grants(mut self) -> Self {
        self.claim.grants = true;
        self
    }

    #[must_use]
    pub fn tags(mut self, tags: TagFilter) -> Self {
        self.claim.capabilities.tags = tags;
        self
    }

    /// How many handlers may run at once; at least one.
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// The length of a lease, clamped to [`limits::LEASE_MS`]. A handler may run longer: its lease
    /// is renewed while it runs.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        let ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let ms = ms.clamp(limits::LEASE_MS.min, limits::LEASE_MS.max);
        self.claim.lease_ms = ms.unsigned_abs();
        self
    }

    /// The heartbeat interval, clamped to [`limits::HEARTBEAT_MS`]. A worker is declared dead 3.5
    /// intervals after its last heartbeat, and its leases are revoked before they expire.
    #[must_use]
    pub fn heartbeat_interval(mut self, every: Duration) -> Self {
        let ms = i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
        let ms = ms.clamp(limits::HEARTBEAT_MS.min, limits::HEARTBEAT_MS.max);
        self.heartbeat_interval = Duration::from_millis(ms.unsigned_abs());
        self
    }

    /// Stops after claiming this many tasks for its handlers, whatever their outcome; see
    /// [`WorkerHandle::wait`].
    #[must_use]
    pub fn max_tasks(mut self, tasks: u64) -> Self {
        self.stop_when.tasks = Some(tasks);
        self
    }

    /// Stops when no handler ran and no task was ready for this long; see [`WorkerHandle::wait`].
    #[must_use]
    pub fn exit_when_idle(mut self, idle: Duration) -> Self {
        self.stop_when.idle = Some(idle);
        self
    }

    /// Calls `listen` with the outcome of every attempt of a handler: once per claimed task, also
    /// if it is snoozed, released or lost. Turns of workflows, and attempts in flight when the
    /// worker is dropped, are not reported. `listen` must not block.
    #[must_use]
    pub fn on_settled(mut self, listen: impl Fn(&AttemptReport) + Send + Sync + 'static) -> Self {
        self.listener = Listener::new(listen);
        self
    }

    /// Calls `listen` each time a heartbeat of this worker fails, for example because the store
    /// is unavailable. The worker retries within a second. `listen` must not block.
    #[must_use]
    pub fn on_heartbeat_failed(mut self, listen: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.heartbeat_failures = Listener::new(listen);
        self
    }

    /// Calls `listen` when leases are too short for the store, at most once a minute. The worker
    /// keeps using them. `listen` must not block.
    #[must_use]
    pub fn on_short_lease(mut self, listen: impl Fn(&ShortLease) + Send + Sync + 'static) -> Self {
        self.short_leases = Listener::new(listen);
        self
    }

    /// The handler of a kind of task. The payload is decoded from JSON, no payload as `null`; the
    /// result is stored as JSON, `null` as no result. A panic fails the attempt.
    ///
    /// A task whose kind has no handler here is snoozed without counting the attempt, so that
    /// another worker can claim it.
    #[must_use]
    pub fn handler<F, I, O, Fut>(mut self, kind: impl Into<Kind>, run: F) -> Self
    where
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
        I: DeserializeOwned,
        O: Serialize,
    {
        self.handlers.insert(kind.into(), Handler::new(run));
        self
    }

    /// Like [`Worker::handler`], without decoding the payload or encoding the result.
    #[must_use]
    pub fn raw_handler<F, Fut>(mut self, kind: impl Into<Kind>, run: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Payload>, Failure>> + Send + 'static,
    {
        self.handlers.insert(kind.into(), Handler::raw(run));
        self
    }

    /// The code of an activity, registered under the name of its function.
    #[must_use]
    pub fn activity<F, I, O, E, Fut>(mut self, function: F) -> Self
    where
        F: Fn(Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: Into<Failure>,
    {
        match name_of(&function) {
            Ok(name) => {
                let run = move |context: Context, input: I| {
                    let running = function(context, input);
                    async move { running.await.map_err(Into::into) }
                };
                self.handler(name, run)
            }
            Err(anonymous) => {
                self.anonymous = Some(anonymous);
                self
            }
        }
    }

    /// Like [`Worker::activity`], with shared state such as a client or a pool: every call gets a
    /// clone as its first argument. Workflow code calls it like any other activity.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use windlass_engine::{Config, Engine};
    /// # use windlass_store::MemoryStore;
    /// use windlass_worker::workflow::{StepError, Workflow};
    /// use windlass_worker::{Context, Failure, Worker};
    ///
    /// #[derive(Clone)]
    /// struct Bank {
    ///     account: Arc<str>, // and a client, which is cheap to clone
    /// }
    ///
    /// impl Bank {
    ///     async fn charge(self, _: Context, cents: u64) -> Result<String, Failure> {
    ///         Ok(format!("{cents} cents to {}", self.account))
    ///     }
    /// }
    ///
    /// async fn order(ctx: Workflow, cents: u64) -> Result<String, StepError> {
    ///     ctx.activity(Bank::charge, &cents).await
    /// }
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::with_store(MemoryStore::new(), Config::default()).await?;
    /// let bank = Bank { account: "ours".into() };
    /// let worker = Worker::new(engine.clone(), "worker-1");
    /// let running = worker.activity_with(bank, Bank::charge).workflow(order).start()?;
    /// let order = engine.start_workflow_named::<String>("order", &500).await?;
    /// assert_eq!(order.result().await?, "500 cents to ours");
    /// # running.drain(std::time::Duration::from_secs(10)).await;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn activity_with<S, F, I, O, E, Fut>(mut self, state: S, function: F) -> Self
    where
        S: Clone + Send + Sync + 'static,
        F: Fn(S, Context, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: Into<Failure>,
    {
        match name_of(&function) {
            Ok(name) => {
                let run = move |context: Context, input: I| {
                    let running = function(state.clone(), context, input);
                    async move { running.await.map_err(Into::into) }
                };
                self.handler(name, run)
            }
            Err(anonymous) => {
                self.anonymous = Some(anonymous);
                self
            }
        }
    }

    /// The code of a workflow, registered under the name of its function.
    #[must_use]
    pub fn workflow<F, I, O, E, Fut>(mut self, function: F) -> Self
    where
        F: Fn(Workflow, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: Into<Failure>,
    {
        match WorkflowDefinition::of(function) {
            Ok(definition) => self.workflow_definition(definition),
            Err(anonymous) => {
                self.anonymous = Some(anonymous);
                self
            }
        }
    }

    /// The code of one version of a workflow, registered under the name of its function. A worker
    /// can have several versions; it does not claim workflows of versions that it lacks.
    #[must_use]
    pub fn workflow_version<F, I, O, E, Fut>(
        mut self,
        version: impl Into<String>,
        function: F,
    ) -> Self
    where
        F: Fn(Workflow, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: Into<Failure>,
    {
        match WorkflowDefinition::of(function) {
            Ok(definition) => self.workflow_definition(definition.at_version(version)),
            Err(anonymous) => {
                self.anonymous = Some(anonymous);
                self
            }
        }
    }

    /// The code of a workflow.
    #[must_use]
    pub fn workflow_definition(mut self, definition: WorkflowDefinition) -> Self {
        self.claim.grants = true;
        self.rejected = self.definitions.add(definition).err().or(self.rejected);
        self
    }

    /// The size of the workflow cache. A workflow that is not cached is replayed at its next turn.
    #[must_use]
    pub fn workflow_cache_size(mut self, most: usize) -> Self {
        self.cache = WorkflowCache::new(most);
        self
    }

    /// Starts to claim in the background; handlers run on the current Tokio runtime. Rejected,
    /// before anything is claimed, if a name or number is out of range or no code is registered.
    pub fn start(mut self) -> Result<WorkerHandle, Error> {
        if let Some(rejection) = self.rejected {
            return Err(rejection.into());
        }
        self.claim.capabilities.names.extend(self.definitions.capabilities());
        self.claim.check()?;
        for kind in self.handlers.keys() {
            limits::KIND.check(kind.as_str())?;
        }
        if let Some(anonymous) = self.anonymous {
            tracing::error!(%anonymous, "worker not started");
            return Err(Rejection::Invalid { field: "name", problem: Problem::Empty }.into());
        }
        if self.handlers.is_empty() && self.definitions.is_empty() {
            return Err(Rejection::Invalid { field: "handlers", problem: Problem::Empty }.into());
        }
        Ok(WorkerHandle::start(self))
    }

    /// The command that leases the workflow whose step has just ended.
    pub(crate) fn claim_granted(
        &self,
        workflow: TaskKey,
        request: &PendingRequest,
    ) -> ClaimGranted {
        let Claim { worker, lease_ms, registered, .. } = &self.claim;
        let (worker, lease_ms, registered) = (worker.clone(), *lease_ms, *registered);
        let request = Some(request.id());
        ClaimGranted { task: workflow, worker, lease_ms, begin: true, registered, request }
    }

    /// The command that clears the sticky assignment of these workflows to this worker.
    pub(crate) fn clear_sticky(&self, workflows: Vec<TaskId>) -> ClearSticky {
        let (tenant, worker) = (self.claim.tenant.clone(), self.claim.worker.clone());
        ClearSticky { tenant, worker, workflows }
    }

    /// Releases sticky workflows, so that other workers can claim their turns at once.
    pub(crate) async fn release_sticky(&self, workflows: Vec<TaskKey>) {
        let workflows: Vec<TaskId> = workflows.into_iter().map(|key| key.id).collect();
        let most = usize::try_from(limits::CLEAR_STICKY.max).unwrap_or(usize::MAX);
        for page in workflows.chunks(most) {
            let clear = self.clear_sticky(page.to_vec());
            match tokio::time::timeout(SHUTDOWN_TIMEOUT, self.engine.submit(clear)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%error, "releasing sticky workflows failed");
                    return;
                }
                Err(_) => {
                    tracing::warn!("releasing sticky workflows timed out");
                    return;
                }
            }
        }
    }

    /// Whether this worker can run a task that a workflow creates.
    pub(crate) fn runs(&self, task: &NewTask) -> bool {
        let Claim { lanes, capabilities, .. } = &self.claim;
        let lane = lanes.contains(&task.lane);
        lane && self.handlers.contains_key(&task.kind) && capabilities.meets(&task.route())
    }

    pub(crate) fn lease_length(&self) -> Duration {
        Duration::from_millis(self.claim.lease_ms)
    }
}
