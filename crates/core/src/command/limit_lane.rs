use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::lane::{Gate, Lane};
use crate::limits;
use crate::name::{LaneName, Tenant};
use crate::rejection::Rejection;
use crate::world::{Wake, World};

/// Sets or lifts how many tasks of a lane may be leased at once. A limit counts the leases taken
/// since it was set; those before it run out uncounted.
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
        let (tenant, name, limit) = (self.tenant.clone(), self.lane.clone(), self.limit);
        let known = world.get::<Lane>(&Lane::key_of(&tenant, &name))?;
        let lane = known.ok_or(Rejection::LaneNotFound)?;
        if lane.gate.map(|gate| gate.limit) == limit {
            return Ok(Outcome::LaneChanged);
        }
        let running = lane.gate.map_or(0, |gate| gate.running);
        let gate = limit.map(|limit| Gate { limit, running });
        world.put::<Lane>(Lane { gate, ..(*lane).clone() });
        world.emit(Event {
            at: world.now(),
            tenant: tenant.clone(),
            lane: name.clone(),
            task: None,
            change: Change::LaneLimited { limit },
        });
        world.wake(Wake { tenant, lane: name, route: None });
        Ok(Outcome::LaneChanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_lane, lane};

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
            limited  |       | active       | changed          | lane_limited
            ",
            |args| LimitLane {
                tenant: Tenant::default(),
                lane: lane(),
                limit: args.has("to").then(|| args.number("to", 0)),
            },
        );
    }
}
