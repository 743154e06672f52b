use std::fmt;
use std::future::{Ready, ready};
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::command::{NewTask, NewWorkflow};
use windlass_core::{LaneName, TaskId, limits};

use super::activity::{checked, planned};
use super::context::Workflow;
use super::error::StepError;
use super::name::name_of;
use super::replay_state::Plan;
use super::step::{Step, result};

/// Builder of a child workflow: configure it, then await or start it.
#[must_use = "a child is started when it is awaited or started"]
pub struct Child<O> {
    plan: Planned,
    output: PhantomData<fn() -> O>,
}

/// Builder of a detached workflow. Awaiting it starts the workflow and returns its id.
#[must_use = "it is started when it is awaited"]
pub struct DetachedWorkflow {
    plan: Planned,
}

struct Planned {
    workflow: Workflow,
    name: String,
    task: Result<NewTask, StepError>,
}

impl Planned {
    fn new<F>(workflow: &Workflow, function: &F, input: &impl Serialize) -> Self {
        match name_of(function) {
            Ok(name) => Self::named(workflow, name, input),
            Err(anonymous) => {
                let name = anonymous.function.to_owned();
                let task = Err(StepError::rejected(&name, anonymous));
                Self { workflow: workflow.clone(), name, task }
            }
        }
    }

    fn named(workflow: &Workflow, name: &str, input: &(impl Serialize + ?Sized)) -> Self {
        let task = planned(workflow, name, input);
        Self { workflow: workflow.clone(), name: name.to_owned(), task }
    }

    fn with(mut self, set: impl FnOnce(&mut NewTask)) -> Self {
        if let Ok(task) = &mut self.task {
            set(task);
        }
        self
    }

    fn checked(self) -> (Workflow, String, Result<Box<NewTask>, StepError>) {
        let Self { workflow, name, task } = self;
        let task = task.and_then(|task| {
            let id = task.id.as_str();
            let is_fit = if id.is_empty() { Ok(()) } else { limits::WORKFLOW_ID.check(id) };
            is_fit.map_err(|rejection| StepError::rejected(&name, rejection))?;
            checked(&workflow, &name, task)
        });
        (workflow, name, task)
    }
}

impl Workflow {
    /// Runs a child workflow. The function is not called here: it gives the name of the workflow
    /// and the types of its input and output.
    pub fn child<F, I, O, E, Fut>(&self, function: F, input: &I) -> Child<O>
    where
        F: Fn(Workflow, I) -> Fut,
        Fut: Future<Output = Result<O, E>>,
        I: Serialize,
        O: DeserializeOwned,
    {
        Child { plan: Planned::new(self, &function, input), output: PhantomData }
    }

    /// Like [`Workflow::child`], by name.
    pub fn child_named<O: DeserializeOwned>(
        &self,
        name: &str,
        input: &(impl Serialize + ?Sized),
    ) -> Child<O> {
        Child { plan: Planned::named(self, name, input), output: PhantomData }
    }

    /// Starts a detached workflow when the turn is committed. A rejection at the commit, for
    /// example because the id is taken, is recorded in the history.
    pub fn start_detached<F, I, O, E, Fut>(&self, function: F, input: &I) -> DetachedWorkflow
    where
        F: Fn(Workflow, I) -> Fut,
        Fut: Future<Output = Result<O, E>>,
        I: Serialize,
    {
        DetachedWorkflow { plan: Planned::new(self, &function, input) }
    }

    /// Like [`Workflow::start_detached`], by name.
    pub fn start_detached_named(
        &self,
        name: &str,
        input: &(impl Serialize + ?Sized),
    ) -> DetachedWorkflow {
        DetachedWorkflow { plan: Planned::named(self, name, input) }
    }
}

impl<O> Child<O> {
    /// Sets the id, instead of one derived from its parent.
    pub fn id(mut self, id: impl Into<TaskId>) -> Self {
        self.plan = self.plan.with(|task| task.id = id.into());
        self
    }

    pub fn lane(mut self, lane: impl Into<LaneName>) -> Self {
        self.plan = self.plan.with(|task| task.lane = lane.into());
        self
    }

    /// The version of its code. Only workers with this version claim it.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        let workflow = NewWorkflow { version: Some(version.into()) };
        self.plan = self.plan.with(|task| task.workflow = Some(workflow));
        self
    }

    /// Starts it at once.
    pub fn start(self) -> Step<O>
    where
        O: DeserializeOwned,
    {
        self.into_future().start()
    }
}

impl<O: DeserializeOwned> IntoFuture for Child<O> {
    type Output = Result<O, StepError>;
    type IntoFuture = Step<O>;

    fn into_future(self) -> Step<O> {
        let (workflow, name, task) = self.plan.checked();
        Step::new(&workflow, name, task.map(Plan::Child), result)
    }
}

impl DetachedWorkflow {
    /// Sets the id, instead of one derived from the workflow that starts it.
    pub fn id(mut self, id: impl Into<TaskId>) -> Self {
        self.plan = self.plan.with(|task| task.id = id.into());
        self
    }

    pub fn lane(mut self, lane: impl Into<LaneName>) -> Self {
        self.plan = self.plan.with(|task| task.lane = lane.into());
        self
    }

    /// The version of its code. Only workers with this version claim it.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        let workflow = NewWorkflow { version: Some(version.into()) };
        self.plan = self.plan.with(|task| task.workflow = Some(workflow));
        self
    }

    fn start(self) -> Result<TaskId, StepError> {
        let (workflow, _, task) = self.plan.checked();
        let task = task?;
        workflow.check_cancel()?;
        Ok(workflow.replay_state().start_detached(task))
    }
}

impl IntoFuture for DetachedWorkflow {
    type Output = Result<TaskId, StepError>;
    type IntoFuture = Ready<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        ready(self.start())
    }
}

impl<O> fmt::Debug for Child<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("name", &self.plan.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for DetachedWorkflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedWorkflow").field("name", &self.plan.name).finish_non_exhaustive()
    }
}
