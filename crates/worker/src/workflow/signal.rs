use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::de::DeserializeOwned;
use windlass_core::limits;

use super::context::Workflow;
use super::error::StepError;
use super::step::{Step, decoded};

/// A wait for a message with a name.
///
/// The first message goes to the first wait, also if it arrived before the wait. A wait that is
/// dropped reads nothing.
#[derive(Debug)]
#[must_use = "a message is read when this is awaited"]
pub struct SignalWait<T> {
    workflow: Workflow,
    name: String,
    stage: Stage,
    limit: Option<Step<()>>,
    payload: PhantomData<fn() -> T>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Planned,
    Waiting(u64),
    Over,
}

impl<T> SignalWait<T> {
    pub(super) fn new(workflow: &Workflow, name: &str) -> Self {
        let (workflow, name) = (workflow.clone(), name.to_owned());
        Self { workflow, name, stage: Stage::Planned, limit: None, payload: PhantomData }
    }

    /// Ends the wait with [`StepError::TimedOut`] after `limit`.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Some(self.workflow.sleep(limit));
        self
    }

    fn begin(&mut self) -> Result<u64, StepError> {
        if let Stage::Waiting(step) = self.stage {
            return Ok(step);
        }
        let checked = limits::MESSAGE_NAME.check(&self.name);
        checked.map_err(|rejection| StepError::rejected(&self.name, rejection))?;
        self.workflow.check_cancel()?;
        let step = self.workflow.replay_state().wait(&self.name);
        self.stage = Stage::Waiting(step);
        Ok(step)
    }

    fn leave(&mut self) {
        if let Stage::Waiting(step) = std::mem::replace(&mut self.stage, Stage::Over) {
            let wakers = self.workflow.replay_state().mail.leave(&self.name, step);
            wakers.into_iter().for_each(std::task::Waker::wake);
        }
    }
}

impl<T: DeserializeOwned> SignalWait<T> {
    fn read(&mut self, context: &mut Context<'_>) -> Poll<Result<T, StepError>> {
        let step = self.begin()?;
        let read = self.workflow.replay_state().mail.take(&self.name, step, context.waker());
        if let Some(message) = read {
            self.stage = Stage::Over;
            let payload = message.payload.map(|payload| payload.0);
            return Poll::Ready(decoded(&self.name, payload.as_ref()));
        }
        self.workflow.check_cancel()?;
        match self.limit.as_mut().map(|limit| Pin::new(limit).poll(context)) {
            None | Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(Ok(()))) => {
                self.limit = None;
                Poll::Ready(Err(StepError::TimedOut))
            }
            Some(Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
        }
    }
}

impl<T: DeserializeOwned> Future for SignalWait<T> {
    type Output = Result<T, StepError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.stage != Stage::Over, "a wait is polled after its end");
        let read = self.read(context);
        if read.is_ready() {
            self.leave();
            self.stage = Stage::Over;
            self.limit = None;
        }
        read
    }
}

impl<T> Drop for SignalWait<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The messages with a name, one after the other. Unread ones are carried over when the workflow
/// continues as new.
#[derive(Debug)]
pub struct SignalStream<T> {
    workflow: Workflow,
    name: String,
    payload: PhantomData<fn() -> T>,
}

impl<T> SignalStream<T> {
    pub(super) fn new(workflow: &Workflow, name: &str) -> Self {
        Self { workflow: workflow.clone(), name: name.to_owned(), payload: PhantomData }
    }

    /// Waits for the next message.
    pub fn next(&self) -> SignalWait<T> {
        SignalWait::new(&self.workflow, &self.name)
    }
}
