use std::collections::BTreeSet;

use crate::command::{Outcome, Transition};
use crate::limits;
use crate::name::{LaneName, Tenant, WorkerId};
use crate::task::Offer;
use crate::worker::Worker;
use crate::world::World;

/// Says that a worker is there, for the first time or again, and what it offers.
///
/// A worker that was not heard of for two and a half of its beats is missed, and for one more beat
/// from then it is taken for dead: the leases that it claimed as a registered one end before their
/// time. It is missed first so that a clock that jumps costs nobody a lease who still beats.
#[derive(Clone, Debug)]
pub struct RegisterWorker {
    pub tenant: Tenant,
    pub id: WorkerId,
    pub lanes: BTreeSet<LaneName>,
    pub offer: Offer,
    /// How soon the next one is to come.
    pub every_ms: u64,
}

impl RegisterWorker {
    /// For how long nobody takes a worker for dead after it was heard of: until it is missed, and
    /// for one beat more.
    pub const fn lasts_ms(every_ms: u64) -> u64 {
        Self::missed_after_ms(every_ms).saturating_add(every_ms)
    }

    /// Two beats and a half: the second may be on its way when it is due.
    const fn missed_after_ms(every_ms: u64) -> u64 {
        every_ms.saturating_mul(5) / 2
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::WORKER.check(self.id.as_str())?;
        limits::CLAIM_LANES.check(self.lanes.len())?;
        self.lanes.iter().try_for_each(|lane| limits::LANE.check(lane.as_str()))?;
        limits::BEAT_MS.check(self.every_ms)?;
        self.offer.check()?;
        let now = world.now();
        let known = world.get::<Worker>(&Worker::key_of(&self.tenant, &self.id))?;
        world.put::<Worker>(Worker {
            tenant: self.tenant.clone(),
            id: self.id.clone(),
            lanes: self.lanes.clone(),
            offer: self.offer.clone(),
            registered_at: known.as_ref().map_or(now, |worker| worker.registered_at),
            seen_at: now,
            every_ms: self.every_ms,
            // Whoever is heard of while its leases are ended keeps those that are left.
            missed_at: None,
            due_at: now.plus_ms(Self::missed_after_ms(self.every_ms)),
        });
        Ok(Outcome::WorkerRegistered { joined: known.is_none() })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{check_worker, register};

    #[test]
    fn table() {
        check_worker(
            "
            absent     |         | seen +0 since +0     | joined     |
            absent     | tenant= | absent               | ! invalid  |
            absent     | id=     | absent               | ! invalid  |
            absent     | every=9 | absent               | ! invalid  |
            absent     | lanes=0 | absent               | ! invalid  |
            absent     | lane=   | absent               | ! invalid  |
            absent     | able=,  | absent               | ! invalid  |
            registered |         | seen +0 since +0     | registered |
            registered | every=9 | seen +0 since +0     | ! invalid  |
            late       |         | seen +0 since +12499 | registered |
            overdue    |         | seen +0 since +12500 | registered |
            missed     |         | seen +0 since +17499 | registered |
            silent     |         | seen +0 since +17500 | registered |
            dying      |         | seen +0 since +17500 | registered |
            retired    |         | seen +0 since +0     | joined     |
            dead       |         | seen +0 since +0     | joined     |
            ",
            |args| {
                let mut register = register();
                register.tenant = args.text("tenant", "default").into();
                register.id = args.text("id", "w").into();
                register.every_ms = args.number("every", 5_000);
                if args.has("lanes") {
                    register.lanes.clear();
                }
                if args.has("lane") {
                    register.lanes.insert("".into());
                }
                if args.has("able") {
                    register.offer.capabilities.insert(args.text("able", ""));
                }
                register
            },
        );
    }
}
