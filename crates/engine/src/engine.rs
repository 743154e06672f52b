use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use windlass_core::command::{Claim, Sweep, TrimLog};
use windlass_core::{Command, Cursor, Hints, Outcome, RequestKey, TaskId, TaskKey, Timestamp};
use windlass_store::{Store, StoreError};

use crate::batcher::Batcher;
use crate::claim_wait::ClaimWait;
use crate::command_queue::{CommandQueue, Submission};
use crate::config::Config;
use crate::dedicated_runtime::DedicatedRuntime;
use crate::error::Error;
use crate::filter::EventFilter;
use crate::keyed_notify::KeyedNotify;
use crate::node_heartbeat::NodeHeartbeat;
use crate::recent_claims::RecentClaims;
use crate::reply::{ClaimedTask, CommandResult, CommandResults, Replier, Reply};
use crate::stats::{Counters, Stats, add};
use crate::subscription::{Commits, Subscription};
use crate::task_watch::TaskWatch;
use crate::timer::Timer;
use crate::waiters::Waiters;

/// Delay after a failed sweep.
const SWEEP_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Initial delay after a sweep that found nothing due.
const IDLE_SWEEP_DELAY: Duration = Duration::from_millis(5);
const TRIM_PAGE: u32 = 1_000;

/// A running engine. Clones share it; it stops on [`Engine::shutdown`] or when the last is dropped.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

/// Omits the contents of the store.
impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    config: Config,
    queue: Arc<CommandQueue>,
    timer: Arc<Timer>,
    heartbeat: Arc<NodeHeartbeat>,
    commits: Arc<Commits>,
    counters: Arc<Counters>,
    revocations: Arc<KeyedNotify<TaskKey>>,
    recent_claims: RecentClaims,
    task_watch: Arc<TaskWatch>,
    requests: Arc<KeyedNotify<RequestKey>>,
    rotation: AtomicU32,
    batchers: tokio::sync::Mutex<Vec<JoinHandle<()>>>,
    background: Mutex<Vec<JoinHandle<()>>>,
    runtime: Handle,
    _dedicated: Option<DedicatedRuntime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close(None);
        for task in self.background.lock().expect("no code panics while holding them").drain(..) {
            task.abort();
        }
    }
}

impl Engine {
    pub async fn with_store(store: impl Store, config: Config) -> Result<Self, Error> {
        Self::with_shared_store(Arc::new(store), config).await
    }

    pub async fn with_shared_store(store: Arc<dyn Store>, config: Config) -> Result<Self, Error> {
        Self::assemble(store, config, None).await
    }

