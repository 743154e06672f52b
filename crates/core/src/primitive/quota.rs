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
const MAX_STARVED_LANES: usize = 256;

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

/// The quotas of a lane; none if this version cannot read one of them.
pub(crate) fn load_quotas(world: &mut World, lane: &Lane) -> Result<Option<Quotas>, Halt> {
    let tenant = world.get::<ConcurrencyLimit>(&tenant_key(&lane.tenant));
    let own = match lane.has_quota {
        true => world.get::<ConcurrencyLimit>(&lane_key(&lane.tenant, &lane.name)),
        false => Ok(None),
    };
    let (tenant, own) = (unless_quarantined(tenant)?, unless_quarantined(own)?);
    let set = |limit: &Arc<ConcurrencyLimit>| limit.configured;
    Ok(tenant
        .zip(own)
        .map(|(tenant, own)| Quotas { lane: own.filter(set), tenant: tenant.filter(set) }))
}

impl Quotas {
    fn limits(&self) -> impl Iterator<Item = &Arc<ConcurrencyLimit>> {
        self.lane.iter().chain(&self.tenant)
    }

    /// How many more tasks may be claimed, at most `wanted`.
    pub(crate) fn remaining(&self, wanted: usize, now: Timestamp) -> usize {
        self.limits().fold(wanted, |left, limit| left.min(limit.available(now) as usize))
    }

    /// Counts claimed tasks.
    pub(crate) fn count_claimed(
        &self,
        world: &mut World,
        count: usize,
    ) -> Result<CountedByQuota, Halt> {
        let (count, now) = (u32::try_from(count).expect("a claim is limited"), world.now());
        for limit in self.limits() {
            let mut limit = (**limit).clone();
            limit.charge(count, now);
            limit.running += count;
            save(world, limit, true)?;
        }
        Ok(CountedByQuota { lane: self.lane.is_some(), tenant: self.tenant.is_some() })
    }

    /// Records a lane in which a claim was rejected, so that its waiting claims are woken later.
    pub(crate) fn mark_starved(&self, world: &mut World, lane: &LaneName) -> Result<(), Halt> {
        let now = world.now();
        let every_lane = Wake::every_lane();
        for limit in self.limits().filter(|limit| limit.available(now) == 0) {
            if limit.starved_lanes.contains(lane) || limit.starved_lanes.contains(&every_lane) {
                continue;
            }
            let mut limit = (**limit).clone();
            if limit.starved_lanes.len() < MAX_STARVED_LANES {
                limit.starved_lanes.insert(lane.clone());
            } else {
                limit.starved_lanes = [every_lane.clone()].into();
            }
            save(world, limit, true)?;
        }
        Ok(())
    }
}

/// The keys of the quotas that count the lease of a task.
pub(crate) fn keys_counting(task: &Task) -> Vec<RowKey> {
    let Lifecycle::Active(lease) = &task.lifecycle else { return Vec::new() };
    let lane = lease.counted_by_quota.lane.then(|| lane_key(&task.tenant, &task.lane));
    let tenant = lease.counted_by_quota.tenant.then(|| tenant_key(&task.tenant));
    lane.into_iter().chain(tenant).collect()
}

/// Removes the lease of a task from the quotas that count it.
pub(super) fn end_lease(world: &mut World, task: &Task) -> Result<(), Halt> {
    let keys = keys_counting(task);
    for key in &keys {
        world.prefetch(key.clone());
    }
    for key in keys {
        if let Some(limit) = world.get::<ConcurrencyLimit>(&key)? {
            let running = limit.running.saturating_sub(1);
            wake_starved(world, ConcurrencyLimit { running, ..(*limit).clone() })?;
        }
    }
    Ok(())
}

/// Saves a quota, and wakes the lanes that it rejected if it has free slots.
pub(crate) fn wake_starved(world: &mut World, mut limit: ConcurrencyLimit) -> Result<(), Halt> {
    if limit.available(world.now()) > 0 {
        for lane in std::mem::take(&mut limit.starved_lanes) {
            world.wake(Wake { tenant: limit.tenant.clone(), lane, route: None });
        }
    }
    save(world, limit, true)
}
