//! Concurrency limits and quotas: their settings, running and waiting tasks.

use std::sync::Arc;

use windlass_core::{ConcurrencyLimit, LimitKey, LimitKind, Table, Task, Tenant};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// The concurrency limit of a key or session, or the quota of a lane or tenant; the tenant
    /// quota has an empty name. None if it has neither settings nor tasks.
    pub async fn concurrency_limit(
        &self,
        tenant: &Tenant,
        kind: LimitKind,
        name: &str,
    ) -> Result<Option<Arc<ConcurrencyLimit>>, Error> {
        self.one::<ConcurrencyLimit>(ConcurrencyLimit::key_of(tenant, kind, name)).await
    }

    /// The limits of a tenant after `after`, by kind and name: their settings and the numbers of
    /// running, admitted and waiting tasks.
    pub async fn concurrency_limits(
        &self,
        tenant: &Tenant,
        kind: Option<LimitKind>,
        after: Option<&ConcurrencyLimit>,
        limit: usize,
    ) -> Result<Vec<Arc<ConcurrencyLimit>>, Error> {
        let kinds = kind.map(|kind| kind.as_str().into());
        let prefix = [tenant.into()].into_iter().chain(kinds).collect();
        let after =
            after.map(|limit| ConcurrencyLimit::key_of(tenant, limit.kind, &limit.name).values);
        self.list::<ConcurrencyLimit>(Query {
            prefix,
            after,
            ..Query::all(Table::ConcurrencyLimit, limit)
        })
        .await
    }

    /// The limits that may block a task: its own, and the quotas of its lane and tenant.
    pub(crate) async fn limits_of(&self, task: &Task) -> Result<Vec<ConcurrencyLimit>, Error> {
        let own = task.limit_key.as_ref().map(|key: &LimitKey| (key.kind(), key.name()));
        let quotas = [(LimitKind::Lane, task.lane.as_str()), (LimitKind::Tenant, "")];
        let mut limits = Vec::new();
        for (kind, name) in own.into_iter().chain(quotas) {
            let limit = self.concurrency_limit(&task.tenant, kind, name).await?;
            limits.extend(limit.map(|limit| (*limit).clone()));
        }
        Ok(limits)
    }
}
