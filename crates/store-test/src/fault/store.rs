use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{
    ChangeSet, LoadRequest, Loaded, LogEvent, Payload, PayloadKey, StoredRow, Timestamp, Value,
};
use windlass_store::{
    CommitId, Count, Notifications, Query, Store, StoreDescription, StoreError, Tx,
};

use super::pause::{Pause, pair};
use super::script::{Call, CrashPoint, Failure, Fault, Script};

/// Forwards all calls to another store, except for injected faults.
///
/// The script can be changed at any time, also while an engine runs on the store; clones share one
/// script. Calls of each kind are counted from the time of scripting: `nth` 1 is the next one. A
/// planned fault occurs once.
///
/// | fault | call |
/// |---|---|
/// | the third load fails | `fail(Call::Load, 3, Failure::Unavailable)` |
/// | the next five commits conflict | `conflict(5)` |
/// | a commit fails, with a known outcome | `crash(1, CrashPoint::BeforeCommit)` |
/// | a commit fails, and its response is lost | `crash(1, CrashPoint::InCommit)` |
/// | a commit succeeds, and its response is lost | `crash(1, CrashPoint::AfterCommit)` |
/// | the next two outcome lookups fail | `fail_times(Call::Outcome, 2, failure)` |
/// | some change sets are rejected | `reject_if(\|changes\| ..)` |
/// | the store is unavailable for a while | `outage(failure)`, later `recover()` |
/// | commits are slow | `slow_commits(Duration::from_millis(100))` |
/// | no more faults | `calm()` |
/// | a commit is held while another engine runs | `pause_commit(1)` |
///
/// After a crash with a lost response [`Store::outcome`] returns the true outcome, unless it is
/// planned to fail first. To let two engines conflict, wrap two handles on one place in a
/// `FaultStore` each. In a store with one transaction at a time the second engine waits while the
/// first one's commit is held.
///
/// ```
/// use std::sync::Arc;
/// use windlass_core::command::{Create, NewTask};
/// use windlass_store::{MemoryStore, Store, StoreError};
/// use windlass_store_test::{CrashPoint, FaultStore, execute};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let store = FaultStore::new(Arc::new(MemoryStore::new()));
/// store.crash(1, CrashPoint::AfterCommit);
/// let create = Create::one(NewTask::new("t", "email")).into();
/// let Err(StoreError::OutcomeUnknown(commit_id)) = execute(&store, &create).await else { panic!() };
/// assert!(store.outcome(&commit_id).await.unwrap());
/// # }
/// ```
#[derive(Clone)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    script: Arc<Mutex<Script>>,
}

