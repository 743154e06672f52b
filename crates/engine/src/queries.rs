//! Reads: lists and details for people and programs. They change nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_core::{
    ChildCounts, Children, Kind, Lane, LaneName, Node, NodeId, Payload, PayloadKey, PublicState,
    Rejection, RowKey, StoredRecord, StoredRow, Table, Task, TaskId, TaskKey, Tenant, Value, Why,
    WhyContext, read_row, why,
};
use windlass_store::{Count, Query, StoreDescription};

use crate::engine::Engine;
use crate::error::Error;

/// Maximum page size of a list.
const MAX_PAGE: usize = 1_000;

/// Selects tasks. A task must match every field that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    pub state: Option<PublicState>,
    pub lane: Option<LaneName>,
    pub kind: Option<Kind>,
    pub parent: Option<TaskId>,
}

impl TaskFilter {
    fn columns(&self) -> Vec<(&'static str, Value)> {
        let state = self.state.map(|state| ("state", state.as_str().into()));
        let lane = self.lane.as_ref().map(|lane| ("lane", lane.into()));
        let kind = self.kind.as_ref().map(|kind| ("kind", kind.into()));
        let parent = self.parent.as_ref().map(|parent| ("parent", parent.into()));
        [state, lane, kind, parent].into_iter().flatten().collect()
    }
}

impl Engine {
    pub async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, Error> {
        self.one::<Task>(key.row_key()).await
    }

    pub async fn lane(&self, tenant: &Tenant, name: &LaneName) -> Result<Option<Arc<Lane>>, Error> {
        self.one::<Lane>(Lane::key_of(tenant, name)).await
    }

    /// The lanes of a tenant after `after`, by name.
    pub async fn lanes(
        &self,
        tenant: &Tenant,
        after: Option<&LaneName>,
        limit: usize,
    ) -> Result<Vec<Arc<Lane>>, Error> {
        let after = after.map(|name| vec![tenant.into(), name.into()]);
        let query = Query { prefix: vec![tenant.into()], after, ..Query::all(Table::Lane, limit) };
        self.list::<Lane>(query).await
    }

    /// The registered nodes after `after`, by id, which is their start order. An embedded store has
    /// none. A node that died recently may be listed until it is declared dead.
    pub async fn nodes(
        &self,
        after: Option<&NodeId>,
        limit: usize,
    ) -> Result<Vec<Arc<Node>>, Error> {
        let after = after.map(|id| vec![id.into()]);
        self.list::<Node>(Query { after, ..Query::all(Table::Node, limit) }).await
    }

    /// The tasks of a tenant that match `filter`, after `after`, by id.
    pub async fn tasks(
        &self,
        tenant: &Tenant,
        filter: &TaskFilter,
        after: Option<&TaskId>,
        limit: usize,
    ) -> Result<Vec<Arc<Task>>, Error> {
        let after = after.map(|id| vec![tenant.into(), id.into()]);
        let query = Query { prefix: vec![tenant.into()], after, ..Query::all(Table::Task, limit) };
        self.list::<Task>(Query { filter: filter.columns(), ..query }).await
    }

    /// The number of children of a task, by state.
    pub async fn child_counts(&self, parent: &TaskKey) -> Result<ChildCounts, Error> {
        let key = Children::key_of(&parent.tenant, &parent.id);
        let children = self.one::<Children>(key).await?;
        Ok(children.map_or_else(ChildCounts::default, |children| children.counts()))
    }

    /// The children of a task after `after`, by id. Omits deleted children.
    pub async fn children(
        &self,
        parent: &TaskKey,
        after: Option<&TaskId>,
        limit: usize,
    ) -> Result<Vec<Arc<Task>>, Error> {
        let filter = TaskFilter { parent: Some(parent.id.clone()), ..TaskFilter::default() };
        self.tasks(&parent.tenant, &filter, after, limit).await
    }

    /// The number of tasks of a tenant in each state.
    pub async fn count_by_state(&self, tenant: &Tenant) -> Result<BTreeMap<String, u64>, Error> {
        self.count(tenant, None, "state").await
    }

    /// The number of ready tasks in each lane of a tenant; lanes without any are omitted.
    pub async fn count_ready(&self, tenant: &Tenant) -> Result<BTreeMap<LaneName, u64>, Error> {
        let counts = self.count(tenant, Some("ready_at"), "lane").await?;
        Ok(counts.into_iter().map(|(lane, tasks)| (lane.into(), tasks)).collect())
    }

