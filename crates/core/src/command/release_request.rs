use crate::admission::Admission;
use crate::command::{Outcome, Transition};
use crate::limits;
use crate::rejection::Rejection;
use crate::request::{RequestKey, RequestState};
use crate::world::World;

/// Releases a request without a response: the next caller is admitted as its owner. Does nothing if
/// another owner was admitted since.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    pub request: RequestKey,
    pub owner: String,
}

impl ReleaseRequest {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.request.check()?;
        limits::OWNER.check(&self.owner)?;
        let key = self.request.row_key();
        let admission = world.get::<Admission>(&key)?;
        if let Some(own) = admission.filter(|admission| admission.is_owned_by(&self.owner)) {
            match own.request.as_ref().map(|request| request.state) {
                Some(RequestState::InFlight) => world.remove(&key),
                Some(_) => return Err(Rejection::AlreadySettled.into()),
                None => {}
            }
        }
        Ok(Outcome::RequestReleased)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_request, request};

    #[test]
    fn table() {
        check_request(
            "
            absent    |          | absent                 | released            |
            in_flight |          | absent                 | released            |
            in_flight | owner=o2 | in_flight o1 +60000    | released            |
            in_flight | owner=   | in_flight o1 +60000    | ! invalid           |
            overdue   |          | absent                 | released            |
            released  |          | absent                 | released            |
            answered  |          | answered o1 +86390000  | ! already_settled |
            answered  | owner=o2 | answered o1 +86390000  | released            |
            stale     |          | answered o1 +0         | ! already_settled |
            expired   |          | expired o1 +2592000000 | ! already_settled |
            deleted |          | absent                 | released            |
            ",
            |args| ReleaseRequest { request: request(), owner: args.text("owner", "o1") },
        );
    }
}
