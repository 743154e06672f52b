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
use super::journal::Plan;
use super::name::name_of;
use super::step::{Step, result};

/// Another workflow to be: await it, or start it and go on.
#[must_use = "a child is started when it is awaited or started"]
pub struct Child<O> {
    plan: Planned,
    output: PhantomData<fn() -> O>,
}

/// Another workflow to be, for which nobody waits: awaiting it starts it and says its id.
#[must_use = "it is started when it is awaited"]
pub struct Detached {
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
            Err(unnamed) => {
                let name = unnamed.function.to_owned();
                let task = Err(StepError::refused(&name, unnamed));
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
            is_fit.map_err(|refusal| StepError::refused(&name, refusal))?;
            checked(&workflow, &name, task)
        });
        (workflow, name, task)
    }
}

impl Workflow {
    /// Has another workflow done. The function is not called: it says the name of the workflow,
    /// what it takes and what it gives.
    pub fn child<F, I, O, E, Fut>(&self, function: F, input: &I) -> Child<O>
    where
        F: Fn(Workflow, I) -> Fut,
        Fut: Future<Output = Result<O, E>>,
        I: Serialize,
        O: DeserializeOwned,
    {
        Child { plan: Planned::new(self, &function, input), output: PhantomData }
    }

    /// As [`Workflow::child`], by its name.
    pub fn child_named<O: DeserializeOwned>(
        &self,
        name: &str,
        input: &(impl Serialize + ?Sized),
    ) -> Child<O> {
        Child { plan: Planned::named(self, name, input), output: PhantomData }
    }

    /// Starts another workflow and leaves it to itself. It starts when the turn is committed: what
    /// is refused then, as an id that is taken, is told in the history.
    pub fn start<F, I, O, E, Fut>(&self, function: F, input: &I) -> Detached
    where
        F: Fn(Workflow, I) -> Fut,
        Fut: Future<Output = Result<O, E>>,
        I: Serialize,
    {
        Detached { plan: Planned::new(self, &function, input) }
    }

    /// As [`Workflow::start`], by its name.
    pub fn start_named(&self, name: &str, input: &(impl Serialize + ?Sized)) -> Detached {
        Detached { plan: Planned::named(self, name, input) }
    }
}

impl<O> Child<O> {
    /// An id of its own, in place of one that is derived from its parent.
    pub fn id(mut self, id: impl Into<TaskId>) -> Self {
        self.plan = self.plan.with(|task| task.id = id.into());
        self
    }

    pub fn lane(mut self, lane: impl Into<LaneName>) -> Self {
        self.plan = self.plan.with(|task| task.lane = lane.into());
        self
    }

    /// The version of its code. Only workers that have it take it.
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

impl Detached {
    /// An id of its own, in place of one that is derived from who starts it.
    pub fn id(mut self, id: impl Into<TaskId>) -> Self {
        self.plan = self.plan.with(|task| task.id = id.into());
        self
    }

    pub fn lane(mut self, lane: impl Into<LaneName>) -> Self {
        self.plan = self.plan.with(|task| task.lane = lane.into());
        self
    }

    /// The version of its code. Only workers that have it take it.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        let workflow = NewWorkflow { version: Some(version.into()) };
        self.plan = self.plan.with(|task| task.workflow = Some(workflow));
        self
    }

    fn launch(self) -> Result<TaskId, StepError> {
        let (workflow, _, task) = self.plan.checked();
        let task = task?;
        workflow.check_cancel()?;
        Ok(workflow.journal().launch(task))
    }
}

impl IntoFuture for Detached {
    type Output = Result<TaskId, StepError>;
    type IntoFuture = Ready<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        ready(self.launch())
    }
}

impl<O> fmt::Debug for Child<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("name", &self.plan.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").field("name", &self.plan.name).finish_non_exhaustive()
    }
}
