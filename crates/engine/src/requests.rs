use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};
use windlass_core::command::{Admit, CompleteRequest, ReleaseRequest};
use windlass_core::{
    Digest, EffectOwner, IGNORED_FIELDS, IdempotencyKey, Outcome, Payload, Rate, Rejection,
    RequestKey, RequestTtls, Tenant, Timestamp, fingerprint,
};

use crate::effect_call::EffectCall;
use crate::engine::Engine;
use crate::error::Error;

/// First and last poll interval for a response that another process may commit.
const FIRST_POLL: Duration = Duration::from_millis(20);
const MAX_POLL: Duration = Duration::from_millis(500);
const RELEASE_FAILED: &str = "releasing a request failed; its in-flight timeout releases it";

/// Policy for idempotent requests.
#[derive(Clone, Debug)]
pub struct RequestPolicy {
    pub ttls: RequestTtls,
    pub on_in_flight: OnInFlight,
    /// Rate limit on accepted requests of one principal.
    pub rate_limit: Option<Rate>,
    /// Top-level body fields that the fingerprint ignores.
    pub ignored_fields: Vec<String>,
    /// Accepts keys of 1 to 255 printable characters. By default a key has 16 to 255 ASCII letters,
    /// digits and `_ . : -`, so that keys cannot be guessed.
    pub allow_weak_keys: bool,
}

/// What a duplicate gets while the first request is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInFlight {
    /// The response, if it is committed within this time.
    Wait(Duration),
    /// `idempotency_in_flight`, immediately.
    Reject,
}

/// The owner and the operation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestScope {
    pub tenant: Tenant,
    /// The authenticated caller.
    pub principal: String,
    /// The account the principal acts for, if it acts for several.
    pub account: String,
    /// Reusing a key for a different operation is a conflict.
    pub operation: String,
}

/// An admitted request: owned by this caller, or completed by an earlier one.
#[derive(Debug)]
pub enum RequestAdmission {
    Owner(RequestGuard),
    Replay(Payload),
}

/// The right to complete a request, until a deadline. Dropping it releases the request.
#[derive(Debug)]
pub struct RequestGuard {
    context: RequestContext,
    /// When to stop retrying to store the response.
    deadline: Instant,
    is_open: bool,
}

/// The context of a request handler: the right to act for the request, until a deadline.
#[derive(Clone, Debug)]
pub struct RequestContext {
    engine: Engine,
    request: RequestKey,
    owner: String,
    until: Timestamp,
}

/// The response of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedResponse<T> {
    pub response: T,
    /// The response was stored by an earlier request; the handler did not run.
    pub replayed: bool,
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError<E> {
    /// The request was rejected, or its response could not be stored. See its code.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The handler failed. The request is released and can be retried; if the release failed too,
    /// after the in-flight timeout.
    #[error("{0}")]
    Failed(E),
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self {
            ttls: RequestTtls::default(),
            on_in_flight: OnInFlight::Wait(Duration::from_secs(10)),
            rate_limit: None,
            ignored_fields: IGNORED_FIELDS.iter().map(|&field| field.to_owned()).collect(),
            allow_weak_keys: false,
        }
    }
}

impl RequestPolicy {
    /// Whether the TTLs and the rate are within their limits.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        self.ttls.check()?;
        self.rate_limit.map_or(Ok(()), Rate::check)
    }

    fn check_key(&self, key: &IdempotencyKey) -> Result<(), Rejection> {
        if self.allow_weak_keys { key.check() } else { key.check_plain() }
    }
}

impl RequestScope {
    pub fn new(principal: impl Into<String>, operation: impl Into<String>) -> Self {
        Self {
            tenant: Tenant::default(),
            principal: principal.into(),
            account: String::new(),
            operation: operation.into(),
        }
    }

    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<Tenant>) -> Self {
        self.tenant = tenant.into();
        self
    }

    #[must_use]
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = account.into();
        self
    }

    fn request(&self, key: IdempotencyKey) -> RequestKey {
        RequestKey {
            tenant: self.tenant.clone(),
            principal: self.principal.clone(),
            account: self.account.clone(),
            key,
        }
    }
}

