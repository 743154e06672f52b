use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::command::{ClaimEffect, SettleEffect};
use windlass_core::{EffectOwner, Fence, Keyring, Outcome, Payload, fingerprint};

use crate::engine::Engine;
use crate::error::Error;

/// An external service whose calls must not be made twice.
pub trait ExternalService: Sync {
    type Request: Serialize + Sync;
    type Response: Serialize + DeserializeOwned + Send;
    type Error: fmt::Display + Send;

    /// Makes the call with its persisted request id.
    fn invoke(
        &self,
        call: &ExternalCall,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;

    /// Checks whether a call with this id was made. Not used for calls to an idempotent provider.
    fn lookup(&self, call: &ExternalCall) -> impl Future<Output = Lookup<Self::Response>> + Send;
}

/// A shared service behaves like the service itself.
impl<D: ExternalService + Send> ExternalService for Arc<D> {
    type Request = D::Request;
    type Response = D::Response;
    type Error = D::Error;

    async fn invoke(
        &self,
        call: &ExternalCall,
        request: &D::Request,
    ) -> Result<D::Response, D::Error> {
        (**self).invoke(call, request).await
    }

    async fn lookup(&self, call: &ExternalCall) -> Lookup<D::Response> {
        (**self).lookup(call).await
    }
}

/// The provider's record of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<A> {
    Found(A),
    /// The call was certainly not made.
    NotFound,
    /// Unknown: no connection, an error of the provider, or an invalid response.
    Ambiguous(String),
}

/// The parameters of one call.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalCall {
    /// The same for every attempt. Send it with the call.
    pub request_id: String,
    /// The fence of the lease that makes the call, if a task makes it. A service that remembers the
    /// highest fence can reject calls of expired leases.
    pub fence: Option<Fence>,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The call was rejected, or its result could not be stored.
    #[error(transparent)]
    Engine(#[from] Error),
    /// Whether an earlier attempt made the call is unknown, so it is not repeated. Retry later.
    #[error("cannot determine whether {provider} was called: {reason}")]
    Ambiguous { provider: String, reason: String },
    /// The call failed. A retry first checks whether it had an effect.
    #[error("{provider} failed: {reason}")]
    Failed { provider: String, reason: String },
}

/// A call to be made once: set its options, then [`EffectCall::run`] it.
#[derive(Debug)]
#[must_use = "nothing is called before `run` is awaited"]
pub struct EffectCall {
    engine: Engine,
    owner: EffectOwner,
    provider: String,
    name: String,
    is_idempotent: bool,
}

impl fmt::Debug for ExternalCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request id is confidential.
        f.debug_struct("ExternalCall").field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl Engine {
    /// A call to a provider on behalf of a leased task or an admitted request.
    pub fn effect(&self, owner: EffectOwner, provider: impl Into<String>) -> EffectCall {
        EffectCall {
            engine: self.clone(),
            owner,
            provider: provider.into(),
            name: "call".to_owned(),
            is_idempotent: false,
        }
    }
}

impl EffectCall {
    /// Names the call, if a task or request calls the provider several times.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// For a provider that deduplicates by an idempotency key: retries repeat the call, with a key
    /// derived from the owner and the provider, instead of looking it up.
    pub fn idempotent_provider(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// Makes the call, unless its result is already stored.
    ///
    /// The request id is durable before the call is made. A retry first looks that id up at the
    /// provider: a result that is found is stored, a call that was certainly not made is made, and
    /// anything else is an error without side effects.
    pub async fn run<D: ExternalService>(
        self,
        service: &D,
        request: &D::Request,
    ) -> Result<D::Response, EffectError> {
        let body = serde_json::to_vec(request).map_err(Error::payload)?;
        let claim = ClaimEffect {
            owner: self.owner.clone(),
            provider: self.provider.clone(),
            name: self.name.clone(),
            fingerprint: fingerprint(&self.name, &body, &[]),
            request_id: self.fresh_id().await?.into(),
        };
        let claimed = self.engine.submit_until_known(claim).await?;
        let Outcome::EffectClaimed { request_id, existed, result } = claimed else {
            unreachable!("unexpected outcome of a claim: {claimed:?}")
        };
        if let Some(key) = result {
            // Deleted together with its owner, which still existed when the effect was claimed.
            let stored = self.engine.payload(&key).await?.ok_or(Error::OutcomeUnknown)?;
            return Ok(serde_json::from_slice(&stored.bytes).map_err(Error::payload)?);
        }
        let fence = match &self.owner {
            EffectOwner::Task(fence) => Some(fence.clone()),
            EffectOwner::Request { .. } => None,
        };
        let call = ExternalCall { request_id: request_id.expose_secret().to_owned(), fence };
        let found = if existed && !self.is_idempotent {
            match service.lookup(&call).await {
                Lookup::Found(response) => Some(response),
                Lookup::NotFound => None,
                Lookup::Ambiguous(reason) => {
                    let (provider, reason) = (self.provider.clone(), self.strip(&reason, &call));
                    return Err(EffectError::Ambiguous { provider, reason });
                }
            }
        } else {
            None
        };
        let response = match found {
            Some(response) => response,
            None => service.invoke(&call, request).await.map_err(|error| {
                let reason = self.strip(&error.to_string(), &call);
                EffectError::Failed { provider: self.provider.clone(), reason }
            })?,
        };
        let encoded = serde_json::to_string(&response).map_err(Error::payload)?;
        self.settle(Payload::json(encoded)).await?;
        Ok(response)
    }

    async fn settle(self, result: Payload) -> Result<(), Error> {
        let Self { engine, owner, provider, name, .. } = self;
        engine.submit_until_known(SettleEffect { owner, provider, name, result }).await.map(drop)
    }

    /// The request id to persist if the effect is claimed for the first time.
    async fn fresh_id(&self) -> Result<String, Error> {
        if !self.is_idempotent {
            return Ok(Engine::new_id().to_string());
        }
        let tenant = match &self.owner {
            EffectOwner::Task(fence) => &fence.task.tenant,
            EffectOwner::Request { request, .. } => &request.tenant,
        };
        self.engine.ensure_key(tenant).await?;
        let ring = self.engine.one::<Keyring>(Keyring::key_of(tenant)).await?;
        let derived = ring.and_then(|ring| ring.derive(&self.owner, &self.provider, &self.name));
        derived.ok_or(Error::Rejected(windlass_core::Rejection::NoSigningKey))
    }

    /// The provider's error text, without the request id and the idempotency key.
    fn strip(&self, text: &str, call: &ExternalCall) -> String {
        let key = match &self.owner {
            EffectOwner::Task(_) => None,
            EffectOwner::Request { request, .. } => Some(request.key.expose_secret()),
        };
        let secrets = std::iter::once(call.request_id.as_str()).chain(key);
        secrets.fold(text.to_owned(), |text, secret| without(&text, secret))
    }
}

/// Case-insensitive: providers may repeat an id in a different case.
fn without(text: &str, secret: &str) -> String {
    let (low, secret) = (text.to_ascii_lowercase(), secret.to_ascii_lowercase());
    let (mut left, mut from) = (String::with_capacity(text.len()), 0);
    for (at, found) in low.match_indices(&secret) {
        left += &text[from..at];
        left += "..";
        from = at + found.len();
    }
    left + &text[from..]
}