    pub async fn payload(&self, key: &PayloadKey) -> Result<Option<Payload>, Error> {
        let found = self.store().payloads(std::slice::from_ref(key)).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// A payload that a record refers to; an error if it is missing.
    pub async fn payload_of_record(&self, key: &PayloadKey) -> Result<Payload, Error> {
        self.payload(key).await?.ok_or_else(|| Error::payload_missing(key.clone()))
    }

    /// Payloads in the order of their keys; none for a missing one.
    pub async fn payloads(&self, keys: &[PayloadKey]) -> Result<Vec<Option<Payload>>, Error> {
        Ok(self.store().payloads(keys).await?)
    }

    /// The number of messages of a tenant, including those that become visible later.
    pub async fn count_messages(&self, tenant: &Tenant) -> Result<u64, Error> {
        let (table, prefix) = (Table::Message, vec![tenant.into()]);
        let count = Count { table, prefix, present: None, by: vec!["tenant"] };
        Ok(self.store().count(&count).await?.into_iter().map(|(_, messages)| messages).sum())
    }

    /// The result of the task's current execution, if it has one.
    pub async fn result(&self, key: &TaskKey) -> Result<Option<Payload>, Error> {
        match self.task(key).await?.and_then(|task| task.result_key()) {
            Some(key) => self.payload(&key).await,
            None => Ok(None),
        }
    }

    /// Why a task does not progress; none if the task does not exist.
    pub async fn why(&self, key: &TaskKey) -> Result<Option<Why>, Error> {
        let Some(task) = self.task(key).await? else { return Ok(None) };
        let lane = self.lane(&task.tenant, &task.lane).await?;
        let workers = self.capabilities_for(&task).await?;
        let limits = self.limits_of(&task).await?;
        let context = WhyContext {
            lane: lane.as_deref(),
            limits: &limits,
            workers: workers.as_deref(),
            now: self.clock().now(),
        };
        let mut why = why(&task, &context);
        if let Why::WaitingChildren { children, .. } = &mut why {
            *children = Some(self.child_counts(key).await?);
        }
        Ok(Some(why))
    }

    pub async fn describe(&self) -> Result<StoreDescription, Error> {
        Ok(self.store().describe().await?)
    }

    pub(crate) async fn one<R: StoredRecord>(&self, key: RowKey) -> Result<Option<Arc<R>>, Error> {
        let rows = self.store().query(&Query::one(key)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let quarantined = Rejection::Quarantined { table: R::TABLE.spec().name };
        Ok(Some(decode::<R>(row).ok_or(quarantined)?))
    }

    async fn count(
        &self,
        tenant: &Tenant,
        present: Option<&'static str>,
        by: &'static str,
    ) -> Result<BTreeMap<String, u64>, Error> {
        let prefix = vec![tenant.into()];
        let count = Count { table: Table::Task, prefix, present, by: vec![by] };
        let counts = self.store().count(&count).await?;
        let named = counts.into_iter().filter_map(|(kind, tasks)| match kind.first() {
            Some(Value::Text(name)) => Some((name.to_string(), tasks)),
            _ => None,
        });
        Ok(named.collect())
    }

    /// All records of a list, read page by page.
    pub(crate) async fn list_all<R: StoredRecord>(
        &self,
        mut query: Query,
    ) -> Result<Vec<Arc<R>>, Error> {
        query.limit = MAX_PAGE;
        let mut found = Vec::new();
        loop {
            let rows = self.store().query(&query).await?;
            found.extend(rows.iter().filter_map(decode::<R>));
            match rows.last() {
                Some(last) if rows.len() == MAX_PAGE => {
                    query.after = Some(last.key.values.clone());
                }
                _ => return Ok(found),
            }
        }
    }

    pub(crate) async fn list<R: StoredRecord>(
        &self,
        mut query: Query,
    ) -> Result<Vec<Arc<R>>, Error> {
        query.limit = query.limit.min(MAX_PAGE);
        let limit = query.limit;
        loop {
            let rows = self.store().query(&query).await?;
            let read = rows.iter().filter_map(decode::<R>);
            let found: Vec<Arc<R>> = read.collect();
            // A page of undecodable rows is not the end of the list.
            if !found.is_empty() || rows.len() < limit || limit == 0 {
                return Ok(found);
            }
            query.after = rows.last().map(|row| row.key.values.clone());
        }
    }
}

/// Decodes a row; none if this version cannot, or if the body belongs to another key.
fn decode<R: StoredRecord>(row: &StoredRow) -> Option<Arc<R>> {
    let record = read_row::<R>(row.schema, &row.body)?;
    (R::row_key(record.key()) == row.key).then_some(record)
}
