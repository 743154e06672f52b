use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::{
    ChangeSet, Loaded, Logged, Payload, PayloadKey, StoredRow, Timestamp, Value, Wanted,
};
use windlass_store::{Count, Description, Notices, Query, Store, StoreError, Ticket, Tx};

use super::pause::{Pause, pair};
use super::script::{Call, CrashPoint, Failure, Mishap, Script};

/// Passes everything on to another store, except for what a test wants to go wrong.
///
/// The script can be changed at any time, also while an engine runs on the store; clones share
/// one script. Calls of each kind are counted from the moment of scripting: `nth` 1 is the next
/// one. A planned mishap strikes once.
///
/// | to have | say |
/// |---|---|
/// | the third load fail | `fail(Call::Load, 3, Failure::Unavailable)` |
/// | the next five commits conflict | `conflict(5)` |
/// | a commit that never happened, and says so | `crash(1, CrashPoint::BeforeCommit)` |
/// | a commit cut off, its answer lost | `crash(1, CrashPoint::InCommit)` |
/// | a commit that happened, its answer lost | `crash(1, CrashPoint::AfterCommit)` |
/// | the next two questions for an outcome fail | `fail_times(Call::Outcome, 2, failure)` |
/// | a change that the store cannot hold | `refuse_if(\|changes\| ..)` |
/// | a store that is away for a while | `outage(failure)`, later `recover()` |
/// | commits that take long | `slow_commits(Duration::from_millis(100))` |
/// | nothing more go wrong | `calm()` |
/// | one engine's commit held while another runs | `pause_commit(1)` |
///
/// After a crash with a lost answer [`Store::outcome`] tells the truth about the ticket, unless it
/// was told to fail first. To let two engines meet, wrap two handles on one place, each in a
/// `FaultStore` of its own. A store that admits one transaction at a time makes the second engine
/// wait for as long as the first one's commit is held.
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
/// let Err(StoreError::OutcomeUnknown(ticket)) = execute(&store, &create).await else { panic!() };
/// assert!(store.outcome(&ticket).await.unwrap());
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

    /// Fails the `nth` call of this kind from here on, without passing it on.
    pub fn fail(&self, call: Call, nth: u64, failure: Failure) {
        lock(&self.script).plan(call, nth, Mishap::Fail(failure));
    }

    /// Fails the next `times` calls of this kind.
    pub fn fail_times(&self, call: Call, times: u64, failure: Failure) {
        (1..=times).for_each(|nth| self.fail(call, nth, failure));
    }

    /// Makes the next `times` commits meet a conflict that is not there.
    pub fn conflict(&self, times: u64) {
        self.fail_times(Call::Commit, times, Failure::Conflict);
    }

    /// Cuts the `nth` commit from here on off.
    pub fn crash(&self, nth: u64, point: CrashPoint) {
        lock(&self.script).plan(Call::Commit, nth, Mishap::Crash(point));
    }

    /// Fails every call until [`FaultStore::recover`], except for those that are planned to go
    /// wrong in another way.
    pub fn outage(&self, failure: Failure) {
        lock(&self.script).set_outage(Some(failure));
    }

    /// Refuses every commit of a change set like this, as a store does that cannot hold it.
    pub fn refuse_if(&self, refused: impl Fn(&ChangeSet) -> bool + Send + 'static) {
        lock(&self.script).refuse(refused);
    }

    /// Lets every commit take so long from here on.
    pub fn slow_commits(&self, by: Duration) {
        lock(&self.script).set_slow(by);
    }

    pub fn recover(&self) {
        lock(&self.script).set_outage(None);
    }

    /// Forgets everything that is planned to go wrong, and ends an outage.
    pub fn calm(&self) {
        lock(&self.script).calm();
    }

    /// Holds the `nth` commit from here on until the test lets it go. What else is planned for
    /// that commit happens after that.
    ///
    /// ```no_run
    /// # async fn example(store: windlass_store_test::FaultStore) {
    /// let mut pause = store.pause_commit(1);
    /// // Start one engine's command in a task of its own, then:
    /// pause.reached().await;
    /// // Run the other engine's command, which goes first; then:
    /// pause.release();
    /// # }
    /// ```
    pub fn pause_commit(&self, nth: u64) -> Pause {
        let (pause, hold) = pair();
        lock(&self.script).hold(nth, hold);
        pause
    }

    /// Calls of this kind so far, those that went wrong included.
    pub fn calls(&self, call: Call) -> u64 {
        lock(&self.script).calls(call)
    }

    /// Commits so far that wrote something, those whose answer was lost included.
    pub fn commits(&self) -> u64 {
        lock(&self.script).commits()
    }

    /// Rows that were read so far: loaded, found by scans and queries, and payloads.
    pub fn rows(&self) -> u64 {
        lock(&self.script).rows()
    }

    /// Whether everything that was planned has happened.
    pub fn is_spent(&self) -> bool {
        lock(&self.script).is_spent()
    }

    fn enter(&self, call: Call) -> Result<(), StoreError> {
        match lock(&self.script).enter(call).1 {
            Some(Mishap::Fail(failure)) => Err(failure.error()),
            Some(Mishap::Crash(_)) | None => Ok(()),
        }
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({:?})", self.inner)
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    // What `refuse_if` was given may panic, which is a fault like others.
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for FaultStore {
    async fn begin(&self) -> Result<Box<dyn Tx>, StoreError> {
        self.enter(Call::Begin)?;
        let inner = self.inner.begin().await?;
        Ok(Box::new(FaultTx { inner, store: self.clone() }))
    }

    async fn outcome(&self, ticket: &Ticket) -> Result<bool, StoreError> {
        self.enter(Call::Outcome)?;
        let truth = lock(&self.script).truth(ticket);
        match truth {
            Some(committed) => Ok(committed),
            None => self.inner.outcome(ticket).await,
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

    async fn events(&self, after: u64, limit: usize) -> Result<Vec<Logged>, StoreError> {
        self.enter(Call::Events)?;
        self.inner.events(after, limit).await
    }

    fn notices(&self) -> Notices {
        self.inner.notices()
    }

    async fn describe(&self) -> Result<Description, StoreError> {
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

    async fn hurry(&mut self, patience: Duration) -> Result<(), StoreError> {
        self.inner.hurry(patience).await
    }

    async fn load(&mut self, wanted: Arc<Wanted>) -> Result<Loaded, StoreError> {
        self.store.enter(Call::Load)?;
        let loaded = self.inner.load(wanted).await?;
        let paged: usize = loaded.pages.iter().map(Vec::len).sum();
        lock(&self.store.script).count_rows(loaded.rows.len() + paged);
        Ok(loaded)
    }

    async fn commit(self: Box<Self>, changes: Arc<ChangeSet>) -> Result<(), StoreError> {
        let script = &self.store.script;
        let (hold, mishap) = lock(script).enter(Call::Commit);
        if let Some(hold) = hold {
            hold.wait().await;
        }
        let slow = lock(script).slow();
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        match mishap {
            Some(Mishap::Fail(failure)) => return Err(failure.error()),
            Some(Mishap::Crash(CrashPoint::BeforeCommit)) => {
                return Err(Failure::Unavailable.error());
            }
            Some(Mishap::Crash(CrashPoint::InCommit)) => {
                return Err(StoreError::OutcomeUnknown(lock(script).ticket(false)));
            }
            Some(Mishap::Crash(CrashPoint::AfterCommit)) | None => {}
        }
        if lock(script).refuses(&changes) {
            return Err(Failure::Refused.error());
        }
        let writes = !changes.is_empty();
        self.inner.commit(changes).await?;
        if writes {
            lock(script).count_commit();
        }
        if mishap.is_some() {
            return Err(StoreError::OutcomeUnknown(lock(script).ticket(true)));
        }
        Ok(())
    }
}