impl FaultStore {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, script: Arc::default() }
    }

    /// Fails the `nth` call of this kind, without forwarding it.
    pub fn fail(&self, call: Call, nth: u64, failure: Failure) {
        lock(&self.script).plan(call, nth, Fault::Fail(failure));
    }

    /// Fails the next `times` calls of this kind.
    pub fn fail_times(&self, call: Call, times: u64, failure: Failure) {
        (1..=times).for_each(|nth| self.fail(call, nth, failure));
    }

    /// Makes the next `times` commits fail with an artificial conflict.
    pub fn conflict(&self, times: u64) {
        self.fail_times(Call::Commit, times, Failure::Conflict);
    }

    /// Cuts off the `nth` commit.
    pub fn crash(&self, nth: u64, point: CrashPoint) {
        lock(&self.script).plan(Call::Commit, nth, Fault::Crash(point));
    }

    /// Fails every call until [`FaultStore::recover`], except for those with another planned fault.
    pub fn outage(&self, failure: Failure) {
        lock(&self.script).set_outage(Some(failure));
    }

    /// Rejects every commit of a matching change set, like a store that cannot hold it.
    pub fn reject_if(&self, rejected: impl Fn(&ChangeSet) -> bool + Send + 'static) {
        lock(&self.script).reject(rejected);
    }

    /// Delays every later commit by this duration.
    pub fn slow_commits(&self, by: Duration) {
        lock(&self.script).set_slow(by);
    }

    pub fn recover(&self) {
        lock(&self.script).set_outage(None);
    }

    /// Clears all planned faults, and ends an outage.
    pub fn calm(&self) {
        lock(&self.script).calm();
    }

    /// Holds the `nth` commit until the test releases it. Other faults planned for that commit
    /// occur after that.
    ///
    /// ```no_run
    /// # async fn example(store: windlass_store_test::FaultStore) {
    /// let mut pause = store.pause_commit(1);
    /// // Start one engine's command in a separate task, then:
    /// pause.reached().await;
    /// // ActiveAttempt the other engine's command, which goes first; then:
    /// pause.release();
    /// # }
    /// ```
    pub fn pause_commit(&self, nth: u64) -> Pause {
        let (pause, hold) = pair();
        lock(&self.script).hold(nth, hold);
        pause
    }

    /// Calls of this kind so far, including failed ones.
    pub fn calls(&self, call: Call) -> u64 {
        lock(&self.script).calls(call)
    }

    /// Commits with changes so far, including those with a lost response.
    pub fn commits(&self) -> u64 {
        lock(&self.script).commits()
    }

    /// Rows read so far: loaded, found by scans and queries, and payloads.
    pub fn rows(&self) -> u64 {
        lock(&self.script).rows()
    }

    /// Whether all planned faults have occurred.
    pub fn is_spent(&self) -> bool {
        lock(&self.script).is_spent()
    }

    fn enter(&self, call: Call) -> Result<(), StoreError> {
        match lock(&self.script).enter(call).1 {
            Some(Fault::Fail(failure)) => Err(failure.error()),
            Some(Fault::Crash(_)) | None => Ok(()),
        }
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({:?})", self.inner)
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    // The `reject_if` closure may panic, which is a fault like others.
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for FaultStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        self.enter(Call::Begin)?;
        let inner = self.inner.begin().await?;
        Ok(Box::new(FaultTx { inner, store: self.clone() }))
    }

    async fn outcome(&self, commit_id: &CommitId) -> Result<bool, StoreError> {
        self.enter(Call::Outcome)?;
        let truth = lock(&self.script).truth(commit_id);
        match truth {
            Some(committed) => Ok(committed),
            None => self.inner.outcome(commit_id).await,
        }
    }

    async fn query(&self, query: &Query) -> Result<Vec<StoredRow>, StoreError> {
        self.enter(Call::Query)?;
        let found = self.inner.query(query).await?;
        lock(&self.script).count_rows(found.len());
        Ok(found)
    }

    async fn count(&self, count: &Count) -> Result<Vec<(Vec<Value>, u64)>, StoreError> {
        self.enter(Call::Query)?;
        self.inner.count(count).await
    }

    async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, StoreError> {
        self.enter(Call::Payloads)?;
        let found = self.inner.payloads(keys).await?;
        lock(&self.script).count_rows(found.len());
        Ok(found)
    }

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<LogEvent>, StoreError> {
        self.enter(Call::Events)?;
        self.inner.events(after, limit).await
    }

    fn notifications(&self) -> Notifications {
        self.inner.notifications()
    }

    async fn describe(&self) -> Result<StoreDescription, StoreError> {
        self.enter(Call::Describe)?;
        self.inner.describe().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

struct FaultTx {
    inner: Box<dyn Tx>,
    store: FaultStore,
}

#[async_trait]
impl Tx for FaultTx {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    async fn set_lock_timeout(&mut self, timeout: Duration) -> Result<(), StoreError> {
        self.inner.set_lock_timeout(timeout).await
    }

    async fn load(&mut self, wanted: Arc<LoadRequest>) -> Result<Loaded, StoreError> {
        self.store.enter(Call::Load)?;
        let loaded = self.inner.load(wanted).await?;
        let paged: usize = loaded.pages.iter().map(Vec::len).sum();
        lock(&self.store.script).count_rows(loaded.rows.len() + paged);
        Ok(loaded)
    }

    async fn commit(self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let script = &self.store.script;
        let (hold, fault) = lock(script).enter(Call::Commit);
        if let Some(hold) = hold {
            hold.wait().await;
        }
        let slow = lock(script).slow();
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        match fault {
            Some(Fault::Fail(failure)) => return Err(failure.error()),
            Some(Fault::Crash(CrashPoint::BeforeCommit)) => {
                return Err(Failure::Unavailable.error());
            }
            Some(Fault::Crash(CrashPoint::InCommit)) => {
                return Err(StoreError::OutcomeUnknown(lock(script).commit_id(false)));
            }
            Some(Fault::Crash(CrashPoint::AfterCommit)) | None => {}
        }
        if lock(script).rejects(&changes) {
            return Err(Failure::Rejected.error());
        }
        let writes = !changes.is_empty();
        self.inner.commit(changes).await?;
        if writes {
            lock(script).count_commit();
        }
        if fault.is_some() {
            return Err(StoreError::OutcomeUnknown(lock(script).commit_id(true)));
        }
        Ok(())
    }
}
