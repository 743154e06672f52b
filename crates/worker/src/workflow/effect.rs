use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{Rejection, RetryPolicy, limits};
use windlass_engine::{Call, Downstream, EffectCall, EffectError, Error};

use super::context::Workflow;
use super::error::StepError;
use super::journal::Plan;
use super::local::Local;
use super::step::{Step, result};
use crate::failure::Failure;
use crate::lease::may_pass;
use crate::pause::Pause;

/// Makes calls to others under the lease of a turn, so that none is made twice. Whoever drives
/// workflows lends it to what runs within the turn.
pub trait Calls: Send + Sync {
    fn effect(&self, provider: &str, name: &str) -> EffectCall;
}

/// A call to somebody else's service to be: say more about it, then run it.
#[must_use = "nothing is called before it runs"]
#[derive(Debug)]
pub struct Effect {
    workflow: Workflow,
    provider: String,
    name: Option<String>,
    is_threaded: bool,
    retry: Option<RetryPolicy>,
}

impl Workflow {
    /// Calls somebody else's service within the turn, once. The call is known to the engine before
    /// it is made: when the worker dies before the turn is committed, whoever makes the turn again
    /// asks the service for that call before it makes it.
    pub fn effect(&self, provider: impl Into<String>) -> Effect {
        let (workflow, provider) = (self.clone(), provider.into());
        Effect { workflow, provider, name: None, is_threaded: false, retry: None }
    }
}

impl Effect {
    /// Which call it is, for the whole life of the workflow: a second one of the same name and
    /// provider is the same call. Unsaid, every step is a call of its own.
    ///
    /// Code that goes on after a failure of a call, and makes it again, must name it, so that the
    /// service is asked first whether it was made.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// For a provider that is idempotent itself: see [`EffectCall::threaded`].
    pub fn threaded(mut self) -> Self {
        self.is_threaded = true;
        self
    }

    /// How often it is tried when it fails, or when it cannot be said whether it was made; and how
    /// far apart. All of that is within the turn, so it should be short.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The call. What is asked must be the same when the turn is made again: nothing of
    /// [`Workflow::now`] may be in it, else it is refused as another one.
    pub fn run<D>(self, downstream: D, request: D::Request) -> Step<D::Answer>
    where
        D: Downstream + Send + 'static,
        D::Request: Send + 'static,
    {
        let shown = format!("effect {}", self.provider);
        let plan = self.check().map_err(|why| StepError::refused(&shown, why)).map(|()| {
            let id = self.workflow.id().clone();
            let (name, retry) = (self.name, self.retry);
            let (provider, is_threaded) = (self.provider, self.is_threaded);
            Local::lent(shown.clone(), move |step, calls| async move {
                let name = name.unwrap_or_else(|| format!("step {step}"));
                let once =
                    Once { request_id: format!("{id}/{step}"), provider, name, is_threaded, calls };
                once.until_answered(&downstream, &request, retry.as_ref()).await
            })
        });
        Step::new(&self.workflow, shown, plan.map(Plan::Local), result)
    }

    fn check(&self) -> Result<(), Rejection> {
        limits::PROVIDER.check(&self.provider)?;
        self.name.as_ref().map_or(Ok(()), |name| limits::EFFECT.check(name))
    }
}

/// A call that is about to be made.
struct Once {
    request_id: String,
    provider: String,
    name: String,
    is_threaded: bool,
    /// None where there is no engine: a workflow that runs in memory just calls.
    calls: Option<Arc<dyn Calls>>,
}

impl Once {
    async fn until_answered<D: Downstream>(
        &self,
        downstream: &D,
        request: &D::Request,
        retry: Option<&RetryPolicy>,
    ) -> Result<D::Answer, Failure> {
        let (mut tries, mut pause) = (0, Pause::default());
        loop {
            let failed = match self.call(downstream, request).await {
                Ok(answer) => return Ok(answer),
                Err(EffectError::Refused(error)) if may_pass(&error) => {
                    tracing::warn!(provider = self.provider, %error, "a call waits for the store");
                    tokio::time::sleep(pause.next()).await;
                    continue;
                }
                // The turn is not this worker's any more, and whoever holds it is told of nothing.
                Err(EffectError::Refused(Error::Rejected(refusal))) if is_lost(&refusal) => {
                    pending().await
                }
                Err(EffectError::Refused(error)) => return Err(Failure::permanent(error)),
                Err(failed) => failed,
            };
            tries += 1;
            match retry.filter(|retry| tries < retry.max_attempts) {
                Some(retry) => {
                    tokio::time::sleep(Duration::from_millis(retry.backoff.after(tries))).await;
                }
                None => return Err(Failure::transient(failed)),
            }
        }
    }

    async fn call<D: Downstream>(
        &self,
        downstream: &D,
        request: &D::Request,
    ) -> Result<D::Answer, EffectError> {
        let Some(calls) = &self.calls else {
            let call = Call { request_id: self.request_id.clone(), fence: None };
            let answer = downstream.invoke(&call, request).await;
            let provider = self.provider.clone();
            return answer
                .map_err(|error| EffectError::Failed { provider, reason: error.to_string() });
        };
        let effect = calls.effect(&self.provider, &self.name);
        let effect = if self.is_threaded { effect.threaded() } else { effect };
        effect.run(downstream, request).await
    }
}

fn is_lost(refusal: &Rejection) -> bool {
    matches!(
        refusal,
        Rejection::TaskNotFound
            | Rejection::Stale { .. }
            | Rejection::LeaseExpired
            | Rejection::NotLeased
            | Rejection::Ended { .. }
    )
}

impl fmt::Debug for dyn Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls")
    }
}
