use crate::command::{Outcome, Transition};
use crate::concurrency_limit::{ConcurrencyLimit, LimitKey};
use crate::limits;
use crate::name::Tenant;
use crate::primitive::release_session;
use crate::world::World;

/// Releases a session from the worker that owns it. While tasks of it run there, the owner keeps
/// it; it is free when they have ended.
#[derive(Clone, Debug)]
pub struct ReleaseSession {
    pub tenant: Tenant,
    pub session: String,
    /// It is an affinity, which is deleted if its lock has expired. A live lock cannot be taken
    /// over, so that there is one holder at a time.
    pub affinity: bool,
}

impl ReleaseSession {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        let key = match self.affinity {
            true => LimitKey::Affinity(self.session.clone()),
            false => LimitKey::Session(self.session.clone()),
        };
        key.check()?;
        let limit = world.get::<ConcurrencyLimit>(&key.row_key(&self.tenant))?;
        let Some(limit) = limit else { return Ok(Outcome::SessionReleased { running: 0 }) };
        let running = limit.running;
        if self.affinity && limit.owner(world.now()).is_some() {
            return Ok(Outcome::SessionReleased { running });
        }
        release_session(world, &limit)?;
        Ok(Outcome::SessionReleased { running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Complete, Create, NewTask, Outcome, QuotaScope, SetQuota};
    use crate::concurrency_limit::LimitKind;
    use crate::testing::{Stage, check_task, fence_of, new_task, session_claim};

    fn release() -> ReleaseSession {
        ReleaseSession { tenant: Tenant::default(), session: "s".into(), affinity: false }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    | | absent          | released 0 running |
            waiting   | | waiting e0 a0   | released 0 running |
            delayed   | | delayed e0 a0   | released 0 running |
            claimed   | | claimed e1 a0   | released 0 running |
            active    | | active e1 a1    | released 0 running |
            lease_expired    | | active e1 a1    | released 0 running |
            completed | | completed e1 a1 | released 0 running |
            failed    | | failed e1 a1    | released 0 running |
            cancelled | | cancelled e1 a1 | released 0 running |
            expired   | | expired e1 a1   | released 0 running |
            blocked   | | blocked e0 a0   | released 0 running |
            granted   | | granted e0 a0   | released 0 running |
            owned     | | waiting e0 a0   | released 0 running | grant_released
            waiting_children | | waiting_children e1 a1 | released 0 running |
            granted | | granted e0 a0 | released 0 running |
            suspended | | suspended e1 a1 | released 0 running |
            resumable | | resumable e1 a1 | released 0 running |
            ",
            |_| release(),
        );
    }

    /// However many tasks may run at once: the owner starts no more, or it would never be free.
    #[test]
    fn a_released_session_is_free_when_its_last_task_has_ended() {
        let mut stage = Stage::new();
        let (tenant, scope) = (Tenant::default(), QuotaScope::Session("s".into()));
        stage.must(SetQuota { tenant, scope, limit: Some(2), rate: None });
        for id in ["a", "b", "c"] {
            let limit_key = Some(LimitKey::Session("s".into()));
            stage.must(Create::one(NewTask { limit_key, ..new_task(id) }));
        }
        stage.must(session_claim("w"));
        stage.must(release());
        assert_eq!(stage.must(session_claim("w")), Outcome::Claimed(vec![]));
        assert_eq!(stage.must(session_claim("v")), Outcome::Claimed(vec![]));
        stage.must(Complete { fence: fence_of("a", 1), result: None });
        let Outcome::Claimed(tasks) = stage.must(session_claim("v")) else { panic!() };
        assert_eq!(tasks[0].id, "b".into());
        assert_eq!(stage.must(session_claim("w")), Outcome::Claimed(vec![]), "it belongs to v");
    }

    #[test]
    fn a_live_affinity_lock_is_not_released() {
        for (ms, next) in [(59_999, "w"), (60_000, "v")] {
            let mut stage = Stage::new();
            let limit_key = Some(LimitKey::Affinity("s".into()));
            for id in ["a", "b"] {
                stage.must(Create::one(NewTask { limit_key: limit_key.clone(), ..new_task(id) }));
            }
            stage.must(session_claim("w"));
            stage.later(ms);
            stage.must(ReleaseSession { affinity: true, ..release() });
            for worker in ["v", "w"] {
                let Outcome::Claimed(tasks) = stage.must(session_claim(worker)) else { panic!() };
                assert_eq!(!tasks.is_empty(), worker == next, "{worker} after {ms} ms");
            }
        }
    }

    #[test]
    fn running_tasks_continue_at_the_previous_owner() {
        let mut stage = Stage::new();
        for id in ["a", "b"] {
            let limit_key = Some(LimitKey::Session("s".into()));
            stage.must(Create::one(NewTask { limit_key, ..new_task(id) }));
        }
        stage.must(session_claim("w"));
        assert_eq!(stage.must(release()), Outcome::SessionReleased { running: 1 });
        assert_eq!(stage.must(session_claim("v")), Outcome::Claimed(vec![]));
        stage.must(Complete { fence: fence_of("a", 1), result: None });
        let Outcome::Claimed(tasks) = stage.must(session_claim("v")) else { panic!() };
        assert_eq!(tasks[0].id, "b".into());
        let named = ReleaseSession { session: String::new(), ..release() };
        assert_eq!(stage.run(named).unwrap_err().code(), "invalid");
        assert_eq!(stage.limits()[0].kind, LimitKind::Session);
    }
}
