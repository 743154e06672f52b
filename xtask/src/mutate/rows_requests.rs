//! The rules of requests, effects and rate limiters.

use super::mutation::Mutation;

pub(super) const ROWS: &[Mutation] = &[
    Mutation {
        rule: "a request rejects a response of another owner",
        file: "crates/core/src/command/complete_request.rs",
        from: "let own = admission.filter(|admission| admission.is_owned_by(&self.owner));",
        to: "let own = admission;",
    },
    Mutation {
        rule: "a request ignores a release by another owner",
        file: "crates/core/src/command/release_request.rs",
        from: "if let Some(own) = admission.filter(|admission| \
               admission.is_owned_by(&self.owner)) {",
        to: "if let Some(own) = admission {",
    },
    Mutation {
        rule: "a request key rejects a different body",
        file: "crates/core/src/command/admit.rs",
        from: "if admission.fingerprint != self.fingerprint {",
        to: "if false {",
    },
    Mutation {
        rule: "an owner loses a request after its in-flight time",
        file: "crates/core/src/request.rs",
        from: "RequestState::InFlight if self.expires_at <= now => return None,",
        to: "RequestState::InFlight if false => return None,",
    },
    Mutation {
        rule: "a key is retained after its response expires",
        file: "crates/core/src/command/sweep/admission.rs",
        from: "if matches!(request.state, RequestState::Completed { .. }) => {",
        to: "if false => {",
    },
    Mutation {
        rule: "a replayed response is not counted by the rate limit",
        file: "crates/core/src/command/admit.rs",
        from: "RequestState::Completed { .. } => {
                Ok(Outcome::RequestCompleted(self.request.response_key()))
            }",
        to: "RequestState::Completed { .. } => {
                let (tenant, key) = (&self.request.tenant, &self.request.key);
                let limiter = &self.request.limiter();
                if let Some(rate) = self.rate_limit {
                    spend(world, &LimiterCharge { tenant, limiter, key, units: 1, rate })?;
                }
                Ok(Outcome::RequestCompleted(self.request.response_key()))
            }",
    },
    Mutation {
        rule: "a key is charged once",
        file: "crates/core/src/primitive/spend.rs",
        from: "if let KeyReservation::Existing(_) = reserve_key(world, request)? {",
        to: "if let (KeyReservation::Existing(_), true) = (reserve_key(world, request)?, false) {",
    },
    Mutation {
        rule: "a rate limiter rejects a charge beyond its limit",
        file: "crates/core/src/primitive/spend.rs",
        from: "if charge.units > limiter.left(now) {",
        to: "if false {",
    },
    Mutation {
        rule: "an effect keeps its first request id",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if let Some(effect) = access.effect {",
        to: "if let Some(effect) = access.effect.filter(|_| false) {",
    },
    Mutation {
        rule: "an effect rejects a different fingerprint",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if effect.fingerprint != self.fingerprint {",
        to: "if false {",
    },
    Mutation {
        rule: "an effect is retained as long as its last request",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if effect.due_at < access.due_at {",
        to: "if false {",
    },
    Mutation {
        rule: "a settled effect rejects a different answer",
        file: "crates/core/src/command/settle_effect.rs",
        from: "Some(_) => return Err(Rejection::AlreadySettled.into()),",
        to: "Some(_) => {}",
    },
    Mutation {
        rule: "an effect rejects a caller that does not own its request",
        file: "crates/core/src/primitive/load_effect.rs",
        from: "let own = admission.filter(|admission| admission.is_owned_by(name));",
        to: "let own = admission;",
    },
    Mutation {
        rule: "a repeated call is looked up before it is made again",
        file: "crates/engine/src/effect_call.rs",
        from: "let found = if existed && !self.is_idempotent {",
        to: "let found = if false {",
    },
];
