use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;
use windlass_core::{FailureClass, Payload, StepOutcome};

use super::context::Workflow;
use super::error::StepError;
use super::replay_state::Plan;

/// A step of a workflow: an activity, a local activity, a timer or a child.
///
/// It is scheduled when it is first polled, or by [`Step::start`]. Dropping it before it has ended
/// cancels the step.
#[must_use = "a step is scheduled when it is awaited or started"]
pub struct Step<O> {
    workflow: Workflow,
    name: String,
    stage: Stage,
    read: fn(&str, StepOutcome) -> Result<O, StepError>,
    output: PhantomData<fn() -> O>,
}

enum Stage {
    Planned(Result<Plan, StepError>),
    Scheduled(u64),
    /// It cannot be scheduled.
    Rejected(StepError),
    Over,
}

impl<O> Step<O> {
    pub(super) fn new(
        workflow: &Workflow,
        name: String,
        plan: Result<Plan, StepError>,
        read: fn(&str, StepOutcome) -> Result<O, StepError>,
    ) -> Self {
        let stage = Stage::Planned(plan);
        Self { workflow: workflow.clone(), name, stage, read, output: PhantomData }
    }

    /// Schedules the step at once. Its outcome is available when it is awaited.
    pub fn start(mut self) -> Self {
        self.schedule();
        self
    }

    fn schedule(&mut self) {
        let Stage::Planned(plan) = std::mem::replace(&mut self.stage, Stage::Over) else { return };
        let plan = plan.and_then(|plan| self.workflow.check_cancel().map(|()| plan));
        self.stage = match plan {
            Ok(plan) => Stage::Scheduled(self.workflow.replay_state().schedule(plan)),
            Err(error) => Stage::Rejected(error),
        };
    }

    fn cancel(&mut self) {
        if let Stage::Scheduled(step) = std::mem::replace(&mut self.stage, Stage::Over) {
            let unstarted = self.workflow.replay_state().cancel_step(step);
            drop(unstarted);
        }
    }
}

impl<O> Future for Step<O> {
    type Output = Result<O, StepError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if matches!(self.stage, Stage::Planned(_)) {
            self.schedule();
        }
        let step = match &self.stage {
            Stage::Scheduled(step) => *step,
            Stage::Rejected(error) => {
                let error = error.clone();
                self.stage = Stage::Over;
                return Poll::Ready(Err(error));
            }
            Stage::Planned(_) | Stage::Over => panic!("a step is polled after its end"),
        };
        let outcome = self.workflow.replay_state().outcome(step, context.waker());
        if let Some(outcome) = outcome {
            self.stage = Stage::Over;
            return Poll::Ready((self.read)(&self.name, outcome));
        }
        if let Err(error) = self.workflow.check_cancel() {
            self.cancel();
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    }
}

impl<O> Drop for Step<O> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<O> fmt::Debug for Step<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.stage {
            Stage::Scheduled(step) => Some(step),
            _ => None,
        };
        f.debug_struct("Step").field("name", &self.name).field("step", &step).finish()
    }
}

/// Decodes the outcome of a step that has a result.
pub(super) fn result<O: DeserializeOwned>(
    name: &str,
    outcome: StepOutcome,
) -> Result<O, StepError> {
    let name = name.to_owned();
    match outcome {
        StepOutcome::Completed { result } => decoded(&name, result.map(|result| result.0).as_ref()),
        StepOutcome::Failed { class, reason } => Err(StepError::Failed { name, class, reason }),
        StepOutcome::Cancelled { reason } => {
            Err(StepError::Failed { name, class: FailureClass::Cancelled, reason })
        }
        StepOutcome::Expired => Err(StepError::Expired { name }),
        StepOutcome::Fired => {
            let reason = "a timer fired in its place".to_owned();
            Err(StepError::Undecodable { name, reason })
        }
    }
}

/// A timer has no result; any outcome ends the sleep.
pub(super) fn fired(_: &str, _: StepOutcome) -> Result<(), StepError> {
    Ok(())
}

pub(super) fn decoded<T: DeserializeOwned>(
    name: &str,
    payload: Option<&Payload>,
) -> Result<T, StepError> {
    let bytes = payload.map_or(&b"null"[..], |payload| &payload.bytes);
    serde_json::from_slice(bytes).map_err(|error| StepError::Undecodable {
        name: name.to_owned(),
        reason: error.to_string(),
    })
}
