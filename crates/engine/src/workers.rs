//! Worker records, and grants of tasks to workers.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{ClaimGranted, Grant, Revoke};
use windlass_core::{
    Outcome, Table, Task, TaskKey, Tenant, Timestamp, Worker, WorkerCapabilities, WorkerId,
};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;
use crate::reply::ClaimedTask;

/// Workers per page for an explanation.
const PAGE: usize = 1_000;

impl Engine {
    /// The registered workers of a tenant after `after`, by name. A worker that died recently may
    /// be listed until it is declared dead.
    pub async fn workers(
        &self,
        tenant: &Tenant,
        after: Option<&WorkerId>,
        limit: usize,
    ) -> Result<Vec<Arc<Worker>>, Error> {
        let after = after.map(|id| vec![tenant.into(), id.into()]);
        let query = Query::all(Table::Worker, limit);
        self.list::<Worker>(Query { prefix: vec![tenant.into()], after, ..query }).await
    }

    /// Grants a waiting task to a worker for [`Engine::claim_granted`]; returns the expiry.
    pub async fn grant(
        &self,
        task: &TaskKey,
        worker: impl Into<WorkerId>,
        ttl: Duration,
    ) -> Result<Timestamp, Error> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let grant = Grant { task: task.clone(), worker: worker.into(), ttl_ms };
        match self.submit(grant).await? {
            Outcome::Granted { until } => Ok(until),
            other => unreachable!("unexpected outcome of a grant: {other:?}"),
        }
    }

    /// Leases the task granted to a worker, with its payload.
    ///
    /// If the caller drops this future, the lease is released.
    pub async fn claim_granted(&self, claim: ClaimGranted) -> Result<ClaimedTask, Error> {
        let mut claimed = self.lease(claim.into()).await?;
        Ok(claimed.pop().expect("an accepted grant leases one task"))
    }

    /// Revokes the lease or grant of a task. It returns to its lane; no attempt is counted.
    pub async fn revoke(&self, task: &TaskKey, reason: impl Into<String>) -> Result<(), Error> {
        let revoke = Revoke { task: task.clone(), reason: reason.into() };
        self.submit(revoke).await.map(drop)
    }

    /// Capabilities of the workers that serve the task's lane: recent claims through this engine,
    /// and registered workers. None if no worker is known.
    pub(crate) async fn capabilities_for(
        &self,
        task: &Task,
    ) -> Result<Option<Vec<WorkerCapabilities>>, Error> {
        let local = self.recent_claims().of(&task.tenant, &task.lane);
        let mut workers: Vec<Arc<Worker>> = Vec::new();
        loop {
            let last = workers.last().map(|worker| worker.id.clone());
            let page = self.workers(&task.tenant, last.as_ref(), PAGE).await?;
            let is_last = page.len() < PAGE;
            workers.extend(page);
            if is_last {
                break;
            }
        }
        if local.is_none() && workers.is_empty() {
            return Ok(None);
        }
        let ask = workers.iter().filter(|worker| worker.suspect_at.is_none());
        let ask = ask.filter(|worker| worker.lanes.contains(&task.lane));
        let registered = ask.map(|worker| worker.capabilities.clone());
        Ok(Some(local.into_iter().flatten().chain(registered).collect()))
    }
}
