//! Limits: what is set, what runs under them, and what waits behind them.

use std::sync::Arc;

use windlass_core::{Gate, GateKey, GateKind, Table, Task, Tenant};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// The gate of a key or a session, or the quota of a lane or a tenant; the name of the latter
    /// is empty. None when nothing is set and nobody stands there.
    pub async fn gate(
        &self,
        tenant: &Tenant,
        kind: GateKind,
        name: &str,
    ) -> Result<Option<Arc<Gate>>, Error> {
        self.one::<Gate>(Gate::key_of(tenant, kind, name)).await
    }

    /// The gates of a tenant behind `after`, by kind and name: how many run at each, how many were
    /// let through, how many wait, and what was set.
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

    /// What may keep a task from running: its gate, and the quotas of its lane and its tenant.
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
