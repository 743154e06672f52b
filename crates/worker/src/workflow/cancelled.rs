use std::pin::Pin;
use std::task::{Context, Poll};

use super::context::Workflow;

/// Waits until cancellation of a workflow is requested.
#[derive(Debug)]
#[must_use = "it waits when it is awaited"]
pub struct Cancelled {
    workflow: Workflow,
    listener: Option<u64>,
}

impl Cancelled {
    pub(super) fn new(workflow: &Workflow) -> Self {
        Self { workflow: workflow.clone(), listener: None }
    }
}

impl Future for Cancelled {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<String> {
        let listener = {
            let mut journal = self.workflow.journal();
            if let Some(reason) = journal.cancel() {
                return Poll::Ready(reason.clone());
            }
            journal.listen(self.listener, context.waker())
        };
        self.listener = Some(listener);
        Poll::Pending
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        if let Some(listener) = self.listener {
            self.workflow.journal().unlisten(listener);
        }
    }
}
