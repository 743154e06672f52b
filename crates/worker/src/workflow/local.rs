use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Serialize;
use windlass_core::{Arrival, Carried, FailureClass, StepOutcome};

use crate::failure::Failure;
use crate::handler::{Handled, encode};

/// A local activity: what must be run before the turn is over. Its output is what came of it, to
/// be told to the code in the same turn. A panic in it is a failure of it.
pub struct Local {
    step: u64,
    name: String,
    run: Pin<Box<dyn Future<Output = Handled> + Send>>,
}

impl Local {
    pub(super) fn new<F, Fut, O, E>(name: String, run: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize,
        E: Into<Failure>,
    {
        let run = async move {
            let output = run().await.map_err(Into::into)?;
            encode(&output)
        };
        Self { step: 0, name, run: Box::pin(run) }
    }

    pub(super) fn at(self, step: u64) -> Self {
        Self { step, ..self }
    }

    pub fn step(&self) -> u64 {
        self.step
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Future for Local {
    type Output = Arrival;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Arrival> {
        let run = self.run.as_mut();
        let outcome = match catch_unwind(AssertUnwindSafe(|| run.poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(result))) => StepOutcome::Completed { result: result.map(Carried) },
            Ok(Poll::Ready(Err(failure))) => {
                StepOutcome::Failed { class: failure.class(), reason: failure.reason().to_owned() }
            }
            Err(panic) => StepOutcome::Failed {
                class: FailureClass::Crash,
                reason: format!("it panicked: {}", panic_text(panic.as_ref())),
            },
        };
        Poll::Ready(Arrival::Report { step: self.step, outcome })
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("step", &self.step).field("name", &self.name).finish()
    }
}

/// What a panic says.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it says nothing".to_owned())
}
