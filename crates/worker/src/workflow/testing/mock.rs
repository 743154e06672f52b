use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::command::NewTask;
use windlass_core::{FailureClass, HistoryPayload, Payload, StepOutcome};

use crate::failure::Failure;
use crate::handler::{Handled, decode, encode};

type RespondFn = dyn Fn(Option<&Payload>) -> Handled + Send + Sync;

/// A mock of an activity or a child.
pub(super) struct Mock {
    respond: Box<RespondFn>,
    /// How long one attempt takes.
    pub(super) lasting: Duration,
}

impl Mock {
    pub(super) fn new<I, O>(
        respond: impl Fn(I) -> Result<O, Failure> + Send + Sync + 'static,
    ) -> Self
    where
        I: DeserializeOwned,
        O: Serialize,
    {
        let respond = move |input: Option<&Payload>| encode(&respond(decode(input)?)?);
        Self { respond: Box::new(respond), lasting: Duration::ZERO }
    }

    /// The outcome after all attempts, and the milliseconds until then.
    pub(super) fn play(&self, task: &NewTask) -> (u64, StepOutcome) {
        let mut elapsed_ms = 0;
        let mut attempt = 1;
        let outcome = loop {
            let (took_ms, handled) = self.attempt(task);
            elapsed_ms += took_ms;
            let failure = match handled {
                Ok(result) => break StepOutcome::Completed { result: result.map(HistoryPayload) },
                Err(failure) => failure,
            };
            match failure.pause_ms(task.policy.retry.as_ref(), attempt) {
                Some(ms) => elapsed_ms += ms,
                None => {
                    let (class, reason) = (failure.class(), failure.reason().to_owned());
                    break StepOutcome::Failed { class, reason };
                }
            }
            attempt += 1;
        };
        match task.deadline_ms {
            Some(ms) if elapsed_ms > ms => (ms, StepOutcome::Expired),
            _ => (elapsed_ms, outcome),
        }
    }

    fn attempt(&self, task: &NewTask) -> (u64, Handled) {
        let takes_ms = u64::try_from(self.lasting.as_millis()).unwrap_or(u64::MAX);
        match task.policy.attempt_timeout_ms {
            Some(ms) if takes_ms > ms => (ms, Err(Failure::timed_out())),
            _ => (takes_ms, (self.respond)(task.payload.as_ref())),
        }
    }
}

impl Failure {
    fn timed_out() -> Self {
        Self::of(FailureClass::Timeout, "the attempt took too long")
    }
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mock")
    }
}
