use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};
use windlass_core::command::{Admit, Answer, Withdraw};
use windlass_core::{
    Caller, Digest, EXCLUDED, IdempotencyKey, Outcome, Payload, Rate, Rejection, RequestKey,
    Tenant, Terms, Timestamp, fingerprint,
};
use windlass_store::StoreError;

use crate::effects::EffectCall;
use crate::engine::Engine;
use crate::error::Error;

/// How soon to look again for an answer that another process may have given.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(500);
const NOT_GIVEN_UP: &str = "a request could not be given up; it is free in a while";

/// How requests are answered once.
#[derive(Clone, Debug)]
pub struct RequestPolicy {
    pub terms: Terms,
    pub racers: Racers,
    /// How many requests of one principal are accepted in a time.
    pub growth: Option<Rate>,
    /// Fields at the top of a request that do not count.
    pub excluded: Vec<String>,
    /// Takes keys of any printable letters, from one to 255 of them. Otherwise a key has 16 to 255
    /// letters, digits and `_ . : -`, so that nobody finds one by trying.
    pub any_key: bool,
}

/// What whoever asks gets while somebody works on the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Racers {
    /// The answer, if it comes within this time.
    Wait(Duration),
    /// Word that it is being worked on.
    Reject,
}

/// Whose requests these are, and what they ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub tenant: Tenant,
    /// Who asks.
    pub principal: String,
    /// For whom, where one principal asks for many.
    pub account: String,
    /// The same key for another operation is a conflict.
    pub operation: String,
}

/// A request that was let in: answered before, or this caller's to answer.
#[derive(Debug)]
pub enum Begun {
    First(Ticket),
    Answered(Payload),
}

/// The right to answer a request, until a deadline. Dropped, it gives the request up.
#[derive(Debug)]
pub struct Ticket {
    context: RequestContext,
    /// Until when it is worth trying to keep an answer.
    deadline: Instant,
    is_open: bool,
}

/// What the handler of a request has: the right to act for it, until a deadline.
#[derive(Clone, Debug)]
pub struct RequestContext {
    engine: Engine,
    request: RequestKey,
    owner: String,
    until: Timestamp,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted<T> {
    pub answer: T,
    /// Nothing was done for it: it was answered before.
    pub replayed: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError<E> {
    /// It was not let in, or its answer could not be kept. The code says what to do.
    #[error(transparent)]
    Refused(#[from] Error),
    /// What was to be done failed. The request is given up: it can be sent again. If the store was
    /// away just then, it can be when its time is over.
    #[error("{0}")]
    Failed(E),
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self {
            terms: Terms::default(),
            racers: Racers::Wait(Duration::from_secs(10)),
            growth: None,
            excluded: EXCLUDED.iter().map(|&field| field.to_owned()).collect(),
            any_key: false,
        }
    }
}

impl RequestPolicy {
    /// Whether its terms are within their limits.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        self.terms.check()?;
        self.growth.map_or(Ok(()), Rate::check)
    }

    fn check_key(&self, key: &IdempotencyKey) -> Result<(), Rejection> {
        if self.any_key { key.check() } else { key.check_plain() }
    }
}

impl Scope {
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
    /// Answers a request once. Whoever sends it again, now or until its replay time is over, gets
    /// the first answer, and nothing is done for it. What fails is not kept: it can be sent again.
    ///
    /// What is called by `run`, and must not be called twice, is called through its context: see
    /// [`RequestContext::effect`].
    pub async fn admit<I, O, E, F>(
        &self,
        scope: &Scope,
        key: impl Into<IdempotencyKey>,
        request: &I,
        run: impl FnOnce(RequestContext) -> F,
    ) -> Result<Admitted<O>, AdmitError<E>>
    where
        I: Serialize,
        O: Serialize + DeserializeOwned,
        F: Future<Output = Result<O, E>>,
    {
        let body = serde_json::to_vec(request).map_err(Error::payload)?;
        match self.begin_request(scope, key, &body).await? {
            Begun::Answered(answer) => {
                let answer = serde_json::from_slice(&answer.bytes).map_err(Error::payload)?;
                Ok(Admitted { answer, replayed: true })
            }
            Begun::First(ticket) => match run(ticket.context()).await {
                Ok(answer) => {
                    let body = serde_json::to_string(&answer).map_err(Error::payload)?;
                    ticket.answer(Payload::json(body)).await?;
                    Ok(Admitted { answer, replayed: false })
                }
                Err(failed) => {
                    if let Err(error) = ticket.give_up().await {
                        tracing::warn!(%error, "{NOT_GIVEN_UP}");
                    }
                    Err(AdmitError::Failed(failed))
                }
            },
        }
    }

    /// Asks to answer a request whose body this is. For those who answer in bytes of their own.
    pub async fn begin_request(
        &self,
        scope: &Scope,
        key: impl Into<IdempotencyKey>,
        body: &[u8],
    ) -> Result<Begun, Error> {
        let policy = &self.config().requests;
        let request = scope.request(key.into());
        policy.check_key(&request.key)?;
        let excluded: Vec<&str> = policy.excluded.iter().map(String::as_str).collect();
        self.ask_to_answer(request, fingerprint(&scope.operation, body, &excluded)).await
    }

