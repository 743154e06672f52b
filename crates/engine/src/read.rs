//! Reads: lists and details for people and programs. They decide nothing.

use std::sync::Arc;

use windlass_core::{
    Filed, Lane, Payload, PayloadKey, Rejection, RowKey, Task, TaskKey, Tenant, Value, Why,
    read_row, why,
};
use windlass_store::{Description, Query};

use crate::engine::Engine;
use crate::error::Error;

/// No list gives more than this at once.
const MOST_ROWS: usize = 1_000;

impl Engine {
    pub async fn task(&self, key: &TaskKey) -> Result<Option<Arc<Task>>, Error> {
        self.one::<Task>(key.row_key()).await
    }

    pub async fn lane(
        &self,
        tenant: &Tenant,
        name: &windlass_core::LaneName,
    ) -> Result<Option<Arc<Lane>>, Error> {
        self.one::<Lane>(Lane::key_of(tenant, name)).await
    }

    /// The lanes of a tenant behind `after`, by name.
    pub async fn lanes(
        &self,
        tenant: &Tenant,
        after: Option<&windlass_core::LaneName>,
        limit: usize,
    ) -> Result<Vec<Arc<Lane>>, Error> {
        let after = after.map(|name| vec![tenant.into(), name.into()]);
        self.list::<Lane>(vec![tenant.into()], after, limit).await
    }

    /// The tasks of a tenant behind `after`, by id.
    pub async fn tasks(
        &self,
        tenant: &Tenant,
        after: Option<&windlass_core::TaskId>,
        limit: usize,
    ) -> Result<Vec<Arc<Task>>, Error> {
        let after = after.map(|id| vec![tenant.into(), id.into()]);
        self.list::<Task>(vec![tenant.into()], after, limit).await
    }

    pub async fn payload(&self, key: &PayloadKey) -> Result<Option<Payload>, Error> {
        let found = self.store().payloads(std::slice::from_ref(key)).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// The result of a task's present generation, once it has one.
    pub async fn result(&self, key: &TaskKey) -> Result<Option<Payload>, Error> {
        match self.task(key).await?.and_then(|task| task.result_key()) {
            Some(key) => self.payload(&key).await,
            None => Ok(None),
        }
    }

    /// Why a task is not further than it is; none when there is no such task.
    pub async fn why(&self, key: &TaskKey) -> Result<Option<Why>, Error> {
        let Some(task) = self.task(key).await? else { return Ok(None) };
        let lane = self.lane(&task.tenant, &task.lane).await?;
        let offers = self.offers().of(&task.tenant, &task.lane);
        Ok(Some(why(&task, lane.as_deref(), &offers)))
    }

    pub async fn describe(&self) -> Result<Description, Error> {
        Ok(self.store().describe().await?)
    }

    async fn one<R: Filed>(&self, key: RowKey) -> Result<Option<Arc<R>>, Error> {
        let rows = self.store().query(&Query::one(key)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let quarantined = Rejection::Quarantined { table: R::TABLE.spec().name };
        Ok(Some(read_row::<R>(row.schema, &row.body).ok_or(quarantined)?))
    }

    async fn list<R: Filed>(
        &self,
        prefix: Vec<Value>,
        after: Option<Vec<Value>>,
        limit: usize,
    ) -> Result<Vec<Arc<R>>, Error> {
        let limit = limit.min(MOST_ROWS);
        let mut query = Query { prefix, after, ..Query::all(R::TABLE, limit) };
        loop {
            let rows = self.store().query(&query).await?;
            let read = rows.iter().filter_map(|row| read_row::<R>(row.schema, &row.body));
            let found: Vec<Arc<R>> = read.collect();
            // A page of nothing but what cannot be read is not the end of the list.
            if !found.is_empty() || rows.len() < limit || limit == 0 {
                return Ok(found);
            }
            query.after = rows.last().map(|row| row.key.values.clone());
        }
    }
}
