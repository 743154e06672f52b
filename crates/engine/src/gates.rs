//! Concurrency limits and quotas: their settings, running and waiting tasks.

use std::sync::Arc;

use windlass_core::{Gate, GateKey, GateKind, Table, Task, Tenant};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// The concurrency limit of a key or session, or the quota of a lane or tenant; the tenant
    /// quota has an empty name. None if it has neither settings nor tasks.
    pub async fn gate(
        &self,
        tenant: &Tenant,
        kind: GateKind,
        name: &str,
    ) -> Result<Option<Arc<Gate>>, Error> {
        self.one::<Gate>(Gate::key_of(tenant, kind, name)).await
    }

    /// The limits of a tenant after `after`, by kind and name: their settings and the numbers of
    /// running, admitted and waiting tasks.
    pub async fn gates(
        &self,
        tenant: &Tenant,
        kind: Option<GateKind>,
        after: Option<&Gate>,
        limit: usize,
    ) -> Result<Vec<Arc<Gate>>, Error> {
        let kinds = kind.map(|kind| kind.as_str().into());
        let prefix = [tenant.into()].into_iter().chain(kinds).collect();
        let after = after.map(|gate| Gate::key_of(tenant, gate.kind, &gate.name).values);
        self.list::<Gate>(Query { prefix, after, ..Query::all(Table::Gate, limit) }).await
    }

    /// The limits that may block a task: its own, and the quotas of its lane and tenant.
    pub(crate) async fn gates_of(&self, task: &Task) -> Result<Vec<Gate>, Error> {
        let own = task.gate.as_ref().map(|gate: &GateKey| (gate.kind(), gate.name()));
        let quotas = [(GateKind::Lane, task.lane.as_str()), (GateKind::Tenant, "")];
        let mut gates = Vec::new();
        for (kind, name) in own.into_iter().chain(quotas) {
            let gate = self.gate(&task.tenant, kind, name).await?;
            gates.extend(gate.map(|gate| (*gate).clone()));
        }
        Ok(gates)
    }
}
