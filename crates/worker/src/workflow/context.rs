use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{CodeVersion, Payload, TaskId, Timestamp, limits};

use super::cancellation::Cancellation;
use super::carryover::Carryover;
use super::combine::{Join, Select, TryJoin};
use super::error::StepError;
use super::execution_start::{ExecutionStart, Info};
use super::replay_state::{Plan, ReplayState, Until};
use super::signal::{SignalStream, SignalWait};
use super::step::{Step, decoded, fired};
use super::timeout::timeout;
use crate::handler::encode;

/// The largest number of unread messages that continue-as-new carries over.
pub const MAX_CARRIED_SIGNALS: usize = 100;

/// The context through which workflow code does everything durable. Clones are cheap and refer to
/// the same workflow.
#[derive(Clone)]
pub struct Workflow {
    shared: Arc<Shared>,
    shielded: bool,
}

struct Shared {
    begin: ExecutionStart,
    replay_state: Mutex<ReplayState>,
}

impl Workflow {
    pub(super) fn new(begin: ExecutionStart) -> Self {
        let replay_state = Mutex::new(ReplayState::new(&begin));
        Self { shared: Arc::new(Shared { begin, replay_state }), shielded: false }
    }

    pub(super) fn replay_state(&self) -> MutexGuard<'_, ReplayState> {
        self.shared.replay_state.lock().expect("no panic while the lock is held")
    }

    pub(super) fn begin(&self) -> &ExecutionStart {
        &self.shared.begin
    }

    /// Fails once cancellation of the workflow is requested, unless this context is shielded.
    pub(super) fn check_cancel(&self) -> Result<(), StepError> {
        match self.replay_state().cancel() {
            Some(reason) if !self.shielded => Err(StepError::Cancelled { reason: reason.clone() }),
            _ => Ok(()),
        }
    }

    pub fn info(&self) -> Info {
        let ExecutionStart { id, execution, version, parent, .. } = self.begin().clone();
        Info { id, execution, version, parent, attempt: self.replay_state().attempt }
    }

    pub fn id(&self) -> &TaskId {
        &self.begin().id
    }

    /// Whether the code is being replayed. For side concerns such as metrics only: decisions of the
    /// workflow must not depend on it.
    pub fn is_replaying(&self) -> bool {
        self.replay_state().is_replaying()
    }

    /// The time of the turn. It does not advance while the code runs.
    pub fn now(&self) -> Timestamp {
        self.replay_state().now
    }

    /// A random number, the same in every replay. It is predictable: not for secrets.
    pub fn random(&self) -> u64 {
        self.replay_state().draw()
    }

    /// A random UUID (version 4), the same in every replay. It is predictable: not for secrets.
    pub fn uuid(&self) -> String {
        const VERSION: u64 = 0x4000;
        const VARIANT: u64 = 0x8000_0000_0000_0000;
        let (high, low) = {
            let mut replay_state = self.replay_state();
            (replay_state.draw(), replay_state.draw())
        };
        let high = (high & !0xf000) | VERSION;
        let low = (low & !(0b11 << 62)) | VARIANT;
        let hex = format!("{high:016x}{low:016x}");
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        parts.join("-")
    }

    /// Whether to take the branch of a code change. Executions that passed this point before the
    /// change get `false`, all others `true`. The call may be removed together with the old branch
    /// once no execution takes that branch.
    pub fn patched(&self, id: &str) -> bool {
        self.replay_state().patched(id)
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

    /// Drops a future that takes longer than `limit` and returns [`StepError::TimedOut`].
    pub fn timeout<F: IntoFuture>(
        &self,
        limit: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, StepError>> + use<F> {
        timeout(future.into_future(), self.sleep(limit))
    }

    /// Waits for a message with this name.
    pub fn wait_signal<T>(&self, name: &str) -> SignalWait<T> {
        SignalWait::new(self, name)
    }

    /// The messages with this name, in order of arrival.
    pub fn signals<T>(&self, name: &str) -> SignalStream<T> {
        SignalStream::new(self, name)
    }

    /// Sends a message to a workflow or another task when the turn is committed. A rejection at
    /// the commit is recorded in the history, not returned here.
    pub fn signal<T: Serialize + ?Sized>(
        &self,
        to: impl Into<TaskId>,
        name: &str,
        payload: &T,
    ) -> Result<(), StepError> {
        self.send(to.into(), name, encoded(name, payload)?, None)
    }

    /// Like [`Workflow::signal`], to a workflow that may not be started yet: the message is
    /// buffered for this long.
    pub fn signal_buffered<T: Serialize + ?Sized>(
        &self,
        to: impl Into<TaskId>,
        name: &str,
        payload: &T,
        ttl: Duration,
    ) -> Result<(), StepError> {
        let buffer_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        limits::BUFFER_MS.check(buffer_ms).map_err(|why| StepError::rejected(name, why))?;
        self.send(to.into(), name, encoded(name, payload)?, Some(buffer_ms))
    }

    fn send(
        &self,
        to: TaskId,
        name: &str,
        payload: Option<Payload>,
        buffer_ms: Option<u64>,
    ) -> Result<(), StepError> {
        let rejected = |why| StepError::rejected(name, why);
        limits::MESSAGE_NAME.check(name).map_err(rejected)?;
        limits::TASK_ID.check(to.as_str()).map_err(rejected)?;
        let bytes = payload.as_ref().map_or(0, |payload| payload.bytes.len());
        limits::MESSAGE_BYTES.check(bytes).map_err(rejected)?;
        self.check_cancel()?;
        self.replay_state().signal(to, name.to_owned(), payload, buffer_ms);
        Ok(())
    }

    /// Waits for all futures of a tuple or a `Vec`.
    pub fn join<J: Join>(&self, all: J) -> impl Future<Output = J::Output> + use<J> {
        all.join()
    }

    /// Waits for all futures of a tuple or a `Vec`, or for the first error. An error is returned at
    /// once; the other futures are dropped, which cancels their steps.
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
    /// #     true => Err(Failure::non_retryable("it is full")),
    /// #     false => Ok(1),
    /// # });
    /// # assert!(test.run().await.expect("it ends").result.is_err());
    /// # }
    /// ```
    pub fn try_join<J: TryJoin>(&self, all: J) -> impl Future<Output = J::Output> + use<J> {
        all.try_join()
    }

    /// Waits for the first future of a tuple (two to eight, returned by position, as in
    /// [`Either`](super::Either) and [`OneOf3`](super::OneOf3)) or of a `Vec` (returned by index).
    /// Futures are polled in order. The others are dropped, which cancels their steps.
    pub fn select<S: Select>(&self, some: S) -> impl Future<Output = S::Output> + use<S> {
        some.select()
    }

    /// Sets the status text of the workflow, readable from outside.
    pub fn set_status(&self, status: impl Into<String>) -> Result<(), StepError> {
        let set = self.replay_state().state.set_status(status.into());
        set.map_err(|why| StepError::rejected("status", why))
    }

    /// Stores a value that is readable from outside and by later executions.
    pub fn set_value<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), StepError> {
        let bytes = serde_json::to_vec(value).map_err(|why| StepError::rejected(key, why))?;
        let set = self.replay_state().state.set(key, Payload::new("application/json", bytes));
        set.map_err(|why| StepError::rejected(key, why))
    }

    pub fn get_value<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StepError> {
        let value = self.replay_state().state.get(key);
        value.map(|value| decoded(key, Some(&value))).transpose()
    }

    pub fn remove_value(&self, key: &str) {
        self.replay_state().state.remove(key);
    }

    /// Ends this execution and starts the next one, with this input and an empty history. Returns
    /// only if that is rejected: cancellation is requested, more than [`MAX_CARRIED_SIGNALS`]
    /// messages are unread, these and the values exceed 4 MiB, or an argument is invalid. Nothing
    /// is lost then: the code may read messages or remove values, and retry.
    pub async fn continue_as_new<I: Serialize + ?Sized>(
        &self,
        input: &I,
    ) -> Result<Infallible, StepError> {
        self.restart(input, None).await
    }

    /// Like [`Workflow::continue_as_new`], with another version of the code.
    pub async fn continue_as_new_version<I: Serialize + ?Sized>(
        &self,
        version: &str,
        input: &I,
    ) -> Result<Infallible, StepError> {
        self.restart(input, Some(version)).await
    }

    async fn restart<I: Serialize + ?Sized>(
        &self,
        input: &I,
        version: Option<&str>,
    ) -> Result<Infallible, StepError> {
        const NAME: &str = "continue_as_new";
        let input = encoded(NAME, input)?;
        let version = version.map(str::parse::<CodeVersion>).transpose();
        let version = version.map_err(|why| StepError::rejected(NAME, why))?;
        self.check_cancel()?;
        let unread = self.replay_state().mail.unread();
        if unread > MAX_CARRIED_SIGNALS {
            let why =
                format!("{unread} messages are unread, {MAX_CARRIED_SIGNALS} are carried at most");
            return Err(StepError::rejected(NAME, why));
        }
        let over = {
            let replay_state = self.replay_state();
            Carryover { unread: replay_state.mail.carried(), values: replay_state.state.all() }
        };
        over.check().map_err(|why| StepError::rejected(NAME, why))?;
        self.replay_state().next = Some((input, version.map(|version| version.to_string())));
        poll_fn(|_| Poll::Pending).await
    }

    /// The same workflow, for cleanup: steps awaited through it are not cancelled when cancellation
    /// of the workflow is requested.
    #[must_use]
    pub fn shielded(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), shielded: true }
    }

    /// Waits until cancellation of the workflow is requested, and returns the reason.
    pub fn cancelled(&self) -> Cancellation {
        Cancellation::new(self)
    }
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workflow({})", self.id())
    }
}

/// Encodes the input of a step; fails if it does not serialize or is too large.
pub(super) fn encoded<I: Serialize + ?Sized>(
    name: &str,
    input: &I,
) -> Result<Option<Payload>, StepError> {
    encode(input).map_err(|failure| StepError::rejected(name, failure.reason()))
}
