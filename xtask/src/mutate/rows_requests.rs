//! The rules of requests, effects and rate limiters.

use super::mutation::Mutation;

pub(super) const ROWS: &[Mutation] = &[
    Mutation {
        rule: "a request rejects a response of another owner",
        file: "crates/core/src/command/complete_request.rs",
        from: "let own = known.filter(|known| known.is_owned_by(&self.owner));",
        to: "let own = known;",
    },
    Mutation {
        rule: "a request ignores a release by another owner",
        file: "crates/core/src/command/release_request.rs",
        from: "if let Some(own) = known.filter(|known| known.is_owned_by(&self.owner)) {",
        to: "if let Some(own) = known {",
    },
    Mutation {
        rule: "a request key rejects a different body",
        file: "crates/core/src/command/admit.rs",
        from: "if known.fingerprint != self.fingerprint {",
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
        from: "RequestState::Completed { .. } => \
            Ok(Outcome::Answered(self.request.response_key())),",
        to: "RequestState::Completed { .. } => {
                let (tenant, key) = (&self.request.tenant, &self.request.key);
                let limiter = &self.request.limiter();
                if let Some(rate) = self.rate_limit {
                    spend(world, &Spending { tenant, limiter, key, units: 1, rate })?;
                }
                Ok(Outcome::Answered(self.request.response_key()))
            }",
    },
    Mutation {
        rule: "a key is charged once",
        file: "crates/core/src/primitive/spend.rs",
        from: "if let Reserved::Before(_) = reserve(world, reservation)? {",
        to: "if let (Reserved::Before(_), true) = (reserve(world, reservation)?, false) {",
    },
    Mutation {
        rule: "a rate limiter rejects a charge beyond its limit",
        file: "crates/core/src/primitive/spend.rs",
        from: "if wish.units > limiter.left(now) {",
        to: "if false {",
    },
    Mutation {
        rule: "an effect keeps its first request id",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if let Some(known) = call.known {",
        to: "if let Some(known) = call.known.filter(|_| false) {",
    },
    Mutation {
        rule: "an effect rejects a different fingerprint",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if known.fingerprint != self.fingerprint {",
        to: "if false {",
    },
    Mutation {
        rule: "an effect is retained as long as its last request",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if known.due_at < call.due_at {",
        to: "if false {",
    },
    Mutation {
        rule: "a settled effect rejects a different answer",
        file: "crates/core/src/command/settle_effect.rs",
        from: "Some(_) => return Err(Rejection::SettledOtherwise.into()),",
        to: "Some(_) => {}",
    },
    Mutation {
        rule: "an effect rejects a caller that does not own its request",
        file: "crates/core/src/primitive/call.rs",
        from: "let own = known.filter(|known| known.is_owned_by(owner));",
        to: "let own = known;",
    },
    Mutation {
        rule: "a repeated call is looked up before it is made again",
        file: "crates/engine/src/effects.rs",
        from: "let found = if known && !self.is_threaded {",
        to: "let found = if false {",
    },
];
