use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{CodeVersion, Payload, RetryPolicy, TaskId, Timestamp, limits};

use super::begin::{Begin, Info};
use super::cancelled::Cancelled;
use super::combine::{Join, Select, TryJoin};
use super::error::StepError;
use super::event::{Event, Queue};
use super::handed_over::HandedOver;
use super::journal::{Journal, Plan, Until};
use super::local::Local;
use super::step::{Step, decoded, fired, result};
use super::timeout::timeout;
use crate::failure::Failure;
use crate::handler::encode;

/// How many messages that nobody has read go on into the next execution.
pub const MOST_CARRIED: usize = 100;

/// What the code of a workflow does everything through that is to outlive it. Clones are cheap
/// and are the same workflow.
#[derive(Clone)]
pub struct Workflow {
    shared: Arc<Shared>,
    shielded: bool,
}

struct Shared {
    begin: Begin,
    journal: Mutex<Journal>,
}

impl Workflow {
    pub(super) fn new(begin: Begin) -> Self {
        let journal = Mutex::new(Journal::new(&begin));
        Self { shared: Arc::new(Shared { begin, journal }), shielded: false }
    }

    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.shared.journal.lock().expect("nothing panics while it holds it")
    }

    pub(super) fn begin(&self) -> &Begin {
        &self.shared.begin
    }

    /// Refuses what is to be awaited once the workflow is asked to end.
    pub(super) fn check_cancel(&self) -> Result<(), StepError> {
        match self.journal().cancel() {
            Some(reason) if !self.shielded => Err(StepError::Cancelled { reason: reason.clone() }),
            _ => Ok(()),
        }
    }

    pub fn info(&self) -> Info {
        let Begin { id, execution, version, parent, .. } = self.begin().clone();
        Info { id, execution, version, parent, attempt: self.journal().attempt }
    }

    pub fn id(&self) -> &TaskId {
        &self.begin().id
    }

    /// Whether this was done before, and is gone through again. For what is no part of the
    /// workflow, as measurements: decisions must not depend on it.
    pub fn is_replaying(&self) -> bool {
        self.journal().is_replaying()
    }

    /// The time of the turn. It stands still while the code runs.
    pub fn now(&self) -> Timestamp {
        self.journal().now
    }

    /// A number by chance, the same one when the code is replayed. It is no secret.
    pub fn random(&self) -> u64 {
        self.journal().draw()
    }

    /// A UUID by chance (version 4), the same one when the code is replayed. It is no secret.
    pub fn uuid(&self) -> String {
        const VERSION: u64 = 0x4000;
        const VARIANT: u64 = 0x8000_0000_0000_0000;
        let (high, low) = {
            let mut journal = self.journal();
            (journal.draw(), journal.draw())
        };
        let high = (high & !0xf000) | VERSION;
        let low = (low & !(0b11 << 62)) | VARIANT;
        let hex = format!("{high:016x}{low:016x}");
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        parts.join("-")
    }

    /// Whether to go the way of a change to the code. Executions that passed this place before the
    /// change answer `false`, all others `true`. A call may be removed together with the old way,
    /// once no execution is left that goes it.
    pub fn patched(&self, id: &str) -> bool {
        self.journal().patched(id)
    }

    pub fn sleep(&self, pause: Duration) -> Step<()> {
        let ms = u64::try_from(pause.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.timer(Until::After(ms))
    }

    pub fn sleep_until(&self, moment: Timestamp) -> Step<()> {
        self.timer(Until::At(moment))
    }

    fn timer(&self, until: Until) -> Step<()> {
        Step::new(self, "sleep".to_owned(), Ok(Plan::Timer(until)), fired)
    }

    /// Gives up on a future after so long, and drops it.
    pub fn timeout<F: IntoFuture>(
        &self,
        limit: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, StepError>> + use<F> {
        timeout(future.into_future(), self.sleep(limit))
    }

    /// Runs something within the turn, in the process of the worker: short, and no step of its own
    /// to wait for. What came of it is remembered; when the worker dies before the turn is
    /// committed, it runs again.
    pub fn local<F, Fut, O, E>(&self, name: &str, run: F) -> Step<O>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + DeserializeOwned,
        E: Into<Failure>,
    {
        let checked = limits::KIND.check(name).map_err(|why| StepError::refused(name, why));
        let plan = checked.map(|()| Plan::Local(Local::new(name.to_owned(), run)));
        Step::new(self, name.to_owned(), plan, result)
    }

    /// As [`Workflow::local`], and tried again within the same turn when it fails. That must be
    /// short: at most ten tries with ten seconds of pauses in all, or it is refused.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # use windlass_core::RetryPolicy;
    /// # use windlass_worker::Failure;
    /// # use windlass_worker::workflow::testing::WorkflowTest;
    /// # use windlass_worker::workflow::{StepError, Workflow};
    /// # static TRIES: AtomicU32 = AtomicU32::new(0);
    /// async fn ask_a_flaky_cache() -> Result<u32, Failure> {
    ///     # if TRIES.fetch_add(1, Ordering::SeqCst) < 2 { return Err(Failure::transient("no")); }
    ///     Ok(7)
    /// }
    ///
    /// async fn price(ctx: Workflow, _: ()) -> Result<u32, StepError> {
    ///     ctx.local_retried("cached price", RetryPolicy::linear(4, 10), ask_a_flaky_cache).await
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let tested = WorkflowTest::new(price, &()).run().await.expect("it ends");
    /// # assert_eq!((tested.result, TRIES.load(Ordering::SeqCst)), (Ok(7), 3));
    /// # }
    /// ```
    pub fn local_retried<F, Fut, O, E>(&self, name: &str, retry: RetryPolicy, run: F) -> Step<O>
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
    {
        let checked = limits::KIND.check(name).map_err(|why| StepError::refused(name, why));
        let checked = checked
            .and_then(|()| Local::check_retry(&retry).map_err(|why| StepError::refused(name, why)));
        let plan = checked.map(|()| Plan::Local(Local::tried(name.to_owned(), retry, run)));
        Step::new(self, name.to_owned(), plan, result)
    }

    /// Waits for a message of this name.
    pub fn event<T>(&self, name: &str) -> Event<T> {
        Event::new(self, name)
    }

    /// The messages of this name, the first that came first.
    pub fn queue<T>(&self, name: &str) -> Queue<T> {
        Queue::new(self, name)
    }

    /// Sends a message to a workflow or another task. It is sent when the turn is committed: what
    /// is refused then is told in the history, not here.
    pub fn post<T: Serialize + ?Sized>(
        &self,
        to: impl Into<TaskId>,
        name: &str,
        payload: &T,
    ) -> Result<(), StepError> {
        self.send(to.into(), name, encoded(name, payload)?, None)
    }

    /// As [`Workflow::post`], to a workflow that may not be started yet: the message is kept for it
    /// for so long.
    pub fn post_or_keep<T: Serialize + ?Sized>(
        &self,
        to: impl Into<TaskId>,
        name: &str,
        payload: &T,
        keep: Duration,
    ) -> Result<(), StepError> {
        let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        limits::KEEP_MS.check(keep_ms).map_err(|why| StepError::refused(name, why))?;
        self.send(to.into(), name, encoded(name, payload)?, Some(keep_ms))
    }

    fn send(
        &self,
        to: TaskId,
        name: &str,
        payload: Option<Payload>,
        keep_ms: Option<u64>,
    ) -> Result<(), StepError> {
        let refused = |why| StepError::refused(name, why);
        limits::MESSAGE_NAME.check(name).map_err(refused)?;
        limits::TASK_ID.check(to.as_str()).map_err(refused)?;
        let bytes = payload.as_ref().map_or(0, |payload| payload.bytes.len());
        limits::MESSAGE_BYTES.check(bytes).map_err(refused)?;
        self.check_cancel()?;
        self.journal().post(to, name.to_owned(), payload, keep_ms);
        Ok(())
    }

    /// Waits for all of them: a tuple or a `Vec`.
    pub fn join<J: Join>(&self, all: J) -> impl Future<Output = J::Output> + use<J> {
        all.join()
    }

    /// Waits for all of them, a tuple or a `Vec`, as long as none fails. The first error is the
    /// answer at once; the others are dropped then, and what they stand for is cancelled.
    ///
    /// ```
    /// # use windlass_worker::workflow::testing::WorkflowTest;
    /// # use windlass_worker::workflow::{StepError, Workflow};
    /// # use windlass_worker::{Context, Failure};
    /// async fn reserve(_: Context, what: String) -> Result<u64, Failure> {
    ///     Ok(what.len() as u64)
    /// }
    ///
    /// async fn trip(ctx: Workflow, to: String) -> Result<u64, StepError> {
    ///     let hotel = ctx.activity(reserve, &format!("hotel in {to}"));
    ///     let flight = ctx.activity(reserve, &format!("flight to {to}"));
    ///     let (hotel, flight) = ctx.try_join((hotel, flight)).await?;
    ///     Ok(hotel + flight)
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let test = WorkflowTest::new(trip, &"Rome".to_owned());
    /// # let test = test.activity(reserve, |what| match what.starts_with("hotel") {
    /// #     true => Err(Failure::give_up("it is full")),
    /// #     false => Ok(1),
    /// # });
    /// # assert!(test.run().await.expect("it ends").result.is_err());
    /// # }
    /// ```
    pub fn try_join<J: TryJoin>(&self, all: J) -> impl Future<Output = J::Output> + use<J> {
        all.try_join()
    }

    /// Waits for the first of them: of a tuple, up to eight, it is told by its place, as in
    /// [`Either`](super::Either) and [`OneOf3`](super::OneOf3), of a `Vec` by its index. They are
    /// asked in their order. The others are dropped, and what they stand for is cancelled.
    pub fn select<S: Select>(&self, some: S) -> impl Future<Output = S::Output> + use<S> {
        some.select()
    }

    /// What the workflow says of itself, for whoever looks at it.
    pub fn set_status(&self, status: impl Into<String>) -> Result<(), StepError> {
        let set = self.journal().state.set_status(status.into());
        set.map_err(|why| StepError::refused("status", why))
    }

    /// Keeps a value that can be read from outside, and by later executions.
    pub fn set_value<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), StepError> {
        let bytes = serde_json::to_vec(value).map_err(|why| StepError::refused(key, why))?;
        let set = self.journal().state.set(key, Payload::new("application/json", bytes));
        set.map_err(|why| StepError::refused(key, why))
    }

    pub fn get_value<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StepError> {
        let value = self.journal().state.get(key);
        value.map(|value| decoded(key, Some(&value))).transpose()
    }

    pub fn remove_value(&self, key: &str) {
        self.journal().state.remove(key);
    }

    /// Ends this execution and begins the next, with this input and an empty history. It only
    /// returns when that is refused: when the workflow is asked to end, when more than
    /// [`MOST_CARRIED`] messages are unread, or when these and the values come to more than 4 MiB.
    /// Nothing is lost then: the code may read some of them, or remove a value, and try again.
    pub async fn continue_as_new<I: Serialize + ?Sized>(
        &self,
        input: &I,
    ) -> Result<Infallible, StepError> {
        self.start_over(input, None).await
    }

    /// As [`Workflow::continue_as_new`], with another version of the code: who has it goes on.
    pub async fn continue_as_new_version<I: Serialize + ?Sized>(
        &self,
        version: &str,
        input: &I,
    ) -> Result<Infallible, StepError> {
        self.start_over(input, Some(version)).await
    }

    async fn start_over<I: Serialize + ?Sized>(
        &self,
        input: &I,
        version: Option<&str>,
    ) -> Result<Infallible, StepError> {
        const NAME: &str = "continue_as_new";
        let input = encoded(NAME, input)?;
        let version = version.map(str::parse::<CodeVersion>).transpose();
        let version = version.map_err(|why| StepError::refused(NAME, why))?;
        self.check_cancel()?;
        let unread = self.journal().mail.unread();
        if unread > MOST_CARRIED {
            let why = format!("{unread} messages are unread, {MOST_CARRIED} are carried at most");
            return Err(StepError::refused(NAME, why));
        }
        let over = {
            let journal = self.journal();
            HandedOver { unread: journal.mail.carried(), values: journal.state.all() }
        };
        over.check().map_err(|why| StepError::refused(NAME, why))?;
        self.journal().next = Some((input, version.map(|version| version.to_string())));
        poll_fn(|_| Poll::Pending).await
    }

    /// The same workflow, for what must be done also when it is asked to end: what is awaited
    /// through it is not cancelled.
    #[must_use]
    pub fn shielded(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), shielded: true }
    }

    /// Waits until the workflow is asked to end, and says why.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled::new(self)
    }
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workflow({})", self.id())
    }
}

/// What a step is given, if it can be written and is not too large.
pub(super) fn encoded<I: Serialize + ?Sized>(
    name: &str,
    input: &I,
) -> Result<Option<Payload>, StepError> {
    encode(input).map_err(|failure| StepError::refused(name, failure.reason()))
}
