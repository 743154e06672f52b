//! Stages and tables of idempotent requests.

use super::{Args, REQUEST_STATES, Stage, check};
use crate::admission::{Admission, Produced};
use crate::command::{Admit, Command, CompleteRequest, ReleaseRequest, Sweep};
use crate::digest::{Digest, Digester};
use crate::name::Tenant;
use crate::payload::Payload;
use crate::request::{RequestKey, RequestState, RequestTtls};

/// The request of the tables.
pub(crate) fn request() -> RequestKey {
    RequestKey {
        tenant: Tenant::default(),
        principal: "p".into(),
        account: "a".into(),
        key: "key-of-a-request".into(),
    }
}

/// A fingerprint.
pub(crate) fn asks(text: &str) -> Digest {
    Digester::new(text).finish()
}

pub(crate) fn admit(owner: &str) -> Admit {
    let ttls = RequestTtls::default();
    Admit {
        request: request(),
        fingerprint: asks("this"),
        owner: owner.into(),
        ttls,
        rate_limit: None,
    }
}

impl Stage {
    /// A stage on which the request of the tables is in the named state, admitted for `o1`.
    pub(crate) fn with_request(state: &str) -> Self {
        let mut stage = Self::new();
        if state == "absent" {
            return stage;
        }
        stage.must(admit("o1"));
        let owner = "o1".to_owned();
        let (request, response) = (request(), Payload::json("1"));
        match state {
            "in_flight" => {}
            "overdue" => stage.later(60_000),
            "released" => drop(stage.must(ReleaseRequest { request, owner })),
            _ => {
                stage.later(10_000);
                stage.must(CompleteRequest { request, owner, response });
                match state {
                    "answered" => {}
                    "stale" => stage.later(86_390_000),
                    "expired" | "deleted" => {
                        stage.later(86_390_000);
                        stage.must(Sweep::default());
                        if state == "deleted" {
                            stage.later(30 * 86_400_000);
                            stage.must(Sweep::default());
                        }
                    }
                    other => panic!("no such state: {other}"),
                }
            }
        }
        stage
    }

    fn request_after(&self) -> String {
        let Some(admission) = self.record::<Admission>(&request().row_key()) else {
            return "absent".into();
        };
        let state = match admission.request.as_ref().map(|request| request.state) {
            None => "made",
            Some(RequestState::InFlight) => "in_flight",
            Some(RequestState::Completed { .. }) => "answered",
            Some(RequestState::Expired) => "expired",
        };
        let Produced::Owner(owner) = &admission.produced else { panic!("{admission:?}") };
        format!("{state} {owner} +{}", self.now.ms_until(admission.expires_at))
    }
}

/// Rows of `request state | arguments | state after | outcome | events`.
#[track_caller]
pub(crate) fn check_request<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    let stage = |state: &str, _: &Args| Stage::with_request(state);
    check(table, REQUEST_STATES, stage, command, Stage::request_after);
}
