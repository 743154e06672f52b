use crate::admission::Admission;
use crate::command::{Outcome, Transition};
use crate::digest::Digester;
use crate::limits;
use crate::payload::Payload;
use crate::rejection::Rejection;
use crate::request::{Request, RequestKey, RequestState};
use crate::world::World;

/// Completes a request: its response is stored and replayed. Only the admitted owner may complete
/// it, and only in time.
#[derive(Clone, Debug)]
pub struct CompleteRequest {
    pub request: RequestKey,
    pub owner: String,
    pub response: Payload,
}

impl CompleteRequest {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.request.check()?;
        limits::OWNER.check(&self.owner)?;
        self.response.check()?;
        let now = world.now();
        let digest = Payload::digest(Some(&self.response), Digester::new("response")).finish();
        let admission = world.get::<Admission>(&self.request.row_key())?;
        let own = admission.filter(|admission| admission.is_owned_by(&self.owner));
        let state = own.as_ref().and_then(|own| own.request(now)).zip(own.as_ref());
        let Some((state, own)) = state else { return Err(Rejection::RequestLost.into()) };
        match state {
            RequestState::InFlight => {}
            RequestState::Completed { digest: stored, .. } if stored == digest => {
                return Ok(Outcome::RequestCompleted(self.request.response_key()));
            }
            RequestState::Completed { .. } => return Err(Rejection::AlreadySettled.into()),
            RequestState::Expired => return Err(Rejection::IdempotencyExpired.into()),
        }
        let state = RequestState::Completed { bytes: self.response.bytes.len() as u64, digest };
        let request = own.request.clone().map(|request| Request { state, ..request });
        let expires_at = request.as_ref().map_or(own.expires_at, |request| request.replay_until);
        world.put::<Admission>(Admission { request, expires_at, ..(**own).clone() });
        world.attach(self.request.response_key(), self.response.clone());
        Ok(Outcome::RequestCompleted(self.request.response_key()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Admit, ReleaseRequest, Sweep};
    use crate::testing::{Stage, admit, check_request, request};

    fn complete(owner: &str, response: &str) -> CompleteRequest {
        CompleteRequest {
            request: request(),
            owner: owner.into(),
            response: Payload::json(response),
        }
    }

    #[test]
    fn table() {
        check_request(
            "
            absent    |          | absent                | ! request_lost  |
            in_flight |          | answered o1 +86400000 | answered            |
            in_flight | owner=o2 | in_flight o1 +60000   | ! request_lost  |
            in_flight | owner=   | in_flight o1 +60000   | ! invalid           |
            in_flight | says=    | answered o1 +86400000 | answered            |
            overdue   |          | in_flight o1 +0       | ! request_lost  |
            released  |          | absent                | ! request_lost  |
            answered  |          | answered o1 +86390000 | answered            |
            answered  | says=2   | answered o1 +86390000 | ! already_settled |
            answered  | owner=o2 | answered o1 +86390000 | ! request_lost  |
            stale     |          | answered o1 +0        | ! idempotency_expired |
            expired   |          | expired o1 +2592000000 | ! idempotency_expired |
            deleted |          | absent                | ! request_lost  |
            ",
            |args| complete(&args.text("owner", "o1"), &args.text("says", "1")),
        );
    }

    #[test]
    fn a_late_response_does_not_replace_the_first() {
        let mut stage = Stage::new();
        stage.must(admit("o1"));
        stage.later(60_000);
        stage.must(admit("o2"));
        assert_eq!(stage.run(complete("o1", "late")), Err(Rejection::RequestLost));
        stage.must(complete("o2", "2"));
        assert_eq!(stage.run(complete("o1", "late")), Err(Rejection::RequestLost));
        let (request, owner) = (request(), "o1".to_owned());
        stage.must(ReleaseRequest { request, owner });
        let Outcome::RequestCompleted(key) = stage.must(admit("o3")) else { panic!() };
        assert_eq!(stage.tables.payload(&key), Some(&Payload::json("2")));
    }

    #[test]
    fn the_response_is_deleted_after_its_replay_window() {
        let mut stage = Stage::new();
        stage.must(admit("o1"));
        let Outcome::RequestCompleted(key) = stage.must(complete("o1", "1")) else { panic!() };
        stage.later(86_400_000);
        stage.must(Sweep::default());
        assert_eq!(stage.tables.payload(&key), None);
        stage.later(30 * 86_400_000);
        stage.must(Sweep::default());
        let again = Admit { fingerprint: crate::testing::asks("other"), ..admit("o2") };
        assert!(matches!(stage.must(again), Outcome::Admitted { .. }));
    }
}