impl Engine {
    /// Runs a request handler once. A duplicate, concurrent or within the replay TTL, gets the
    /// stored response without running the handler. Failures are not stored, so the request can be
    /// retried.
    ///
    /// External calls of `run` that must not be repeated go through [`RequestContext::effect`].
    pub async fn admit<I, O, E, F>(
        &self,
        scope: &RequestScope,
        key: impl Into<IdempotencyKey>,
        request: &I,
        run: impl FnOnce(RequestContext) -> F,
    ) -> Result<AdmittedResponse<O>, AdmitError<E>>
    where
        I: Serialize,
        O: Serialize + DeserializeOwned,
        F: Future<Output = Result<O, E>>,
    {
        let body = serde_json::to_vec(request).map_err(Error::payload)?;
        match self.begin_request(scope, key, &body).await? {
            RequestAdmission::Replay(stored) => {
                let response = serde_json::from_slice(&stored.bytes).map_err(Error::payload)?;
                Ok(AdmittedResponse { response, replayed: true })
            }
            RequestAdmission::Owner(guard) => match run(guard.context()).await {
                Ok(response) => {
                    let body = serde_json::to_string(&response).map_err(Error::payload)?;
                    guard.complete(Payload::json(body)).await?;
                    Ok(AdmittedResponse { response, replayed: false })
                }
                Err(failed) => {
                    if let Err(error) = guard.release().await {
                        tracing::warn!(%error, "{RELEASE_FAILED}");
                    }
                    Err(AdmitError::Failed(failed))
                }
            },
        }
    }

    /// Admits a request with this body, for callers that encode responses themselves.
    pub async fn begin_request(
        &self,
        scope: &RequestScope,
        key: impl Into<IdempotencyKey>,
        body: &[u8],
    ) -> Result<RequestAdmission, Error> {
        let policy = &self.config().requests;
        let request = scope.request(key.into());
        policy.check_key(&request.key)?;
        let ignored_fields: Vec<&str> = policy.ignored_fields.iter().map(String::as_str).collect();
        self.acquire(request, fingerprint(&scope.operation, body, &ignored_fields)).await
    }

    async fn acquire(
        &self,
        request: RequestKey,
        fingerprint: Digest,
    ) -> Result<RequestAdmission, Error> {
        let RequestPolicy { ttls, on_in_flight, rate_limit, .. } = &self.config().requests;
        let (owner, began) = (Self::new_id().to_string(), Instant::now());
        let admit = Admit { request, fingerprint, owner, ttls: *ttls, rate_limit: *rate_limit };
        let (mut poll, mut is_missed) = (FIRST_POLL, false);
        loop {
            let deadline = Instant::now() + Duration::from_millis(ttls.in_flight_ms);
            // Changes after this call are not missed.
            let mut waiter = self.request_waiters().register(&admit.request);
            // If this future is dropped meanwhile, the guard releases an admitted request.
            let mut guard = self.guard(&admit, deadline);
            let admitted = self.submit_until_known(admit.clone()).await;
            guard.is_open = matches!(admitted, Ok(Outcome::Admitted { .. }));
            match admitted {
                Ok(Outcome::Admitted { until }) => {
                    guard.context.until = until;
                    return Ok(RequestAdmission::Owner(guard));
                }
                Ok(Outcome::RequestCompleted(key)) => match self.payload(&key).await? {
                    Some(response) => return Ok(RequestAdmission::Replay(response)),
                    // The response expired meanwhile; the next attempt is admitted or rejected.
                    None if !is_missed => is_missed = true,
                    None => return Err(Error::OutcomeUnknown),
                },
                Ok(other) => unreachable!("unexpected outcome of an admit: {other:?}"),
                Err(rejected) => {
                    let left = match on_in_flight {
                        OnInFlight::Wait(bound) => bound.saturating_sub(began.elapsed()),
                        OnInFlight::Reject => Duration::ZERO,
                    };
                    if !is_in_flight(&rejected) || left.is_zero() {
                        return Err(rejected);
                    }
                    // Other processes send no notification, so the response is polled.
                    let _ = timeout(poll.min(left), waiter.notified()).await;
                    poll = (2 * poll).min(MAX_POLL);
                }
            }
        }
    }

