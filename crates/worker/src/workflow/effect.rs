use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{Rejection, RetryPolicy, limits};
use windlass_engine::{EffectCall, EffectError, Error, ExternalCall, ExternalService};

use super::context::Workflow;
use super::error::StepError;
use super::local::Local;
use super::replay_state::Plan;
use super::step::{Step, result};
use crate::failure::Failure;
use crate::lease::is_retryable_under_lease;
use crate::retry_delay::RetryDelay;

/// Makes external effects under the lease of a turn, so that none is made twice. The driver of a
/// workflow passes it to local activities.
pub trait EffectAccess: Send + Sync {
    fn effect(&self, provider: &str, name: &str) -> EffectCall;
}

/// Builder of an external call: configure it, then run it.
#[must_use = "nothing is called before it runs"]
#[derive(Debug)]
pub struct Effect {
    workflow: Workflow,
    provider: String,
    name: Option<String>,
    is_idempotent: bool,
    retry: Option<RetryPolicy>,
}

impl Workflow {
    /// Makes an external call within the turn, once. The engine stores the request id before the
    /// call: if the worker dies before the turn is committed, the worker that retries the turn
    /// first looks the call up at the provider.
    pub fn effect(&self, provider: impl Into<String>) -> Effect {
        let (workflow, provider) = (self.clone(), provider.into());
        Effect { workflow, provider, name: None, is_idempotent: false, retry: None }
    }
}

impl Effect {
    /// Identifies the call throughout the workflow: a second one with the same name and provider
    /// is the same call. By default, every step is a separate call.
    ///
    /// Code that repeats a call after it failed must name it, so that the call is first looked up
    /// at the provider.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// For a provider that deduplicates effects: see [`EffectCall::idempotent_provider`].
    pub fn idempotent_provider(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// The retry policy for effects that fail or whose outcome is unknown. All attempts are within
    /// the turn, so they should be short.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Makes the call. The request must be the same when the turn is retried, or it is rejected as
    /// a different one: it must not depend on [`Workflow::now`].
    pub fn run<D>(self, service: D, request: D::Request) -> Step<D::Response>
    where
        D: ExternalService + Send + 'static,
        D::Request: Send + 'static,
    {
        let shown = format!("effect {}", self.provider);
        let plan = self.check().map_err(|why| StepError::rejected(&shown, why)).map(|()| {
            let id = self.workflow.id().clone();
            let (name, retry) = (self.name, self.retry);
            let (provider, is_idempotent) = (self.provider, self.is_idempotent);
            Local::with_effects(shown.clone(), move |step, effects| async move {
                let name = name.unwrap_or_else(|| format!("step {step}"));
                let attempt = EffectAttempt {
                    request_id: format!("{id}/{step}"),
                    provider,
                    name,
                    is_idempotent,
                    effects,
                };
                attempt.until_answered(&service, &request, retry.as_ref()).await
            })
        });
        Step::new(&self.workflow, shown, plan.map(Plan::Local), result)
    }

    fn check(&self) -> Result<(), Rejection> {
        limits::PROVIDER.check(&self.provider)?;
        self.name.as_ref().map_or(Ok(()), |name| limits::EFFECT.check(name))
    }
}

/// An external call to be made once.
struct EffectAttempt {
    request_id: String,
    provider: String,
    name: String,
    is_idempotent: bool,
    /// None without an engine: a workflow test effects the service directly.
    effects: Option<Arc<dyn EffectAccess>>,
}

impl EffectAttempt {
    async fn until_answered<D: ExternalService>(
        &self,
        service: &D,
        request: &D::Request,
        retry: Option<&RetryPolicy>,
    ) -> Result<D::Response, Failure> {
        let (mut tries, mut pause) = (0, RetryDelay::default());
        loop {
            let failed = match self.call(service, request).await {
                Ok(response) => return Ok(response),
                Err(EffectError::Engine(error)) if is_retryable_under_lease(&error) => {
                    let provider = &self.provider;
                    tracing::warn!(provider, %error, "store failed: external call is retried");
                    tokio::time::sleep(pause.next()).await;
                    continue;
                }
                // The lease is lost: the call does not return, so that the turn gets no outcome.
                Err(EffectError::Engine(Error::Rejected(rejection))) if is_lost(&rejection) => {
                    pending().await
                }
                Err(EffectError::Engine(error)) => return Err(Failure::permanent(error)),
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

    async fn call<D: ExternalService>(
        &self,
        service: &D,
        request: &D::Request,
    ) -> Result<D::Response, EffectError> {
        let Some(effects) = &self.effects else {
            let call = ExternalCall { request_id: self.request_id.clone(), fence: None };
            let response = service.invoke(&call, request).await;
            let provider = self.provider.clone();
            return response
                .map_err(|error| EffectError::Failed { provider, reason: error.to_string() });
        };
        let effect = effects.effect(&self.provider, &self.name);
        let effect = if self.is_idempotent { effect.idempotent_provider() } else { effect };
        effect.run(service, request).await
    }
}

fn is_lost(rejection: &Rejection) -> bool {
    matches!(
        rejection,
        Rejection::TaskNotFound
            | Rejection::StaleFence { .. }
            | Rejection::LeaseExpired
            | Rejection::NotLeased
            | Rejection::AlreadyTerminal { .. }
    )
}

impl fmt::Debug for dyn EffectAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EffectAccess")
    }
}
