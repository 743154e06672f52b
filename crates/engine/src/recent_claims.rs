use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use windlass_core::command::Claim;
use windlass_core::{LaneName, Tenant, WorkerCapabilities, WorkerId};

const RETENTION: Duration = Duration::from_secs(60);
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
const MAX_ENTRIES: usize = 4_096;

/// Capabilities of workers that recently claimed from each lane, to explain why a task waits.
#[derive(Debug, Default)]
pub(crate) struct RecentClaims(Mutex<BTreeMap<Claimant, (WorkerCapabilities, Instant)>>);

type Claimant = (Tenant, LaneName, WorkerId);

impl RecentClaims {
    pub(crate) fn note(&self, claim: &Claim) {
        let now = Instant::now();
        let mut recent = self.0.lock().expect("no code panics while holding the map");
        for lane in &claim.lanes {
            let key = (claim.tenant.clone(), lane.clone(), claim.worker.clone());
            let fresh = |entry: &(WorkerCapabilities, Instant)| {
                entry.0 == claim.capabilities && now - entry.1 < REFRESH_INTERVAL
            };
            if recent.get(&key).is_some_and(fresh) {
                continue;
            }
            if recent.len() >= MAX_ENTRIES {
                recent.retain(|_, (_, at)| now - *at < RETENTION);
            }
            if recent.len() < MAX_ENTRIES || recent.contains_key(&key) {
                recent.insert(key, (claim.capabilities.clone(), now));
            }
        }
    }

    /// None if no worker has claimed through this engine.
    pub(crate) fn of(&self, tenant: &Tenant, lane: &LaneName) -> Option<Vec<WorkerCapabilities>> {
        let now = Instant::now();
        let recent = self.0.lock().expect("no code panics while holding the map");
        if recent.is_empty() {
            return None;
        }
        let recent = recent.iter().filter(|((of, at_lane, _), (_, at))| {
            of == tenant && at_lane == lane && now - *at < RETENTION
        });
        Some(recent.map(|(_, (capabilities, _))| capabilities.clone()).collect())
    }
}
