use crate::command::sweep::Sweepable;
use crate::lane::Lane;
use crate::primitive::ROUTE_CHECK_MS;
use crate::ready_route::ReadyRoute;
use crate::task::Task;
use crate::time::Timestamp;
use crate::world::{Halt, World, unless_quarantined};

/// How long a route must stay empty after it was marked before it is deleted.
const CLOSING_MS: u64 = 60_000;

impl Sweepable for ReadyRoute {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.due_at)
    }

    fn prefetch(&self, world: &mut World) {
        world.prefetch_scan(&Task::ready_in(&self.tenant, &self.lane, &self.route), 1);
        world.prefetch(Lane::key_of(&self.tenant, &self.lane));
    }

    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        sweep(world, self)
    }
}

/// Marks an empty route of the directory, or deletes one that has been empty since it was marked.
fn sweep(world: &mut World, queue: &ReadyRoute) -> Result<(), Halt> {
    let now = world.now();
    let waiting = Task::ready_in(&queue.tenant, &queue.lane, &queue.route);
    if !world.scan::<Task>(&waiting, 1)?.is_empty() {
        let due_at = now.plus_ms(ROUTE_CHECK_MS);
        world.put::<ReadyRoute>(ReadyRoute { due_at, ..queue.clone() });
    } else if !queue.closing {
        let due_at = now.plus_ms(CLOSING_MS);
        world.put::<ReadyRoute>(ReadyRoute { closing: true, due_at, ..queue.clone() });
    } else {
        let lane = world.get::<Lane>(&Lane::key_of(&queue.tenant, &queue.lane));
        let Some(lane) = unless_quarantined(lane)? else {
            let due_at = now.plus_ms(ROUTE_CHECK_MS);
            world.put::<ReadyRoute>(ReadyRoute { due_at, ..queue.clone() });
            return Ok(());
        };
        world.remove(&ReadyRoute::key_of(&queue.tenant, &queue.lane, &queue.route));
        if let Some(lane) = lane {
            let queues = lane.ready_routes.saturating_sub(1);
            world.put::<Lane>(Lane { ready_routes: queues, ..(*lane).clone() });
        }
    }
    Ok(())
}
