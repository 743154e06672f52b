use crate::command::{Outcome, Transition};
use crate::digest::Digest;
use crate::effect::{Effect, EffectOwner};
use crate::event::{Change, Event};
use crate::limits;
use crate::name::IdempotencyKey;
use crate::primitive::load_effect;
use crate::rejection::Rejection;
use crate::task::Task;
use crate::world::World;

/// Persists the request id of an external call before the call is made. Repeating the claim returns
/// the first id, and the stored result if there is one.
#[derive(Clone, Debug)]
pub struct ClaimEffect {
    pub owner: EffectOwner,
    pub provider: String,
    pub name: String,
    /// The fingerprint of the request to the provider.
    pub fingerprint: Digest,
    /// The id to use, if this is the first claim.
    pub request_id: IdempotencyKey,
}

impl ClaimEffect {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::REQUEST_ID.check(self.request_id.expose_secret())?;
        let access = load_effect(world, &self.owner, &self.provider, &self.name)?;
        if let Some(effect) = access.effect {
            if effect.fingerprint != self.fingerprint {
                return Err(Rejection::Conflict.into());
            }
            let (request_id, result) = (effect.request_id.clone(), effect.result_key());
            // A request that was released and admitted again extends the retention of the effect.
            if effect.due_at < access.due_at {
                world.put::<Effect>(Effect { due_at: access.due_at, ..(*effect).clone() });
            }
            return Ok(Outcome::EffectClaimed { request_id, existed: true, result });
        }
        if let Some(task) = access.task {
            let (provider, name) = (self.provider.clone(), self.name.clone());
            let change = Change::EffectClaimed { provider, name };
            world.emit(Event::of_task(&task, world.now(), change));
            if !task.has_effects {
                world.put::<Task>(Task { has_effects: true, ..(*task).clone() });
            }
        }
        world.put::<Effect>(Effect {
            tenant: self.owner.tenant().clone(),
            owner: self.owner.key(),
            provider: self.provider.clone(),
            name: self.name.clone(),
            request_id: self.request_id.clone(),
            fingerprint: self.fingerprint,
            claimed_at: world.now(),
            result: None,
            due_at: access.due_at,
        });
        let request_id = self.request_id.clone();
        Ok(Outcome::EffectClaimed { request_id, existed: false, result: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Admit, Complete, DeleteTask, Release, ReleaseRequest, Replay, SettleEffect, Sweep,
    };
    use crate::payload::Payload;
    use crate::request::RequestTtls;
    use crate::testing::{Stage, admit, asks, check_task, claim, fence, key, request};

    fn for_task(epoch: u64, request_id: &str) -> ClaimEffect {
        ClaimEffect {
            owner: EffectOwner::Task(fence(epoch)),
            provider: "bank".into(),
            name: "charge".into(),
            fingerprint: asks("this"),
            request_id: request_id.into(),
        }
    }

    fn for_request(owner: &str, request_id: &str) -> ClaimEffect {
        let owner = EffectOwner::Request { request: request(), owner: owner.into() };
        ClaimEffect { owner, ..for_task(0, request_id) }
    }

    fn claimed(stage: &mut Stage, claim: ClaimEffect) -> (String, bool, bool) {
        match stage.must(claim) {
            Outcome::EffectClaimed { request_id, existed, result } => {
                (request_id.expose_secret().to_owned(), existed, result.is_some())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |          | absent          | ! task_not_found |
            waiting   |          | waiting e0 a0   | ! stale_fence    |
            delayed   |          | delayed e0 a0   | ! stale_fence    |
            claimed   |          | claimed e1 a0   | ! not_begun      |
            active    |          | active e1 a1    | claimed r1       | effect_claimed
            active    | epoch=2  | active e1 a1    | ! stale_fence    |
            active    | provider= | active e1 a1   | ! invalid        |
            active    | name=    | active e1 a1    | ! invalid        |
            active    | id=      | active e1 a1    | ! invalid        |
            lease_expired    |          | active e1 a1    | ! lease_expired  |
            completed |          | completed e1 a1 | ! already_terminal |
            failed    |          | failed e1 a1    | ! already_terminal |
            cancelled |          | cancelled e1 a1 | ! already_terminal |
            expired   |          | expired e1 a1   | ! already_terminal |
            suspended |          | suspended e1 a1 | ! not_leased     |
            resumable |          | resumable e1 a1 | ! not_leased     |
            waiting_children | | waiting_children e1 a1 | ! not_leased |
            blocked   |          | blocked e0 a0   | ! stale_fence    |
            owned     |          | owned e0 a0     | ! stale_fence    |
            granted   |          | granted e0 a0   | ! stale_fence    |
            ",
            |args| ClaimEffect {
                owner: EffectOwner::Task(args.fence()),
                provider: args.text("provider", "bank"),
                name: args.text("name", "charge"),
                ..for_task(1, &args.text("id", "r1"))
            },
        );
    }

    #[test]
    fn the_first_request_id_is_stable_across_attempts() {
        let mut stage = Stage::with_task("active");
        assert_eq!(claimed(&mut stage, for_task(1, "r1")), ("r1".into(), false, false));
        assert_eq!(claimed(&mut stage, for_task(1, "r2")), ("r1".into(), true, false));
        stage.must(Release { fence: fence(1) });
        stage.must(claim());
        assert_eq!(stage.run(for_task(1, "r3")).unwrap_err().code(), "stale_fence");
        assert_eq!(claimed(&mut stage, for_task(2, "r3")), ("r1".into(), true, false));
        let other = ClaimEffect { fingerprint: asks("other"), ..for_task(2, "r4") };
        assert_eq!(stage.run(other), Err(Rejection::Conflict));
        let second = ClaimEffect { name: "refund".into(), ..for_task(2, "r5") };
        assert_eq!(claimed(&mut stage, second), ("r5".into(), false, false));
    }

    #[test]
    fn an_effect_is_deleted_with_its_task() {
        let mut stage = Stage::with_task("active");
        stage.must(for_task(1, "r1"));
        let (owner, result) = (EffectOwner::Task(fence(1)), Payload::json("1"));
        let (provider, name) = ("bank".to_owned(), "charge".to_owned());
        stage.must(SettleEffect { owner, provider, name, result });
        stage.must(Complete { fence: fence(1), result: None });
        stage.must(DeleteTask { task: key("t") });
        let effects =
            stage.tables.rows().filter(|row| row.key.table == crate::record::Table::Effect);
        assert_eq!(effects.count(), 0);
        assert_eq!(stage.tables.payloads().count(), 0);
    }

    /// The effect is retained as long as a caller may repeat the request.
    #[test]
    fn an_effect_is_retained_as_long_as_the_last_request() {
        let ttls = RequestTtls { replay_ms: 3_600_000, tombstone_ms: 0, ..RequestTtls::default() };
        let ask = |owner: &str| Admit { ttls, ..admit(owner) };
        let mut stage = Stage::new();
        stage.must(ask("o1"));
        stage.must(for_request("o1", "r1"));
        stage.must(ReleaseRequest { request: request(), owner: "o1".into() });
        stage.later(3_590_000);
        stage.must(ask("o2"));
        assert_eq!(claimed(&mut stage, for_request("o2", "r2")), ("r1".into(), true, false));
        stage.later(10_000);
        stage.must(Sweep::default());
        assert_eq!(claimed(&mut stage, for_request("o2", "r3")), ("r1".into(), true, false));
        stage.later(3_600_000);
        for _ in 0..2 {
            stage.must(Sweep::default());
        }
        assert_eq!(stage.tables.rows().count(), 0, "nothing is retained for ever");
    }

    /// A replay runs a task again, and repeats no external call: see `docs/guide/external-services.md`.
    #[test]
    fn a_replay_reuses_recorded_effects() {
        let mut stage = Stage::with_task("active");
        stage.must(for_task(1, "r1"));
        stage.must(Complete { fence: fence(1), result: None });
        stage.must(Replay { task: key("t"), execution: 0 });
        stage.must(claim());
        assert_eq!(claimed(&mut stage, for_task(2, "r2")), ("r1".into(), true, false));
    }

    #[test]
    fn an_effect_outlives_a_released_request() {
        let mut stage = Stage::new();
        assert_eq!(stage.run(for_request("o1", "r1")), Err(Rejection::RequestLost));
        stage.must(admit("o1"));
        assert_eq!(claimed(&mut stage, for_request("o1", "r1")), ("r1".into(), false, false));
        assert_eq!(stage.run(for_request("o2", "r2")), Err(Rejection::RequestLost));
        stage.must(ReleaseRequest { request: request(), owner: "o1".into() });
        assert_eq!(stage.run(for_request("o1", "r1")), Err(Rejection::RequestLost));
        stage.must(admit("o2"));
        assert_eq!(claimed(&mut stage, for_request("o2", "r2")), ("r1".into(), true, false));
        stage.later(31 * 86_400_000);
        for _ in 0..2 {
            stage.must(Sweep::default());
        }
        assert_eq!(stage.tables.rows().count(), 0, "nothing is retained for ever");
    }
}
