use std::sync::Arc;

use crate::concurrency_limit::{ConcurrencyLimit, LimitKind};
use crate::lane::Lane;
use crate::name::{LaneName, Tenant};
use crate::primitive::concurrency_limit::save;
use crate::row::RowKey;
use crate::task::{CountedByQuota, Lifecycle, Task};
use crate::time::Timestamp;
use crate::world::{Halt, Wake, World, unless_quarantined};

/// The maximum number of lanes that a quota remembers to wake. Beyond it, all lanes are woken.
const MOST_REFUSED: usize = 256;

/// The quotas that count a claim from a lane.
#[derive(Default)]
pub(crate) struct Quotas {
    lane: Option<Arc<ConcurrencyLimit>>,
    tenant: Option<Arc<ConcurrencyLimit>>,
}

pub(crate) fn tenant_key(tenant: &Tenant) -> RowKey {
    ConcurrencyLimit::key_of(tenant, LimitKind::Tenant, "")
}

fn lane_key(tenant: &Tenant, lane: &LaneName) -> RowKey {
    ConcurrencyLimit::key_of(tenant, LimitKind::Lane, lane.as_str())
}

/// The quotas of a lane; none if one of them is unreadable, so that the rest is unknown.
pub(crate) fn meters(world: &mut World, lane: &Lane) -> Result<Option<Quotas>, Halt> {
    let tenant = world.get::<ConcurrencyLimit>(&tenant_key(&lane.tenant));
    let own = match lane.has_quota {
        true => world.get::<ConcurrencyLimit>(&lane_key(&lane.tenant, &lane.name)),
        false => Ok(None),
    };
    let (tenant, own) = (unless_quarantined(tenant)?, unless_quarantined(own)?);
    let set = |gate: &Arc<ConcurrencyLimit>| gate.configured;
    Ok(tenant
        .zip(own)
        .map(|(tenant, own)| Quotas { lane: own.filter(set), tenant: tenant.filter(set) }))
}

impl Quotas {
    fn each(&self) -> impl Iterator<Item = &Arc<ConcurrencyLimit>> {
        self.lane.iter().chain(&self.tenant)
    }

    /// How many more tasks may be claimed, at most `wanted`.
    pub(crate) fn remaining(&self, wanted: usize, now: Timestamp) -> usize {
        self.each().fold(wanted, |left, gate| left.min(gate.room(now) as usize))
    }

    /// Counts claimed tasks.
    pub(crate) fn charge(&self, world: &mut World, count: usize) -> Result<CountedByQuota, Halt> {
        let (count, now) = (u32::try_from(count).expect("a claim is limited"), world.now());
        for gate in self.each() {
            let mut gate = (**gate).clone();
            gate.charge(count, now);
            gate.running += count;
            save(world, gate, true)?;
        }
        Ok(CountedByQuota { lane: self.lane.is_some(), tenant: self.tenant.is_some() })
    }

    /// Records a lane in which a claim was refused, so that its waiting claims are woken later.
    pub(crate) fn mark_starved(&self, world: &mut World, lane: &LaneName) -> Result<(), Halt> {
        let now = world.now();
        let everywhere = Wake::every_lane();
        for gate in self.each().filter(|gate| gate.room(now) == 0) {
            if gate.starved_lanes.contains(lane) || gate.starved_lanes.contains(&everywhere) {
                continue;
            }
            let mut gate = (**gate).clone();
            if gate.starved_lanes.len() < MOST_REFUSED {
                gate.starved_lanes.insert(lane.clone());
            } else {
                gate.starved_lanes = [everywhere.clone()].into();
            }
            save(world, gate, true)?;
        }
        Ok(())
    }
}

/// The keys of the quotas that count the lease of a task.
pub(crate) fn keys(task: &Task) -> Vec<RowKey> {
    let Lifecycle::Active(lease) = &task.lifecycle else { return Vec::new() };
    let lane = lease.counted_by_quota.lane.then(|| lane_key(&task.tenant, &task.lane));
    let tenant = lease.counted_by_quota.tenant.then(|| tenant_key(&task.tenant));
    lane.into_iter().chain(tenant).collect()
}

/// Removes the lease of a task from the quotas that count it.
pub(super) fn end_lease(world: &mut World, task: &Task) -> Result<(), Halt> {
    let keys = keys(task);
    for key in &keys {
        world.prefetch(key.clone());
    }
    for key in keys {
        if let Some(gate) = world.get::<ConcurrencyLimit>(&key)? {
            let running = gate.running.saturating_sub(1);
            wake_starved(world, ConcurrencyLimit { running, ..(*gate).clone() })?;
        }
    }
    Ok(())
}

/// Saves a quota, and wakes the lanes that it refused if it has free slots.
pub(crate) fn wake_starved(world: &mut World, mut gate: ConcurrencyLimit) -> Result<(), Halt> {
    if gate.room(world.now()) > 0 {
        for lane in std::mem::take(&mut gate.starved_lanes) {
            world.wake(Wake { tenant: gate.tenant.clone(), lane, route: None });
        }
    }
    save(world, gate, true)
}
