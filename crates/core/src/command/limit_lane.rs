use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::lane::{Lane, LaneLimit};
use crate::limits;
use crate::name::{LaneName, Tenant};
use crate::rejection::Rejection;
use crate::world::{Wake, World};

/// Sets or removes the limit on concurrently leased tasks of a lane. A limit counts the leases
/// granted since one was first set; earlier leases are not counted.
#[derive(Clone, Debug)]
pub struct LimitLane {
    pub tenant: Tenant,
    pub lane: LaneName,
    pub limit: Option<u32>,
}

impl LimitLane {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::LANE.check(self.lane.as_str())?;
        if let Some(limit) = self.limit {
            limits::LANE_LIMIT.check(limit)?;
        }
        let (tenant, lane, limit) = (self.tenant.clone(), self.lane.clone(), self.limit);
        let current = world.get::<Lane>(&Lane::key_of(&tenant, &lane))?;
        let current = current.ok_or(Rejection::LaneNotFound)?;
        if current.concurrency.and_then(|concurrency| concurrency.limit) == limit {
            return Ok(Outcome::LaneChanged);
        }
        let running = current.concurrency.map_or(0, |concurrency| concurrency.running);
        world.put::<Lane>(Lane {
            concurrency: Some(LaneLimit { limit, running }),
            ..(*current).clone()
        });
        world.emit(Event::of_lane(&current, world.now(), Change::LaneLimited { limit }));
        world.wake(Wake { tenant, lane, route: None });
        Ok(Outcome::LaneChanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Complete, Create};
    use crate::testing::{Stage, check_lane, claim, fence_of, lane, new_task};

    #[test]
    fn table() {
        check_lane(
            "
            absent   | to=5  | absent       | ! lane_not_found |
            active   | to=5  | active 0/5   | changed          | lane_limited
            active   |       | active       | changed          |
            active   | to=0  | active       | ! invalid        |
            paused   | to=5  | paused 0/5   | changed          | lane_limited
            draining | to=5  | draining 0/5 | changed          | lane_limited
            disabled | to=5  | disabled 0/5 | changed          | lane_limited
            limited  | to=5  | active 0/5   | changed          | lane_limited
            limited  | to=1  | active 0/1   | changed          |
            limited  |       | active 0/-   | changed          | lane_limited
            ",
            |args| limit(args.has("to").then(|| args.number("to", 0))),
        );
    }

    fn limit(limit: Option<u32>) -> LimitLane {
        LimitLane { tenant: Tenant::default(), lane: lane(), limit }
    }

    #[test]
    fn a_removed_limit_still_counts() {
        let mut stage = Stage::new();
        for id in ["a", "b", "c"] {
            stage.must(Create::one(new_task(id)));
        }
        let running = |stage: &Stage| {
            stage.lane().unwrap().concurrency.map(|concurrency| concurrency.running)
        };
        stage.must(limit(Some(1)));
        stage.must(claim());
        stage.must(limit(None));
        stage.must(claim());
        assert_eq!(running(&stage), Some(2), "also what was leased without a limit");
        stage.must(limit(Some(1)));
        stage.must(Complete { fence: fence_of("a", 1), result: None });
        assert_eq!(running(&stage), Some(1), "b still runs");
        assert_eq!(stage.must(claim()), Outcome::Claimed(vec![]));
    }
}
