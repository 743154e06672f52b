use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use windlass_core::command::Claim;
use windlass_core::{LaneName, Tenant, WorkerCapabilities, WorkerId};

const REMEMBERED: Duration = Duration::from_secs(60);
const REFRESHED: Duration = Duration::from_secs(10);
const MOST: usize = 4_096;

/// Capabilities of workers that recently claimed from each lane, to explain why a task waits.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<BTreeMap<Asker, (WorkerCapabilities, Instant)>>);

type Asker = (Tenant, LaneName, WorkerId);

impl Offers {
    pub(crate) fn note(&self, claim: &Claim) {
        let now = Instant::now();
        let mut offers = self.0.lock().expect("no code panics while holding the offers");
        for lane in &claim.lanes {
            let key = (claim.tenant.clone(), lane.clone(), claim.worker.clone());
            let fresh = |known: &(WorkerCapabilities, Instant)| {
                known.0 == claim.offer && now - known.1 < REFRESHED
            };
            if offers.get(&key).is_some_and(fresh) {
                continue;
            }
            if offers.len() >= MOST {
                offers.retain(|_, (_, at)| now - *at < REMEMBERED);
            }
            if offers.len() < MOST || offers.contains_key(&key) {
                offers.insert(key, (claim.offer.clone(), now));
            }
        }
    }

    /// None if no worker has claimed through this engine.
    pub(crate) fn of(&self, tenant: &Tenant, lane: &LaneName) -> Option<Vec<WorkerCapabilities>> {
        let now = Instant::now();
        let offers = self.0.lock().expect("no code panics while holding the offers");
        if offers.is_empty() {
            return None;
        }
        let recent = offers.iter().filter(|((of, at_lane, _), (_, at))| {
            of == tenant && at_lane == lane && now - *at < REMEMBERED
        });
        Some(recent.map(|(_, (offer, _))| offer.clone()).collect())
    }
}
