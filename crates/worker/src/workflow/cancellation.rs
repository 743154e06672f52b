use std::pin::Pin;
use std::task::{Context, Poll};

use super::context::Workflow;

/// Waits until cancellation of a workflow is requested.
#[derive(Debug)]
#[must_use = "it waits when it is awaited"]
pub struct Cancellation {
    workflow: Workflow,
    listener: Option<u64>,
}

impl Cancellation {
    pub(super) fn new(workflow: &Workflow) -> Self {
        Self { workflow: workflow.clone(), listener: None }
    }
}

impl Future for Cancellation {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<String> {
        let listener = {
            let mut replay_state = self.workflow.replay_state();
            if let Some(reason) = replay_state.cancel() {
                return Poll::Ready(reason.clone());
            }
            replay_state.listen(self.listener, context.waker())
        };
        self.listener = Some(listener);
        Poll::Pending
    }
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        if let Some(listener) = self.listener {
            self.workflow.replay_state().unlisten(listener);
        }
    }
}
