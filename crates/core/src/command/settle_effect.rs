use crate::command::{Outcome, Transition};
use crate::digest::Digester;
use crate::effect::{Effect, EffectOwner, EffectResult};
use crate::event::{Change, Event};
use crate::payload::Payload;
use crate::primitive::load_effect;
use crate::rejection::Rejection;
use crate::world::World;

/// Stores the result of an external call, which is not made again.
#[derive(Clone, Debug)]
pub struct SettleEffect {
    pub owner: EffectOwner,
    pub provider: String,
    pub name: String,
    pub result: Payload,
}

impl SettleEffect {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.result.check()?;
        let access = load_effect(world, &self.owner, &self.provider, &self.name)?;
        let Some(effect) = access.effect else { return Err(Rejection::EffectNotClaimed.into()) };
        let digest = Payload::digest(Some(&self.result), Digester::new("effect")).finish();
        let result = EffectResult { bytes: self.result.bytes.len() as u64, digest };
        match effect.result {
            Some(before) if before == result => return Ok(Outcome::EffectSettled),
            Some(_) => return Err(Rejection::AlreadySettled.into()),
            None => {}
        }
        if let Some(task) = access.task {
            let (provider, name) = (self.provider.clone(), self.name.clone());
            let change = Change::EffectSettled { provider, name };
            world.emit(Event::of_task(&task, world.now(), change));
        }
        world.attach(effect.payload_key(), self.result.clone());
        world.put::<Effect>(Effect { result: Some(result), ..(*effect).clone() });
        Ok(Outcome::EffectSettled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, ClaimEffect, Release};
    use crate::testing::{Stage, asks, check_task, claim, fence};

    fn settle(epoch: u64, result: &str) -> SettleEffect {
        SettleEffect {
            owner: EffectOwner::Task(fence(epoch)),
            provider: "bank".into(),
            name: "charge".into(),
            result: Payload::json(result),
        }
    }

    fn claim_effect(epoch: u64) -> ClaimEffect {
        let SettleEffect { owner, provider, name, .. } = settle(epoch, "");
        let (fingerprint, request_id) = (asks("this"), "r1".into());
        ClaimEffect { owner, provider, name, fingerprint, request_id }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | ! task_not_found     |
            waiting   |         | waiting e0 a0   | ! stale_fence        |
            delayed   |         | delayed e0 a0   | ! stale_fence        |
            claimed   |         | claimed e1 a0   | ! not_begun          |
            active    |         | active e1 a1    | ! effect_not_claimed |
            active    | epoch=2 | active e1 a1    | ! stale_fence        |
            lease_expired    |         | active e1 a1    | ! lease_expired      |
            completed |         | completed e1 a1 | ! already_terminal   |
            failed    |         | failed e1 a1    | ! already_terminal   |
            cancelled |         | cancelled e1 a1 | ! already_terminal   |
            expired   |         | expired e1 a1   | ! already_terminal   |
            suspended |         | suspended e1 a1 | ! not_leased         |
            resumable |         | resumable e1 a1 | ! not_leased         |
            waiting_children | | waiting_children e1 a1 | ! not_leased   |
            blocked   |         | blocked e0 a0   | ! stale_fence        |
            owned     |         | owned e0 a0     | ! stale_fence        |
            granted   |         | granted e0 a0   | ! stale_fence        |
            ",
            |args| SettleEffect { owner: EffectOwner::Task(args.fence()), ..settle(1, "1") },
        );
    }

    #[test]
    fn the_first_result_of_an_effect_stays() {
        let mut stage = Stage::with_task("active");
        stage.must(claim_effect(1));
        assert_eq!(stage.run(settle(2, "1")).unwrap_err().code(), "stale_fence");
        for _ in 0..2 {
            assert_eq!(stage.run(settle(1, "1")), Ok(Outcome::EffectSettled));
        }
        assert_eq!(stage.run(settle(1, "2")), Err(Rejection::AlreadySettled));
        stage.must(Release { fence: fence(1) });
        stage.must(Claim { worker: "v".into(), ..claim() });
        let Outcome::EffectClaimed { result: Some(key), existed: true, .. } =
            stage.must(claim_effect(2))
        else {
            panic!("the stored result is returned")
        };
        assert_eq!(stage.tables.payload(&key), Some(&Payload::json("1")));
    }
}
