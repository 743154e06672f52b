use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::command::{ClaimEffect, SettleEffect};
use windlass_core::{Caller, Fence, Keyring, Outcome, Payload, fingerprint};

use crate::engine::Engine;
use crate::error::Error;

/// Somebody else's service, as far as a call to it must not happen twice.
pub trait Downstream: Sync {
    type Request: Serialize + Sync;
    type Answer: Serialize + DeserializeOwned + Send;
    type Error: fmt::Display + Send;

    /// Makes the call, under the id that it was claimed with.
    fn invoke(
        &self,
        call: &Call,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Self::Answer, Self::Error>> + Send;

    /// Asks whether a call of this id was made. Not asked of calls with a threaded key.
    fn lookup(&self, call: &Call) -> impl Future<Output = Lookup<Self::Answer>> + Send;
}

/// Whoever shares a service calls it as who has it.
impl<D: Downstream + Send> Downstream for Arc<D> {
    type Request = D::Request;
    type Answer = D::Answer;
    type Error = D::Error;

    async fn invoke(&self, call: &Call, request: &D::Request) -> Result<D::Answer, D::Error> {
        (**self).invoke(call, request).await
    }

    async fn lookup(&self, call: &Call) -> Lookup<D::Answer> {
        (**self).lookup(call).await
    }
}

/// What the other side knows of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<A> {
    Found(A),
    /// It is certain that there was none.
    NoRecord,
    /// It cannot be said: no connection, an error of the other side, an answer that makes no sense.
    Ambiguous(String),
}

/// What a call is made with.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// The same however often it is tried. It is to go with the call.
    pub request_id: String,
    /// Of the lease under which it is made, where a task makes it: a service that remembers the
    /// highest can refuse whoever comes late.
    pub fence: Option<Fence>,
}

/// Why there is no answer of a call.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The call may not be made, or what came of it could not be kept.
    #[error(transparent)]
    Refused(#[from] Error),
    /// Whether it was made before could not be found out, so it is not made again. Try later.
    #[error("whether {provider} was called is not known: {reason}")]
    Ambiguous { provider: String, reason: String },
    /// The call failed. Whether it had an effect is asked before it is made again.
    #[error("{provider} failed: {reason}")]
    Failed { provider: String, reason: String },
}

/// A call to be made once. Say more about it, then [`EffectCall::run`] it.
#[derive(Debug)]
#[must_use = "nothing is called before it runs"]
pub struct EffectCall {
    engine: Engine,
    caller: Caller,
    provider: String,
    name: String,
    is_threaded: bool,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What the other side knows it by is nobody else's business.
        f.debug_struct("Call").field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl Engine {
    /// A call to a provider on behalf of a task or a request that the caller holds.
    pub fn effect(&self, caller: Caller, provider: impl Into<String>) -> EffectCall {
        EffectCall {
            engine: self.clone(),
            caller,
            provider: provider.into(),
            name: "call".to_owned(),
            is_threaded: false,
        }
    }
}

impl EffectCall {
    /// Which call it is, where one task or request calls a provider several times.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// For a provider that is idempotent itself: the call is made again, under a key that is made
    /// of the caller's own with a key of this provider, instead of asking whether it was made.
    pub fn threaded(mut self) -> Self {
        self.is_threaded = true;
        self
    }

    /// Makes the call, unless it is known what came of it.
    ///
    /// The id of the call is on disk before it is made. Whoever tries again asks the provider for
    /// that id first: what was found is kept, what was certainly not made is made, and anything
    /// else is an error that changes nothing.
    pub async fn run<D: Downstream>(
        self,
        downstream: &D,
        request: &D::Request,
    ) -> Result<D::Answer, EffectError> {
        let body = serde_json::to_vec(request).map_err(Error::payload)?;
        let claim = ClaimEffect {
            caller: self.caller.clone(),
            provider: self.provider.clone(),
            name: self.name.clone(),
            fingerprint: fingerprint(&self.name, &body, &[]),
            request_id: self.fresh_id().await?.into(),
        };
        let claimed = self.engine.submit_for_sure(claim).await?;
        let Outcome::EffectClaimed { request_id, known, answer } = claimed else {
            unreachable!("claiming is answered as claiming, not {claimed:?}")
        };
        if let Some(key) = answer {
            // It goes with its parent, which was there a moment ago.
            let kept = self.engine.payload(&key).await?.ok_or(Error::OutcomeUnknown)?;
            return Ok(serde_json::from_slice(&kept.bytes).map_err(Error::payload)?);
        }
        let fence = match &self.caller {
            Caller::Task(fence) => Some(fence.clone()),
            Caller::Request { .. } => None,
        };
        let call = Call { request_id: request_id.reveal().to_owned(), fence };
        let found = if known && !self.is_threaded {
            match downstream.lookup(&call).await {
                Lookup::Found(answer) => Some(answer),
                Lookup::NoRecord => None,
                Lookup::Ambiguous(reason) => {
                    let (provider, reason) = (self.provider.clone(), self.strip(&reason, &call));
                    return Err(EffectError::Ambiguous { provider, reason });
                }
            }
        } else {
            None
        };
        let answer = match found {
            Some(answer) => answer,
            None => downstream.invoke(&call, request).await.map_err(|error| {
                let reason = self.strip(&error.to_string(), &call);
                EffectError::Failed { provider: self.provider.clone(), reason }
            })?,
        };
        let written = serde_json::to_string(&answer).map_err(Error::payload)?;
        self.settle(Payload::json(written)).await?;
        Ok(answer)
    }

    async fn settle(self, answer: Payload) -> Result<(), Error> {
        let Self { engine, caller, provider, name, .. } = self;
        engine.submit_for_sure(SettleEffect { caller, provider, name, answer }).await.map(drop)
    }

    /// The id to be used if this is the first time.
    async fn fresh_id(&self) -> Result<String, Error> {
        if !self.is_threaded {
            return Ok(Engine::new_id().to_string());
        }
        let tenant = match &self.caller {
            Caller::Task(fence) => &fence.task.tenant,
            Caller::Request { request, .. } => &request.tenant,
        };
        self.engine.ensure_key(tenant).await?;
        let ring = self.engine.one::<Keyring>(Keyring::key_of(tenant)).await?;
        let derived = ring.and_then(|ring| ring.derive(&self.caller, &self.provider, &self.name));
        derived.ok_or(Error::Rejected(windlass_core::Rejection::NoSigningKey))
    }

    /// What the other side says, without what it was told in confidence.
    fn strip(&self, text: &str, call: &Call) -> String {
        let key = match &self.caller {
            Caller::Task(_) => None,
            Caller::Request { request, .. } => Some(request.key.reveal()),
        };
        let secrets = std::iter::once(call.request_id.as_str()).chain(key);
        secrets.fold(text.to_owned(), |text, secret| without(&text, secret))
    }
}

/// In small letters and in large ones: not everybody repeats an id as it was told.
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