    fn guard(&self, admit: &Admit, deadline: Instant) -> RequestGuard {
        let (request, owner) = (admit.request.clone(), admit.owner.clone());
        let until = Timestamp::default();
        let context = RequestContext { engine: self.clone(), request, owner, until };
        RequestGuard { context, deadline, is_open: true }
    }

    /// Retries an idempotent command until its outcome is known.
    pub(crate) async fn submit_until_known(
        &self,
        command: impl Into<windlass_core::Command>,
    ) -> Result<Outcome, Error> {
        let command = command.into();
        loop {
            match self.submit(command.clone()).await {
                Err(Error::OutcomeUnknown) => sleep(FIRST_POLL).await,
                result => return result,
            }
        }
    }
}

fn is_in_flight(error: &Error) -> bool {
    matches!(error, Error::Rejected(Rejection::IdempotencyInFlight { .. }))
}

impl RequestContext {
    /// The deadline for the response.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// A call to a provider, made once for this request.
    pub fn effect(&self, provider: impl Into<String>) -> EffectCall {
        self.engine.effect(self.effect_owner(), provider)
    }

    fn effect_owner(&self) -> EffectOwner {
        EffectOwner::Request { request: self.request.clone(), owner: self.owner.clone() }
    }

    fn release_command(&self) -> ReleaseRequest {
        ReleaseRequest { request: self.request.clone(), owner: self.owner.clone() }
    }

    /// Wakes local callers that wait for the response.
    fn notify_waiters(&self) {
        self.engine.request_waiters().notify([self.request.clone()]);
    }
}

impl RequestGuard {
    /// The context for the handler, which cannot complete the request.
    pub fn context(&self) -> RequestContext {
        self.context.clone()
    }

    /// Stores the response. Rejected after the deadline, or if another caller owns the request.
    ///
    /// The handler's effects already happened, so this retries until the deadline, even if the
    /// returned future is dropped.
    pub async fn complete(self, response: Payload) -> Result<(), Error> {
        let persisting = self.context.engine.runtime().clone().spawn(self.persist(response));
        persisting.await.unwrap_or(Err(Error::ShuttingDown))
    }

    async fn persist(mut self, response: Payload) -> Result<(), Error> {
        let RequestContext { engine, request, owner, .. } = self.context();
        let complete = CompleteRequest { request, owner, response };
        let mut pause = FIRST_POLL;
        let completed = loop {
            match engine.submit_until_known(complete.clone()).await {
                Err(error) if error.is_retryable() && Instant::now() + pause < self.deadline => {
                    tracing::warn!(%error, "storing a response failed and is retried");
                    sleep(pause).await;
                    pause = (2 * pause).min(MAX_POLL);
                }
                completed => break completed,
            }
        };
        self.is_open = completed.is_err();
        self.context.notify_waiters();
        completed.map(drop)
    }

    /// Releases the request: the next caller with its key is admitted.
    pub async fn release(mut self) -> Result<(), Error> {
        self.is_open = false;
        let released = self.context.engine.submit_until_known(self.context.release_command()).await;
        self.context.notify_waiters();
        released.map(drop)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let context = self.context();
        self.context.engine.runtime().spawn(async move {
            if let Err(error) = context.engine.submit(context.release_command()).await {
                tracing::warn!(%error, "{RELEASE_FAILED}");
            }
            context.notify_waiters();
        });
    }
}
