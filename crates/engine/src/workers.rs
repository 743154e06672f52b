//! Workers as records, and what is kept for them or taken away from them.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::command::{Consume, Grant, Revoke};
use windlass_core::{Offer, Outcome, Table, Task, TaskKey, Tenant, Timestamp, Worker, WorkerId};
use windlass_store::Query;

use crate::answer::Claimed;
use crate::engine::Engine;
use crate::error::Error;

/// How many workers an explanation reads at once.
const PAGE: usize = 1_000;

impl Engine {
    /// The registered workers of a tenant behind `after`, by name. These are the ones that were
    /// heard of: one that has just died may be among them.
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

    /// Keeps a waiting task for one worker, who takes it with [`Engine::consume`]; says until when.
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
            other => unreachable!("it is answered as it is asked, not {other:?}"),
        }
    }

    /// Leases the one task that is kept for a worker, with its payload.
    ///
    /// A caller that drops this future gets nothing, and nothing stays leased to it.
    pub async fn consume(&self, consume: Consume) -> Result<Claimed, Error> {
        let mut claimed = self.lease(consume.into()).await?;
        Ok(claimed.pop().expect("what is accepted leases one task"))
    }

    /// Takes a task away from whoever holds it or has it granted. It is back in its lane, unbilled.
    pub async fn revoke(&self, task: &TaskKey, reason: impl Into<String>) -> Result<(), Error> {
        let revoke = Revoke { task: task.clone(), reason: reason.into() };
        self.submit(revoke).await.map(drop)
    }

    /// What those offer who ask the lane of a task for tasks: of this engine whoever has asked of
    /// late, and every registered worker. None when nobody is known to ask for anything.
    pub(crate) async fn offers_for(&self, task: &Task) -> Result<Option<Vec<Offer>>, Error> {
        let local = self.offers().of(&task.tenant, &task.lane);
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
        let ask = workers.iter().filter(|worker| worker.missed_at.is_none());
        let ask = ask.filter(|worker| worker.lanes.contains(&task.lane));
        let registered = ask.map(|worker| worker.offer.clone());
        Ok(Some(local.into_iter().flatten().chain(registered).collect()))
    }
}
