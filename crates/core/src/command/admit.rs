use crate::admission::{Admission, Produced};
use crate::command::{Outcome, Transition};
use crate::digest::Digest;
use crate::limits;
use crate::primitive::{LimiterCharge, spend};
use crate::rate::Rate;
use crate::rejection::Rejection;
use crate::request::{Request, RequestKey, RequestState, RequestTtls};
use crate::world::World;

/// Admits an idempotent request. One caller becomes its owner; others get the stored response, or
/// are rejected with the time to retry after.
#[derive(Clone, Debug)]
pub struct Admit {
    pub request: RequestKey,
    /// The fingerprint of the request and its operation: see [`crate::fingerprint`].
    pub fingerprint: Digest,
    /// A unique name of the caller. Only this owner can complete the request.
    pub owner: String,
    pub ttls: RequestTtls,
    /// Rate limit on new keys per principal. Replayed responses are not counted.
    pub rate_limit: Option<Rate>,
}

impl Admit {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.request.check()?;
        limits::OWNER.check(&self.owner)?;
        self.ttls.check()?;
        self.rate_limit.map_or(Ok(()), Rate::check)?;
        let now = world.now();
        let admission = world.get::<Admission>(&self.request.row_key())?;
        let state =
            admission.as_ref().and_then(|admission| admission.request(now)).zip(admission.as_ref());
        let Some((state, admission)) = state else {
            return self.accept(world, admission.as_deref());
        };
        if state == RequestState::Expired {
            return Err(Rejection::IdempotencyExpired.into());
        }
        if admission.fingerprint != self.fingerprint {
            return Err(Rejection::IdempotencyConflict.into());
        }
        match state {
            RequestState::Completed { .. } => {
                Ok(Outcome::RequestCompleted(self.request.response_key()))
            }
            _ if admission.is_owned_by(&self.owner) => {
                Ok(Outcome::Admitted { until: admission.expires_at })
            }
            _ => {
                let retry_after_ms = self.ttls.retry_after_ms;
                Err(Rejection::IdempotencyInFlight { retry_after_ms }.into())
            }
        }
    }

    /// Accepts a free key. Deletes the response of an earlier request that is not swept yet.
    fn accept(&self, world: &mut World, before: Option<&Admission>) -> Transition {
        if let Some(rate) = self.rate_limit {
            // The digest includes the account: the same key of another account is counted again.
            let key = &self.request.digest().to_string().into();
            let (tenant, limiter) = (&self.request.tenant, &self.request.limiter());
            spend(world, &LimiterCharge { tenant, limiter, key, units: 1, rate })?;
        }
        world.drop_payloads(before.and_then(Admission::stored_response_key));
        let now = world.now();
        let replay_until = now.plus_ms(self.ttls.replay_ms);
        let until = now.plus_ms(self.ttls.in_flight_ms);
        world.put::<Admission>(Admission {
            tenant: self.request.tenant.clone(),
            scope: self.request.scope(),
            key: self.request.key.clone(),
            fingerprint: self.fingerprint,
            produced: Produced::Owner(self.owner.clone()),
            task_created_at: None,
            expires_at: until,
            request: Some(Request {
                accepted_at: now,
                replay_until,
                tombstone_until: replay_until.plus_ms(self.ttls.tombstone_ms),
                state: RequestState::InFlight,
            }),
        });
        Ok(Outcome::Admitted { until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{CompleteRequest, ReleaseRequest, Sweep};
    use crate::payload::Payload;
    use crate::testing::{Stage, admit, check_request, request};

    #[test]
    fn table() {
        check_request(
            "
            absent    |             | in_flight o2 +60000 | admitted +60000 |
            absent    | key=        | absent              | ! invalid       |
            absent    | principal=  | absent              | ! invalid       |
            absent    | owner=      | absent              | ! invalid       |
            absent    | tenant=     | absent              | ! invalid       |
            absent    | replay=1    | absent              | ! invalid       |
            absent    | flight=0    | absent              | ! invalid       |
            absent    | flight=86400001 | absent          | ! invalid       |
            absent    | retry=60001 | absent              | ! invalid       |
            absent    | retry=3600001 flight=7200000 | absent | ! invalid   |
            in_flight |             | in_flight o1 +60000 | ! idempotency_in_flight |
            in_flight | owner=o1    | in_flight o1 +60000 | admitted +60000 |
            in_flight | asks=other  | in_flight o1 +60000 | ! idempotency_conflict |
            in_flight | asks=other owner=o1 | in_flight o1 +60000 | ! idempotency_conflict |
            in_flight | key=another | in_flight o1 +60000 | admitted +60000 |
            in_flight | principal=p2 | in_flight o1 +60000 | admitted +60000 |
            in_flight | account=a2  | in_flight o1 +60000 | admitted +60000 |
            in_flight | tenant=t2   | in_flight o1 +60000 | admitted +60000 |
            overdue   |             | in_flight o2 +60000 | admitted +60000 |
            overdue   | asks=other  | in_flight o2 +60000 | admitted +60000 |
            overdue   | owner=o1    | in_flight o1 +60000 | admitted +60000 |
            released  |             | in_flight o2 +60000 | admitted +60000 |
            answered  |             | answered o1 +86390000 | answered      |
            answered  | owner=o1    | answered o1 +86390000 | answered      |
            answered  | asks=other  | answered o1 +86390000 | ! idempotency_conflict |
            stale     |             | answered o1 +0      | ! idempotency_expired |
            stale     | asks=other  | answered o1 +0      | ! idempotency_expired |
            expired   |             | expired o1 +2592000000 | ! idempotency_expired |
            expired   | owner=o1    | expired o1 +2592000000 | ! idempotency_expired |
            deleted |             | in_flight o2 +60000 | admitted +60000 |
            ",
            |args| {
                let mut admit = admit(&args.text("owner", "o2"));
                admit.request.tenant = args.text("tenant", "default").into();
                admit.request.principal = args.text("principal", "p");
                admit.request.account = args.text("account", "a");
                admit.request.key = args.text("key", "key-of-a-request").as_str().into();
                admit.fingerprint = crate::testing::asks(&args.text("asks", "this"));
                admit.ttls.replay_ms = args.number("replay", admit.ttls.replay_ms);
                admit.ttls.in_flight_ms = args.number("flight", admit.ttls.in_flight_ms);
                admit.ttls.retry_after_ms = args.number("retry", admit.ttls.retry_after_ms);
                admit
            },
        );
    }

    #[test]
    fn the_response_is_replayed_for_a_window_from_the_first_acceptance() {
        let mut stage = Stage::new();
        stage.must(admit("o1"));
        stage.later(59_999);
        let (owner, response) = ("o1".to_owned(), Payload::json("1"));
        stage.must(CompleteRequest { request: request(), owner, response });
        for step in [1, 86_340_000 - 1] {
            stage.later(step);
            assert!(matches!(stage.must(admit("o2")), Outcome::RequestCompleted(_)));
        }
        stage.later(1);
        assert_eq!(stage.run(admit("o3")), Err(Rejection::IdempotencyExpired));
        stage.must(Sweep::default());
        stage.later(30 * 86_400_000 - 1);
        stage.must(Sweep::default());
        assert_eq!(stage.run(admit("o4")), Err(Rejection::IdempotencyExpired));
        stage.later(1);
        stage.must(Sweep::default());
        assert_eq!(stage.tables.rows().count(), 0, "nothing of it is left");
        assert!(matches!(stage.must(admit("o5")), Outcome::Admitted { .. }));
    }

    #[test]
    fn a_deleted_request_is_replaced_before_its_sweep() {
        let mut stage = Stage::new();
        stage.must(admit("o1"));
        let (owner, response) = ("o1".to_owned(), Payload::json("1"));
        stage.must(CompleteRequest { request: request(), owner, response });
        stage.later(31 * 86_400_000);
        stage.must(admit("o2"));
        assert_eq!(stage.tables.payloads().count(), 0, "the response is deleted");
        stage.must(ReleaseRequest { request: request(), owner: "o2".into() });
        assert_eq!(stage.tables.rows().count(), 0);
    }

    #[test]
    fn new_keys_are_rate_limited_and_replays_are_not() {
        let rate_limit = Some(Rate { limit: 2, window_ms: 32_000 });
        let ask = |key: &str| {
            let mut admit = Admit { rate_limit, ..admit("o1") };
            admit.request.key = key.into();
            admit
        };
        let mut stage = Stage::new();
        let first = ask("first");
        stage.must(first.clone());
        let (request, owner) = (first.request.clone(), "o1".to_owned());
        stage.must(CompleteRequest { request, owner, response: Payload::json("1") });
        let second = ask("second");
        stage.must(second.clone());
        stage.must(ReleaseRequest { request: second.request.clone(), owner: "o1".into() });
        stage.must(second);
        let limited = stage.run(ask("third")).unwrap_err();
        assert_eq!(limited, Rejection::RateLimited { retry_after_ms: 33_000 });
        assert!(matches!(stage.must(first), Outcome::RequestCompleted(_)));
        let mut other = ask("third");
        other.request.principal = "another principal".into();
        stage.must(other);
        stage.later(33_000);
        stage.must(ask("third"));
    }

    /// A key is counted once. The same key of another account is counted separately.
    #[test]
    fn the_rate_limit_counts_every_key_of_every_account() {
        let rate_limit = Some(Rate { limit: 2, window_ms: 32_000 });
        let ask = |account: &str| {
            let mut admit = Admit { rate_limit, ..admit("o1") };
            admit.request.account = account.into();
            admit
        };
        let mut stage = Stage::new();
        stage.must(ask("first"));
        stage.must(ask("second"));
        assert_eq!(stage.run(ask("third")).unwrap_err().code(), "rate_limited");
        for request in ["in flight", "conflict"] {
            let fingerprint = crate::testing::asks(request);
            stage.run(Admit { fingerprint, owner: "o2".into(), ..ask("first") }).unwrap_err();
        }
        stage.later(33_000);
        stage.must(ask("third"));
    }

    /// A late sweep leaves nothing behind.
    #[test]
    fn reusing_a_key_deletes_its_unswept_response() {
        let mut first = admit("o1");
        first.ttls.tombstone_ms = 0;
        let mut stage = Stage::new();
        stage.must(first.clone());
        let response = Payload::json("1");
        stage.must(CompleteRequest { request: request(), owner: "o1".into(), response });
        stage.later(86_400_000);
        assert!(matches!(
            stage.must(Admit { owner: "o2".into(), ..first }),
            Outcome::Admitted { .. }
        ));
        assert_eq!(stage.tables.payloads().count(), 0);
        stage.must(ReleaseRequest { request: request(), owner: "o2".into() });
        assert_eq!((stage.tables.rows().count(), stage.tables.payloads().count()), (0, 0));
    }

    #[test]
    fn the_longest_ttls_do_not_overflow() {
        let mut longest = admit("o1");
        longest.ttls = RequestTtls {
            replay_ms: 7 * 86_400_000,
            in_flight_ms: 7 * 86_400_000,
            tombstone_ms: 366 * 86_400_000,
            retry_after_ms: 3_600_000,
        };
        let mut stage = Stage::new();
        stage.must(longest.clone());
        stage.later(7 * 86_400_000 - 1);
        stage.must(CompleteRequest {
            request: request(),
            owner: "o1".into(),
            response: Payload::json("1"),
        });
        stage.later(1);
        assert_eq!(stage.run(longest.clone()), Err(Rejection::IdempotencyExpired));
        stage.later(366 * 86_400_000 - 1);
        assert_eq!(stage.run(longest.clone()), Err(Rejection::IdempotencyExpired));
        stage.later(1);
        stage.must(longest.clone());
        for ttls in [
            RequestTtls { tombstone_ms: u64::MAX, ..longest.ttls },
            RequestTtls { replay_ms: u64::MAX, ..longest.ttls },
            RequestTtls { in_flight_ms: u64::MAX, ..longest.ttls },
            RequestTtls { retry_after_ms: 0, ..longest.ttls },
        ] {
            let rejected = stage.run(Admit { ttls, ..longest.clone() }).unwrap_err();
            assert_eq!(rejected.code(), "invalid", "{ttls:?}");
        }
    }

    #[test]
    fn names_with_special_characters_do_not_collide() {
        let mut stage = Stage::new();
        for (principal, account) in [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "")] {
            let mut admit = admit("o");
            admit.request.principal = principal.into();
            admit.request.account = account.into();
            admit.fingerprint = crate::testing::asks(principal);
            assert!(matches!(stage.must(admit), Outcome::Admitted { .. }), "{principal}");
        }
        assert_eq!(stage.tables.rows().count(), 4);
    }

    #[test]
    fn keys_are_redacted_in_output() {
        let mut secret = admit("o1");
        secret.request.key = "abcdefghSECRET".into();
        let mut stage = Stage::new();
        stage.must(secret.clone());
        let admission = stage.record::<Admission>(&secret.request.row_key());
        let Err(rejected) = stage.run(Admit { owner: "o2".into(), ..secret.clone() }) else {
            panic!("it is in flight")
        };
        let (key, row) = (secret.request.response_key(), secret.request.row_key());
        let printed = format!("{secret:?} {admission:?} {rejected} {rejected:?} {key:?} {row:?}");
        assert!(!printed.contains("SECRET"), "{printed}");
        assert!(printed.contains("abcdefgh"), "{printed}");
    }
}
