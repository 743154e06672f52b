//! The rules of requests, of calls to others and of limiters.

use super::mutation::Mutation;

pub(super) const ROWS: &[Mutation] = &[
    Mutation {
        rule: "a request is answered by whoever was let in",
        file: "crates/core/src/command/answer.rs",
        from: "let own = known.filter(|known| known.first == self.owner);",
        to: "let own = known;",
    },
    Mutation {
        rule: "a request is given up by whoever was let in",
        file: "crates/core/src/command/withdraw.rs",
        from: "if let Some(own) = known.filter(|known| known.first == self.owner) {",
        to: "if let Some(own) = known {",
    },
    Mutation {
        rule: "another body under a key of a request is a conflict",
        file: "crates/core/src/command/admit.rs",
        from: "if known.fingerprint != self.fingerprint {",
        to: "if false {",
    },
    Mutation {
        rule: "whoever takes too long over a request loses it",
        file: "crates/core/src/request.rs",
        from: "RequestState::InFlight if self.expires_at <= now => return None,",
        to: "RequestState::InFlight if false => return None,",
    },
    Mutation {
        rule: "a key stays known when its answer is gone",
        file: "crates/core/src/command/sweep/admission.rs",
        from: "if matches!(request.state, RequestState::Answered { .. }) => {",
        to: "if false => {",
    },
    Mutation {
        rule: "an answer that is repeated is not counted",
        file: "crates/core/src/command/admit.rs",
        from: "RequestState::Answered { .. } => Ok(Outcome::Answered(self.request.answer_key())),",
        to: "RequestState::Answered { .. } => {
                let (tenant, key) = (&self.request.tenant, &self.request.key);
                let limiter = &self.request.limiter();
                if let Some(rate) = self.rate_limit {
                    spend(world, &Spending { tenant, limiter, key, units: 1, rate })?;
                }
                Ok(Outcome::Answered(self.request.answer_key()))
            }",
    },
    Mutation {
        rule: "what is taken under a key is taken once",
        file: "crates/core/src/primitive/spend.rs",
        from: "if let Reserved::Before(_) = reserve(world, &reservation)? {",
        to: "if let (Reserved::Before(_), true) = (reserve(world, &reservation)?, false) {",
    },
    Mutation {
        rule: "a limiter gives what it has",
        file: "crates/core/src/primitive/spend.rs",
        from: "if wish.units > limiter.left(now) {",
        to: "if false {",
    },
    Mutation {
        rule: "a call keeps its first id",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if let Some(known) = call.known {",
        to: "if let Some(known) = call.known.filter(|_| false) {",
    },
    Mutation {
        rule: "a call that asks for something else is a conflict",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if known.fingerprint != self.fingerprint {",
        to: "if false {",
    },
    Mutation {
        rule: "a call is kept for as long as its last request",
        file: "crates/core/src/command/claim_effect.rs",
        from: "if known.due_at < call.due_at {",
        to: "if false {",
    },
    Mutation {
        rule: "the first answer of a call stays",
        file: "crates/core/src/command/settle_effect.rs",
        from: "Some(_) => return Err(Rejection::SettledOtherwise.into()),",
        to: "Some(_) => {}",
    },
    Mutation {
        rule: "whoever calls has the request that it calls for",
        file: "crates/core/src/primitive/call.rs",
        from: "let own = known.filter(|known| known.first == *owner);",
        to: "let own = known;",
    },
    Mutation {
        rule: "a call is asked for before it is made again",
        file: "crates/engine/src/effects.rs",
        from: "let found = if known && !self.is_threaded {",
        to: "let found = if false {",
    },
];
