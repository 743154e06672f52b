use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{RetryPolicy, limits};

use super::context::Workflow;
use super::error::StepError;
use super::local::Local;
use super::replay_state::Plan;
use super::step::{Step, result};
use crate::failure::Failure;

/// Builder of a local activity: configure it, then await or start it.
#[must_use = "a local activity is scheduled when it is awaited or started"]
pub struct LocalActivity<F> {
    workflow: Workflow,
    name: String,
    run: F,
}

impl Workflow {
    /// Runs a local activity: a short piece of code within the turn, in the worker's process,
    /// without a task. Its outcome is recorded in the history. If the worker dies before the turn
    /// is committed, it runs again.
    pub fn local_activity<F>(&self, name: &str, run: F) -> LocalActivity<F> {
        LocalActivity { workflow: self.clone(), name: name.to_owned(), run }
    }
}

impl<F> LocalActivity<F> {
    /// Retries the local activity within the same turn when it fails. A policy of more than ten
    /// attempts, or more than ten seconds of backoff in total, is rejected.
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
    ///     ctx.local_activity("price", ask_a_flaky_cache).retry(RetryPolicy::linear(4, 10)).await
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let tested = WorkflowTest::new(price, &()).run().await.expect("it ends");
    /// # assert_eq!((tested.result, TRIES.load(Ordering::SeqCst)), (Ok(7), 3));
    /// # }
    /// ```
    pub fn retry<Fut, O, E>(self, retry: RetryPolicy) -> Step<O>
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
    {
        let checked = Local::check_retry(&retry);
        self.step(checked, |name, run| Local::with_retries(name, retry, run))
    }

    /// Schedules the local activity at once.
    pub fn start<Fut, O, E>(self) -> Step<O>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + DeserializeOwned,
        E: Into<Failure>,
    {
        self.into_future().start()
    }

    fn step<O: DeserializeOwned>(
        self,
        checked: Result<(), String>,
        plan: impl FnOnce(String, F) -> Local,
    ) -> Step<O> {
        let Self { workflow, name, run } = self;
        let named = limits::KIND.check(&name).map_err(|rejection| rejection.to_string());
        let checked = named.and(checked).map_err(|why| StepError::rejected(&name, why));
        let plan = checked.map(|()| Plan::Local(plan(name.clone(), run)));
        Step::new(&workflow, name, plan, result)
    }
}

impl<F, Fut, O, E> IntoFuture for LocalActivity<F>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    O: Serialize + DeserializeOwned,
    E: Into<Failure>,
{
    type Output = Result<O, StepError>;
    type IntoFuture = Step<O>;

    fn into_future(self) -> Step<O> {
        self.step(Ok(()), Local::new)
    }
}

impl<F> fmt::Debug for LocalActivity<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalActivity").field("name", &self.name).finish_non_exhaustive()
    }
}
