use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;

use windlass_core::{Kind, LaneName, PublicState, Task, TaskId, Tenant, Timestamp};

use crate::engine::Engine;
use crate::error::Error;
use crate::queries::TaskFilter;

/// Maximum number of tasks read by one call, and by one page.
const MAX_READ: usize = 10_000;
const PAGE: usize = 500;

/// A bulk delete of workflows before their retention ends: set the filters, then await it.
///
/// Skips workflows that have not ended unless forced, and deletes children with their root
/// workflow. Each call does a bounded amount of work; [`BulkDeleted::next`] is the cursor of the
/// next page.
///
/// ```
/// # use std::time::Duration;
/// # use windlass_core::PublicState;
/// # use windlass_engine::{Config, Engine};
/// # use windlass_store::MemoryStore;
/// # #[tokio::main] async fn main() -> Result<(), windlass_engine::Error> {
/// # let engine = Engine::with_store(MemoryStore::new(), Config::default()).await?;
/// # for id in ["a", "b"] {
/// #     let one = engine.start_workflow_named::<()>("order", &1).id(id).await?;
/// #     one.terminate("enough").await?;
/// # }
/// let mut after = None;
/// loop {
///     let deleted = engine
///         .delete_workflows()
///         .kind("order")
///         .state(PublicState::Cancelled)
///         .after(after)
///         .limit(100)
///         .await?;
///     # assert_eq!((deleted.deleted.len(), deleted.rejected.len()), (2, 0));
///     after = deleted.next;
///     if after.is_none() {
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is deleted before this is awaited"]
pub struct BulkDelete<'e> {
    engine: &'e Engine,
    tenant: Tenant,
    filter: TaskFilter,
    ended_before: Option<Timestamp>,
    after: Option<TaskId>,
    limit: usize,
    force: bool,
}

/// The result of one call.
#[derive(Debug, Default)]
pub struct BulkDeleted {
    /// The deleted workflows, each with the number of deleted tasks including itself.
    pub deleted: Vec<(TaskId, usize)>,
    /// Workflows that were not deleted, and why: for example a child still runs.
    pub rejected: Vec<(TaskId, Error)>,
    /// Id after which to continue; none when no workflows are left.
    pub next: Option<TaskId>,
}

impl Engine {
    /// Deletes workflows that match a filter, with their histories and children: see
    /// [`BulkDelete`].
    pub fn delete_workflows(&self) -> BulkDelete<'_> {
        BulkDelete {
            engine: self,
            tenant: Tenant::default(),
            filter: TaskFilter::default(),
            ended_before: None,
            after: None,
            limit: PAGE,
            force: false,
        }
    }
}

impl<'e> BulkDelete<'e> {
    pub fn tenant(mut self, tenant: impl Into<Tenant>) -> Self {
        self.tenant = tenant.into();
        self
    }

    pub fn state(mut self, state: PublicState) -> Self {
        self.filter.state = Some(state);
        self
    }

    /// Selects workflows of this kind.
    pub fn kind(mut self, kind: impl Into<Kind>) -> Self {
        self.filter.kind = Some(kind.into());
        self
    }

    pub fn lane(mut self, lane: impl Into<LaneName>) -> Self {
        self.filter.lane = Some(lane.into());
        self
    }

    /// Selects workflows that ended before this time.
    pub fn ended_before(mut self, moment: Timestamp) -> Self {
        self.ended_before = Some(moment);
        self
    }

    /// Selects ids after this one: [`BulkDeleted::next`] of the previous call.
    pub fn after(mut self, id: Option<TaskId>) -> Self {
        self.after = id;
        self
    }

    /// Maximum number of workflows for this call; 500 by default.
    pub fn limit(mut self, workflows: usize) -> Self {
        self.limit = workflows;
        self
    }

    /// Also deletes running workflows: cancels them and their children first.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Lists the matching workflows without deleting them, with the id after which to continue.
    pub async fn find(&self) -> Result<(Vec<Arc<Task>>, Option<TaskId>), Error> {
        let (mut found, mut read, mut after) = (Vec::new(), 0, self.after.clone());
        while found.len() < self.limit && read < MAX_READ {
            let page = self.engine.tasks(&self.tenant, &self.filter, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok((found, None)) };
            (read, after) = (read + page.len(), Some(last.id.clone()));
            for task in page.into_iter().filter(|task| self.matches(task)) {
                if found.len() == self.limit {
                    let last: Option<&Arc<Task>> = found.last();
                    return Ok((found.clone(), last.map(|last| last.id.clone())));
                }
                found.push(task);
            }
        }
        Ok((found, after))
    }

    fn matches(&self, task: &Task) -> bool {
        let ended_at = task.lifecycle.ended_at();
        let in_time = self.ended_before.is_none_or(|before| ended_at.is_some_and(|at| at < before));
        let is_deletable = self.force || ended_at.is_some();
        task.workflow.is_some() && task.parent.is_none() && in_time && is_deletable
    }

    async fn delete(self) -> Result<BulkDeleted, Error> {
        let (found, next) = self.find().await?;
        let mut deleted = BulkDeleted { next, ..BulkDeleted::default() };
        for workflow in found {
            match self.engine.delete_workflow(&workflow.task_key(), self.force).await {
                Ok(tasks) => deleted.deleted.push((workflow.id.clone(), tasks)),
                Err(error @ Error::Rejected(_)) => {
                    deleted.rejected.push((workflow.id.clone(), error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }
}

impl<'e> IntoFuture for BulkDelete<'e> {
    type Output = Result<BulkDeleted, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'e>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.delete())
    }
}
