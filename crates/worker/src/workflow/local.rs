use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use windlass_core::{FailureClass, HistoryPayload, RetryPolicy, StepOutcome, WorkflowInput};

use super::effect::EffectAccess;
use crate::failure::Failure;
use crate::handler::{Handled, encode};

/// The most attempts of a local activity, and its most backoff in total. Its turn holds a lease,
/// and all other inputs of the workflow wait.
const MAX_ATTEMPTS: u32 = 10;
const MAX_BACKOFF_MS: u64 = 10_000;

/// A local activity, run within a turn. Its output is its outcome, as an input for the code. A
/// panic in it is a failure of it.
pub struct Local {
    step: u64,
    name: String,
    effects: Option<Arc<dyn EffectAccess>>,
    run: Run,
}

type Plan = Box<dyn FnOnce(u64, Option<Arc<dyn EffectAccess>>) -> Running + Send>;
type Running = Pin<Box<dyn Future<Output = Handled> + Send>>;

enum Run {
    /// Started by the first poll, with its step and its external calls.
    Planned(Option<Plan>),
    Running(Running),
}

impl Local {
    pub(super) fn new<F, Fut, O, E>(name: String, run: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize,
        E: Into<Failure>,
    {
        Self::with_effects(name, |_, _| run())
    }

    /// A local activity that is retried, within the limits of a turn. A panic is final.
    pub(super) fn with_retries<F, Fut, O, E>(name: String, retry: RetryPolicy, run: F) -> Self
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + Send,
        E: Into<Failure>,
    {
        Self::new(name, move || async move {
            let (mut attempts, mut backoff_left_ms) = (0, MAX_BACKOFF_MS);
            loop {
                let failure: Failure = match run().await {
                    Ok(output) => return Ok(output),
                    Err(error) => error.into(),
                };
                attempts += 1;
                let backoff_ms = failure.pause_ms(Some(&retry), attempts);
                let Some(backoff_ms) = backoff_ms.filter(|ms| *ms <= backoff_left_ms) else {
                    return Err(failure);
                };
                backoff_left_ms -= backoff_ms;
                tokio::time::sleep(Duration::from_millis(backoff_ms)).await;
            }
        })
    }

    /// Rejects a policy with more attempts or backoff than fit into a turn.
    pub(super) fn check_retry(retry: &RetryPolicy) -> Result<(), String> {
        retry.check().map_err(|rejection| rejection.to_string())?;
        let backoff = (1..retry.max_attempts).map(|attempts| retry.backoff.after(attempts));
        if retry.max_attempts > MAX_ATTEMPTS || backoff.sum::<u64>() > MAX_BACKOFF_MS {
            let backoff = MAX_BACKOFF_MS / 1_000;
            return Err(format!(
                "a local activity may take {MAX_ATTEMPTS} attempts and {backoff} s of backoff: \
                 use an activity for more"
            ));
        }
        Ok(())
    }

    /// A local activity that knows its step, and makes external calls.
    pub(super) fn with_effects<F, Fut, O, E>(name: String, run: F) -> Self
    where
        F: FnOnce(u64, Option<Arc<dyn EffectAccess>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize,
        E: Into<Failure>,
    {
        let run = |step, effects| -> Running {
            Box::pin(async move {
                let output = run(step, effects).await.map_err(Into::into)?;
                encode(&output)
            })
        };
        Self { step: 0, name, effects: None, run: Run::Planned(Some(Box::new(run))) }
    }

    /// Sets what makes its external calls.
    #[must_use]
    pub fn with_effect_access(self, effects: Arc<dyn EffectAccess>) -> Self {
        Self { effects: Some(effects), ..self }
    }

    pub(super) fn at(self, step: u64) -> Self {
        Self { step, ..self }
    }

    fn running(&mut self) -> Pin<&mut (dyn Future<Output = Handled> + Send)> {
        if let Run::Planned(plan) = &mut self.run {
            let plan = plan.take().expect("a plan is started once");
            self.run = Run::Running(plan(self.step, self.effects.take()));
        }
        match &mut self.run {
            Run::Running(running) => running.as_mut(),
            Run::Planned(_) => unreachable!("it was started above"),
        }
    }

    pub fn step(&self) -> u64 {
        self.step
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Future for Local {
    type Output = WorkflowInput;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WorkflowInput> {
        let outcome = match catch_unwind(AssertUnwindSafe(|| self.running().poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(result))) => {
                StepOutcome::Completed { result: result.map(HistoryPayload) }
            }
            Ok(Poll::Ready(Err(failure))) => {
                StepOutcome::Failed { class: failure.class(), reason: failure.reason().to_owned() }
            }
            Err(panic) => StepOutcome::Failed {
                class: FailureClass::Crash,
                reason: format!("it panicked: {}", panic_text(panic.as_ref())),
            },
        };
        Poll::Ready(WorkflowInput::StepCompletion { step: self.step, outcome })
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("step", &self.step).field("name", &self.name).finish()
    }
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