    /// Opens a store and starts an engine on its own runtime, so that code that blocks the calling
    /// runtime's threads does not delay it.
    pub async fn start_on_own_runtime<S>(open: S, config: Config) -> Result<Self, Error>
    where
        S: Future<Output = Result<Arc<dyn Store>, StoreError>> + Send + 'static,
    {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::from(StoreError::Unavailable(error))
        };
        let dedicated = DedicatedRuntime::new().map_err(|error| failed(error.into()))?;
        let start =
            |dedicated| async move { Self::assemble(open.await?, config, Some(dedicated)).await };
        let started = dedicated.handle().spawn(start(dedicated)).await;
        started.map_err(|error| failed(error.into()))?
    }

    /// Must be called on the runtime that the engine will use.
    async fn assemble(
        store: Arc<dyn Store>,
        config: Config,
        dedicated: Option<DedicatedRuntime>,
    ) -> Result<Self, Error> {
        config.requests.check()?;
        let has_server = store.describe().await?.round_trips.is_some();
        let batchers =
            config.max_concurrent_batches.unwrap_or(if has_server { 2 } else { 1 }).max(1);
        let queue = Arc::new(CommandQueue::new(&config, batchers));
        let timer = Arc::new(Timer::new(config.clock.clone()));
        let commits = Arc::new(Commits::default());
        let (counters, task_watch) =
            (Arc::new(Counters::default()), Arc::new(TaskWatch::default()));
        let revocations: Arc<KeyedNotify<TaskKey>> = Arc::default();
        let replier =
            Replier { store: store.clone(), queue: queue.clone(), claim_bytes: config.claim_bytes };
        let batcher = |number| Batcher {
            number,
            store: store.clone(),
            queue: queue.clone(),
            replier: replier.clone(),
            timer: timer.clone(),
            commits: commits.clone(),
            task_watch: task_watch.clone(),
            counters: counters.clone(),
            revocations: revocations.clone(),
            waiters: Waiters::default(),
            hints: Hints::default(),
        };
        let batchers = (0..batchers).map(|number| tokio::spawn(batcher(number).run())).collect();
        let heartbeat = Arc::new(NodeHeartbeat::new(store.clone(), queue.clone(), &config));
        let engine = Self(Arc::new(Inner {
            store,
            config,
            queue,
            timer,
            heartbeat,
            commits,
            counters,
            revocations,
            recent_claims: RecentClaims::default(),
            task_watch,
            requests: Arc::default(),
            rotation: AtomicU32::new(0),
            batchers: tokio::sync::Mutex::new(batchers),
            background: Mutex::default(),
            runtime: Handle::current(),
            _dedicated: dedicated,
        }));
        engine.listen();
        if engine.0.config.background {
            engine.sweep_when_due();
            engine.trim_periodically();
            engine.spawn(engine.0.heartbeat.clone().run());
        }
        Ok(engine)
    }

    /// A generated task id: time-ordered, so that rows created together are stored close together.
    pub fn new_id() -> TaskId {
        uuid::Uuid::now_v7().to_string().into()
    }

    /// Decides one command. A result means that its commit is durable.
    pub async fn submit(&self, command: impl Into<Command>) -> Result<Outcome, Error> {
        let mut results = self.submit_many(vec![command.into()]).await?;
        results.pop().expect("one command, one result")
    }

    /// Decides commands in order, in one transaction, with one result each.
    pub async fn submit_many(&self, commands: Vec<Command>) -> Result<Vec<CommandResult>, Error> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.submit_timed(commands).await?.results)
    }

    /// Like [`Engine::submit_many`], with the time from which granted leases count. Requires at
    /// least one command.
    pub async fn submit_timed(&self, commands: Vec<Command>) -> Result<CommandResults, Error> {
        let (sender, receiver) = oneshot::channel();
        self.0.queue.push(Submission::new(commands, Reply::Plain(sender)))?;
        Ok(receiver.await.map_err(|_| self.0.queue.no_reply())?.take())
    }

    /// Leases tasks, with their payloads; waits up to `wait` if none is ready. A claim that a batch
    /// is deciding at the timeout still gets its result.
    ///
    /// If the caller drops this future, the leases are released.
    pub async fn claim(&self, mut claim: Claim, wait: Duration) -> Result<Vec<ClaimedTask>, Error> {
        claim.rotation = spread(self.0.rotation.fetch_add(1, Ordering::Relaxed));
        self.0.recent_claims.note(&claim);
        let (sender, mut receiver) = oneshot::channel();
        let parking = (!wait.is_zero()).then(ClaimWait::default);
        let reply = Reply::Claim { sender, wait: parking.clone() };
        self.0.queue.push(Submission::new(vec![claim.into()], reply))?;
        let result = match parking {
            None => receiver.await,
            Some(parking) => match tokio::time::timeout(wait, &mut receiver).await {
                Ok(result) => result,
                Err(_) if parking.end() => return Ok(Vec::new()),
                Err(_) => receiver.await,
            },
        };
        result.map_err(|_| self.0.queue.no_reply())?.take()
    }

    /// Decides one command that leases tasks, without waiting.
    pub(crate) async fn lease(&self, command: Command) -> Result<Vec<ClaimedTask>, Error> {
        let (sender, receiver) = oneshot::channel();
        let reply = Reply::Claim { sender, wait: None };
        self.0.queue.push(Submission::new(vec![command], reply))?;
        receiver.await.map_err(|_| self.0.queue.no_reply())?.take()
    }

    /// Processes one page of due records; returns their number and the next due time.
    pub async fn sweep(&self) -> Result<(usize, Option<Timestamp>), Error> {
        let sweep = Sweep { page: self.0.config.sweep_page };
        match self.submit_internal(sweep.into()).await? {
            Outcome::Swept { swept, next_due } => {
                add(&self.0.counters.sweeps, 1);
                Ok((swept, next_due))
            }
            other => unreachable!("unexpected outcome of a sweep: {other:?}"),
        }
    }

    /// Deletes log events older than the retention, page by page; returns how many.
    pub async fn trim_log(&self) -> Result<usize, Error> {
        let retention_ms =
            u64::try_from(self.0.config.event_retention.as_millis()).unwrap_or(u64::MAX);
        let mut total = 0;
        loop {
            let trim = TrimLog { retention_ms, page: TRIM_PAGE };
            match self.submit_internal(trim.into()).await? {
                Outcome::Trimmed { trimmed, more } => {
                    total += trimmed;
                    if !more {
                        return Ok(total);
                    }
                }
                other => unreachable!("unexpected outcome of a trim: {other:?}"),
            }
        }
    }

    /// Reads the log after `cursor`; without a cursor, from the oldest event.
    pub async fn subscribe(&self, cursor: Option<Cursor>) -> Result<Subscription, Error> {
        self.subscribe_with(EventFilter::default(), cursor).await
    }

    /// Like [`Engine::subscribe`], with only the events that match the filter.
    pub async fn subscribe_with(
        &self,
        filter: EventFilter,
        cursor: Option<Cursor>,
    ) -> Result<Subscription, Error> {
        let listener = self.0.commits.listen();
        let start = match cursor {
            Some(cursor) => cursor,
            None => {
                let incarnation = self.store().describe().await?.incarnation;
                let oldest = self.store().events(0, 1).await?;
                let seq = oldest.first().map_or(0, |first| first.seq - 1);
                let seq = seq.max(crate::subscription::floor(&*self.0.store).await?);
                Cursor { incarnation, seq }
            }
        };
        Ok(Subscription::new(self.0.store.clone(), listener, start, filter, 500))
    }

    /// Reads the log from its current end, notified only by commits of other nodes.
    pub(crate) async fn subscribe_to_remote(&self) -> Result<Subscription, Error> {
        let listener = self.0.commits.listen_to_remote();
        let log = self.store().describe().await?;
        let end = Cursor { incarnation: log.incarnation, seq: log.last_seq };
        Ok(Subscription::new(self.0.store.clone(), listener, end, EventFilter::default(), 500))
    }

    /// The runtime of the engine.
    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    pub fn stats(&self) -> Stats {
        self.0.counters.read()
    }

    /// Accepts no more commands, decides those that are queued, deregisters the node and closes the
    /// store. Waiting claims fail with `shutting_down`.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.0.queue.close(self.0.heartbeat.deregister_job());
        let background = {
            let mut tasks = self.0.background.lock().expect("no code panics while holding them");
            std::mem::take(&mut *tasks)
        };
        background.iter().for_each(JoinHandle::abort);
        // A second caller waits too: the store closes after all replies were sent.
        let mut batchers = self.0.batchers.lock().await;
        let mut result = Ok(());
        while let Some(running) = batchers.last_mut() {
            result = result.and(running.await.map_err(|_| Error::Bug { command: "batcher" }));
            batchers.pop();
        }
        self.0.commits.end();
        self.0.store.close().await?;
        result
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// The clock of its timers.
    pub(crate) fn clock(&self) -> &dyn windlass_store::Clock {
        &*self.0.config.clock
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.commits.has_ended()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    /// Local callers that wait for the response to a request.
    pub(crate) fn request_waiters(&self) -> &Arc<KeyedNotify<RequestKey>> {
        &self.0.requests
    }

    pub(crate) fn task_watch(&self) -> &Arc<TaskWatch> {
        &self.0.task_watch
    }

    pub(crate) fn revocations(&self) -> &Arc<KeyedNotify<TaskKey>> {
        &self.0.revocations
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(crate) fn recent_claims(&self) -> &RecentClaims {
        &self.0.recent_claims
    }

    async fn submit_internal(&self, command: Command) -> Result<Outcome, Error> {
        let (sender, receiver) = oneshot::channel();
        self.0.queue.push_internal(Submission::new(vec![command], Reply::Plain(sender)))?;
        let mut results = receiver.await.map_err(|_| self.0.queue.no_reply())?.take();
        results.results.pop().expect("one command, one result")
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.background.lock().expect("no code panics while holding them");
        tasks.push(tokio::spawn(task));
    }

    /// Forwards commit notifications from other nodes.
    fn listen(&self) {
        let mut notifications = self.0.store.notifications();
        let (queue, commits) = (self.0.queue.clone(), self.0.commits.clone());
        self.spawn(async move {
            while let Some(notification) = notifications.next().await {
                commits.notify_remote();
                queue.push_notification(None, &notification);
            }
        });
    }

    fn sweep_when_due(&self) {
        let engine = Arc::downgrade(&self.0);
        let timer = self.0.timer.clone();
        self.spawn(async move {
            let mut pause = IDLE_SWEEP_DELAY;
            loop {
                timer.due().await;
                let Some(engine) = engine.upgrade().map(Engine) else { return };
                match engine.sweep().await {
                    Ok((0, next_due)) => {
                        // The store's clock may be behind this one, or another transaction is
                        // processing the due records.
                        tokio::time::sleep(pause).await;
                        pause = (2 * pause).min(SWEEP_RETRY_DELAY);
                        timer.lower(next_due);
                    }
                    Ok((_, next_due)) => {
                        pause = IDLE_SWEEP_DELAY;
                        timer.lower(next_due);
                    }
                    Err(Error::ShuttingDown) => return,
                    Err(error) => {
                        tracing::warn!(%error, "sweep failed");
                        timer.due_in(SWEEP_RETRY_DELAY);
                    }
                }
            }
        });
    }

    fn trim_periodically(&self) {
        let engine = Arc::downgrade(&self.0);
        let retention = self.0.config.event_retention;
        let pause = (retention / 100).clamp(Duration::from_secs(1), Duration::from_secs(3_600));
        self.spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(engine) = engine.upgrade().map(Engine) else { return };
                if let Err(error) = engine.trim_log().await {
                    tracing::warn!(%error, "event log trim failed");
                }
            }
        });
    }
}

/// Scrambles a counter, so that the claims of each worker are spread over its lanes even if it gets
/// only every second or third value.
const fn spread(count: u32) -> u32 {
    let mut mixed = count;
    mixed = (mixed ^ (mixed >> 16)).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
    mixed ^ (mixed >> 16)
}
