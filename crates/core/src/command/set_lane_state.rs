use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::lane::{Lane, LaneState};
use crate::limits;
use crate::name::{LaneName, Tenant};
use crate::rejection::Rejection;
use crate::world::{Wake, World};

/// Pauses, resumes, drains or disables a lane.
#[derive(Clone, Debug)]
pub struct SetLaneState {
    pub tenant: Tenant,
    pub lane: LaneName,
    pub state: LaneState,
}

impl SetLaneState {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::LANE.check(self.lane.as_str())?;
        let (tenant, lane, state) = (self.tenant.clone(), self.lane.clone(), self.state);
        let current = world.get::<Lane>(&Lane::key_of(&tenant, &lane))?;
        let current = current.ok_or(Rejection::LaneNotFound)?;
        if current.state == state {
            return Ok(Outcome::LaneChanged);
        }
        world.put::<Lane>(Lane { state, ..(*current).clone() });
        world.emit(Event::of_lane(&current, world.now(), Change::LaneStateChanged { state }));
        if state.leases_tasks() {
            world.wake(Wake { tenant, lane, route: None });
        }
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
            absent   | to=paused   | absent     | ! lane_not_found |
            active   | to=paused   | paused     | changed          | lane_state_changed
            active   | to=draining | draining   | changed          | lane_state_changed
            active   | to=disabled | disabled   | changed          | lane_state_changed
            active   | to=active   | active     | changed          |
            active   | bad         | active     | ! invalid        |
            paused   | to=active   | active     | changed          | lane_state_changed
            paused   | to=paused   | paused     | changed          |
            draining | to=active   | active     | changed          | lane_state_changed
            disabled | to=active   | active     | changed          | lane_state_changed
            limited  | to=paused   | paused 0/1 | changed          | lane_state_changed
            ",
            |args| SetLaneState {
                tenant: Tenant::default(),
                lane: if args.has("bad") { "a\0".into() } else { lane() },
                state: match args.text("to", "active").as_str() {
                    "paused" => LaneState::Paused,
                    "draining" => LaneState::Draining,
                    "disabled" => LaneState::Disabled,
                    _ => LaneState::Active,
                },
            },
        );
    }
}