    async fn ask_to_answer(
        &self,
        request: RequestKey,
        fingerprint: Digest,
    ) -> Result<Begun, Error> {
        let RequestPolicy { terms, racers, growth, .. } = &self.config().requests;
        let (owner, began) = (Self::new_id().to_string(), Instant::now());
        let admit = Admit { request, fingerprint, owner, terms: *terms, growth: *growth };
        let (mut look, mut is_missed) = (FIRST_LOOK, false);
        loop {
            let deadline = Instant::now() + Duration::from_millis(terms.in_flight_ms);
            // What happens from here on is not missed.
            let mut watch = self.request_watchers().watch(&admit.request);
            // Whoever leaves meanwhile may have been let in.
            let mut ticket = self.ticket(&admit, deadline);
            let asked = self.submit_for_sure(admit.clone()).await;
            ticket.is_open = matches!(asked, Ok(Outcome::Admitted { .. }));
            match asked {
                Ok(Outcome::Admitted { until }) => {
                    ticket.context.until = until;
                    return Ok(Begun::First(ticket));
                }
                Ok(Outcome::Answered(key)) => match self.payload(&key).await? {
                    Some(answer) => return Ok(Begun::Answered(answer)),
                    // Its time was over meanwhile, which the next look finds.
                    None if !is_missed => is_missed = true,
                    None => return Err(Error::OutcomeUnknown),
                },
                Ok(other) => unreachable!("asking is answered as asking, not {other:?}"),
                Err(refused) => {
                    let left = match racers {
                        Racers::Wait(bound) => bound.saturating_sub(began.elapsed()),
                        Racers::Reject => Duration::ZERO,
                    };
                    if !is_in_flight(&refused) || left.is_zero() {
                        return Err(refused);
                    }
                    // Another process tells nobody here: whoever waits looks by itself.
                    let _ = timeout(look.min(left), watch.changed()).await;
                    look = (2 * look).min(LAST_LOOK);
                }
            }
        }
    }

    fn ticket(&self, admit: &Admit, deadline: Instant) -> Ticket {
        let (request, owner) = (admit.request.clone(), admit.owner.clone());
        let until = Timestamp::default();
        let context = RequestContext { engine: self.clone(), request, owner, until };
        Ticket { context, deadline, is_open: true }
    }

    /// Decides what is safe to ask again until its outcome is known.
    pub(crate) async fn submit_for_sure(
        &self,
        command: impl Into<windlass_core::Command>,
    ) -> Result<Outcome, Error> {
        let command = command.into();
        loop {
            match self.submit(command.clone()).await {
                Err(Error::OutcomeUnknown) => sleep(FIRST_LOOK).await,
                answer => return answer,
            }
        }
    }
}

fn may_pass(error: &Error) -> bool {
    match error {
        Error::Overloaded => true,
        Error::Store(error) => {
            matches!(**error, StoreError::Unavailable(_) | StoreError::Full | StoreError::Conflict)
        }
        _ => false,
    }
}

fn is_in_flight(error: &Error) -> bool {
    matches!(error, Error::Rejected(Rejection::IdempotencyInFlight { .. }))
}

impl RequestContext {
    /// Until when the request can be answered.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// A call to a provider that is to be made once for this request.
    pub fn effect(&self, provider: impl Into<String>) -> EffectCall {
        self.engine.effect(self.caller(), provider)
    }

    fn caller(&self) -> Caller {
        Caller::Request { request: self.request.clone(), owner: self.owner.clone() }
    }

    fn withdraw(&self) -> Withdraw {
        Withdraw { request: self.request.clone(), owner: self.owner.clone() }
    }

    /// Whoever waits here for its answer looks again.
    fn tell(&self) {
        self.engine.request_watchers().tell(&self.request);
    }
}

impl Ticket {
    /// For whoever handles the request, in a place that does not answer it.
    pub fn context(&self) -> RequestContext {
        self.context.clone()
    }

    /// Answers the request, for good. Refused when it took too long, or when somebody else has it.
    ///
    /// What was done is done: the answer is kept as soon as the store can, and also when nobody
    /// waits for this any more.
    pub async fn answer(self, answer: Payload) -> Result<(), Error> {
        let keeping = self.context.engine.runtime().clone().spawn(self.keep(answer));
        keeping.await.unwrap_or(Err(Error::ShuttingDown))
    }

    async fn keep(mut self, answer: Payload) -> Result<(), Error> {
        let RequestContext { engine, request, owner, .. } = self.context();
        let (answer, mut pause) = (Answer { request, owner, answer }, FIRST_LOOK);
        let answered = loop {
            match engine.submit_for_sure(answer.clone()).await {
                Err(error) if may_pass(&error) && Instant::now() + pause < self.deadline => {
                    tracing::warn!(%error, "an answer could not be kept and is tried again");
                    sleep(pause).await;
                    pause = (2 * pause).min(LAST_LOOK);
                }
                answered => break answered,
            }
        };
        self.is_open = answered.is_err();
        self.context.tell();
        answered.map(drop)
    }

    /// Gives the request up: whoever sends it again is the first.
    pub async fn give_up(mut self) -> Result<(), Error> {
        self.is_open = false;
        let withdrawn = self.context.engine.submit_for_sure(self.context.withdraw()).await;
        self.context.tell();
        withdrawn.map(drop)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let context = self.context();
        self.context.engine.runtime().spawn(async move {
            if let Err(error) = context.engine.submit(context.withdraw()).await {
                tracing::warn!(%error, "{NOT_GIVEN_UP}");
            }
            context.tell();
        });
    }
}
