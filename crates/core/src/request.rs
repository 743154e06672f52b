use serde::{Deserialize, Serialize};

use crate::admission::Admission;
use crate::digest::{Digest, Digester};
use crate::limits;
use crate::name::{IdempotencyKey, TaskId, Tenant};
use crate::payload::{PayloadKey, Slot};
use crate::rejection::{Problem, Rejection};
use crate::row::RowKey;
use crate::time::Timestamp;

/// The prefix of the limiters that count requests. Other limiters may not use it.
pub(crate) const REQUESTS: &str = "requests/";

/// The key of an idempotent request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    pub tenant: Tenant,
    /// The authenticated caller. A principal cannot find the requests of another one.
    pub principal: String,
    /// The account or session that the principal acts for; may be empty.
    pub account: String,
    pub key: IdempotencyKey,
}

/// The state of an idempotent request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When it was accepted. All its retention times count from here.
    pub accepted_at: Timestamp,
    /// When its response expires.
    pub replay_until: Timestamp,
    /// When its key expires.
    pub tombstone_until: Timestamp,
    #[serde(flatten)]
    pub state: RequestState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RequestState {
    /// Its owner is processing it.
    InFlight,
    /// Its response is stored.
    Completed { bytes: u64, digest: Digest },
    /// Its response has expired.
    Expired,
}

/// Retention times of an idempotent request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTtls {
    /// How long the response is replayed, from the acceptance on.
    pub replay_ms: u64,
    /// How long the owner may take.
    pub in_flight_ms: u64,
    /// How long a key is retained after its response has expired.
    pub tombstone_ms: u64,
    /// When to retry while it is in flight.
    pub retry_after_ms: u64,
}

impl Default for RequestTtls {
    fn default() -> Self {
        Self {
            replay_ms: 86_400_000,
            in_flight_ms: 60_000,
            tombstone_ms: 30 * 86_400_000,
            retry_after_ms: 1_000,
        }
    }
}

impl RequestTtls {
    pub fn check(&self) -> Result<(), Rejection> {
        limits::REPLAY_MS.check(self.replay_ms)?;
        limits::IN_FLIGHT_MS.check(self.in_flight_ms)?;
        limits::TOMBSTONE_MS.check(self.tombstone_ms)?;
        limits::RETRY_AFTER_MS.check(self.retry_after_ms)?;
        at_most("in_flight_ms", self.in_flight_ms, self.replay_ms)?;
        at_most("retry_after_ms", self.retry_after_ms, self.in_flight_ms)
    }
}

fn at_most(field: &'static str, value: u64, max: u64) -> Result<(), Rejection> {
    let problem = Problem::OutOfRange { min: 1_000, max: max.cast_signed() };
    if value > max { Err(Rejection::Invalid { field, problem }) } else { Ok(()) }
}

impl RequestKey {
    /// The scope of its key, unique per principal and account.
    pub(crate) fn scope(&self) -> String {
        let escaped = |name: &str| name.replace('%', "%25").replace('/', "%2F");
        format!("request/{}/{}", escaped(&self.principal), escaped(&self.account))
    }

    /// The limiter that counts the requests of its principal.
    pub(crate) fn limiter(&self) -> String {
        format!("{REQUESTS}{}", self.principal)
    }

    pub(crate) fn row_key(&self) -> RowKey {
        Admission::key_of(&self.tenant, &self.scope(), &self.key)
    }

    /// A digest that identifies it within its tenant without revealing its key.
    pub fn digest(&self) -> Digest {
        digest(&self.scope(), &self.key)
    }

    pub(crate) fn response_key(&self) -> PayloadKey {
        response_key(&self.tenant, &self.scope(), &self.key)
    }

    pub(crate) fn check(&self) -> Result<(), Rejection> {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::PRINCIPAL.check(&self.principal)?;
        limits::ACCOUNT.check_prose(&self.account)?;
        limits::IDEMPOTENCY_KEY.check(self.key.expose_secret())
    }
}

fn digest(scope: &str, key: &IdempotencyKey) -> Digest {
    Digester::new(scope).part(key.expose_secret().as_bytes()).finish()
}

/// The key of the response of a request.
fn response_key(tenant: &Tenant, scope: &str, key: &IdempotencyKey) -> PayloadKey {
    let task = TaskId::from(digest(scope, key).to_string());
    PayloadKey { tenant: tenant.clone(), task, execution: 0, slot: Slot::RESPONSE }
}

impl Admission {
    pub(crate) fn response_key(&self) -> Option<PayloadKey> {
        self.request.as_ref().map(|_| response_key(&self.tenant, &self.scope, &self.key))
    }

    /// The key of its response, if it is stored.
    pub(crate) fn stored_response_key(&self) -> Option<PayloadKey> {
        let state = self.request.as_ref().map(|request| request.state);
        let is_stored = matches!(state, Some(RequestState::Completed { .. }));
        if is_stored { self.response_key() } else { None }
    }

    /// The state of the request as of `now`; none if the key is free.
    pub(crate) fn request(&self, now: Timestamp) -> Option<RequestState> {
        let request = self.request.as_ref()?;
        let state = match request.state {
            RequestState::InFlight if self.expires_at <= now => return None,
            RequestState::Completed { .. } if request.replay_until <= now => RequestState::Expired,
            state => state,
        };
        (now < request.tombstone_until).then_some(state)
    }
}
