use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::command::NewTask;
use windlass_core::{CodeVersion, LaneName, LimitKey, Rejection, RetryPolicy, limits};

use super::context::{Workflow, encoded};
use super::error::StepError;
use super::name::name_of;
use super::replay_state::Plan;
use super::signature::Signature;
use super::step::{Step, result};

/// Builder of an activity: configure it, then await or start it.
#[must_use = "an activity is scheduled when it is awaited or started"]
pub struct Activity<O> {
    workflow: Workflow,
    name: String,
    task: Result<NewTask, StepError>,
    output: PhantomData<fn() -> O>,
}

impl Workflow {
    /// Schedules an activity, to be run by a worker. The function is not called here: it gives the
    /// name of the activity and the types of its input and output.
    pub fn activity<F, Form>(&self, function: F, input: &F::Input) -> Activity<F::Output>
    where
        F: Signature<Form>,
        F::Input: Serialize,
        F::Output: DeserializeOwned,
    {
        match name_of(&function) {
            Ok(name) => self.activity_named(name, input),
            Err(anonymous) => {
                let name = anonymous.function.to_owned();
                let task = Err(StepError::rejected(&name, anonymous));
                Activity { workflow: self.clone(), name, task, output: PhantomData }
            }
        }
    }

    /// Like [`Workflow::activity`], by name.
    pub fn activity_named<O: DeserializeOwned>(
        &self,
        name: impl Into<String>,
        input: &(impl Serialize + ?Sized),
    ) -> Activity<O> {
        let name = name.into();
        let task = planned(self, &name, input);
        Activity { workflow: self.clone(), name, task, output: PhantomData }
    }
}

/// A task with an input, and without an id.
pub(super) fn planned(
    workflow: &Workflow,
    name: &str,
    input: &(impl Serialize + ?Sized),
) -> Result<NewTask, StepError> {
    let (payload, lane) = (encoded(name, input)?, workflow.begin().lane.clone());
    Ok(NewTask { payload, lane, ..NewTask::new("", name) })
}

impl<O> Activity<O> {
    fn with(mut self, set: impl FnOnce(&mut NewTask)) -> Self {
        if let Ok(task) = &mut self.task {
            set(task);
        }
        self
    }

    /// The retry policy. Without one, a reported failure is final.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.with(|task| task.policy.retry = Some(retry))
    }

    /// The timeout of one attempt.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|task| task.policy.attempt_timeout_ms = Some(ms(timeout)))
    }

    /// The timeout of all attempts and backoffs together.
    pub fn total_timeout(self, timeout: Duration) -> Self {
        self.with(|task| task.deadline_ms = Some(ms(timeout)))
    }

    pub fn lane(self, lane: impl Into<LaneName>) -> Self {
        self.with(|task| task.lane = lane.into())
    }

    /// The tag by which workers select tasks.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.with(|task| task.tag = Some(tag.into()))
    }

    /// The session of the task: tasks of one session run at one worker.
    pub fn session(self, session: impl Into<String>) -> Self {
        self.with(|task| task.limit_key = Some(LimitKey::Session(session.into())))
    }

    /// The concurrency key. Its tasks run one at a time, or up to its concurrency limit.
    pub fn concurrency_key(self, key: impl Into<String>) -> Self {
        self.with(|task| task.limit_key = Some(LimitKey::Concurrency(key.into())))
    }

    /// Schedules the activity at once.
    pub fn start(self) -> Step<O>
    where
        O: DeserializeOwned,
    {
        self.into_future().start()
    }
}

impl<O: DeserializeOwned> IntoFuture for Activity<O> {
    type Output = Result<O, StepError>;
    type IntoFuture = Step<O>;

    fn into_future(self) -> Step<O> {
        let plan = self
            .task
            .and_then(|task| checked(&self.workflow, &self.name, task))
            .map(Plan::Activity);
        Step::new(&self.workflow, self.name, plan, result)
    }
}

impl<O> fmt::Debug for Activity<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activity").field("name", &self.name).finish_non_exhaustive()
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Validates a step. The code gets the error: a commit that is rejected would block the workflow.
pub(super) fn checked(
    workflow: &Workflow,
    name: &str,
    task: NewTask,
) -> Result<Box<NewTask>, StepError> {
    const SLASH_AND_STEP: usize = 21;
    let derived = workflow.id().as_str().len() + SLASH_AND_STEP;
    if task.id.as_str().is_empty() && derived > limits::TASK_ID.max_bytes {
        let why = "the id of the workflow is too long to derive one from it";
        return Err(StepError::rejected(name, why));
    }
    match check(&task) {
        Ok(()) => Ok(Box::new(task)),
        Err(rejection) => Err(StepError::rejected(name, rejection)),
    }
}

fn check(task: &NewTask) -> Result<(), Rejection> {
    limits::KIND.check(task.kind.as_str())?;
    limits::LANE.check(task.lane.as_str())?;
    if !task.id.as_str().is_empty() {
        limits::TASK_ID.check(task.id.as_str())?;
    }
    task.tag.as_ref().map_or(Ok(()), |tag| limits::TAG.check(tag))?;
    let version = task.workflow.as_ref().and_then(|workflow| workflow.version.as_ref());
    version.map_or(Ok(()), |version| version.parse::<CodeVersion>().map(drop))?;
    task.deadline_ms.map_or(Ok(()), |ms| limits::DEADLINE_MS.check(ms))?;
    task.policy.attempt_timeout_ms.map_or(Ok(()), |ms| limits::TIMEOUT_MS.check(ms))?;
    task.policy.retry.as_ref().map_or(Ok(()), RetryPolicy::check)?;
    match &task.limit_key {
        None => Ok(()),
        Some(LimitKey::Concurrency(key)) => limits::CONCURRENCY_KEY.check(key),
        Some(LimitKey::Session(name) | LimitKey::Affinity(name)) => limits::SESSION.check(name),
    }
}
