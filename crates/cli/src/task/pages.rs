use std::sync::Arc;

use clap::Args;
use windlass::{Engine, Error, Task, TaskFilter, TaskId, Tenant};

/// The maximum size of a page.
const MOST: usize = 1_000;

/// The part of a list to show.
#[derive(Clone, Debug, Args)]
pub(crate) struct Page {
    /// How many to show.
    #[arg(
        long,
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "How much of it"
    )]
    limit: u32,
    /// Continue after this id.
    #[arg(long, value_name = "ID", help_heading = "How much of it")]
    after: Option<TaskId>,
    /// All tasks, page by page.
    #[arg(long, conflicts_with = "limit", help_heading = "How much of it")]
    all: bool,
    /// A filter on the tasks of a page.
    #[arg(skip)]
    only: Option<fn(&Task) -> bool>,
}

/// Tasks page by page, ordered by id.
#[derive(Debug)]
pub(crate) struct Pages<'e> {
    engine: &'e Engine,
    tenant: Tenant,
    filter: TaskFilter,
    after: Option<TaskId>,
}

impl<'e> Pages<'e> {
    pub(crate) fn new(
        engine: &'e Engine,
        tenant: &Tenant,
        filter: TaskFilter,
        after: Option<TaskId>,
    ) -> Self {
        Self { engine, tenant: tenant.clone(), filter, after }
    }

    /// The next page of at most `most` tasks; empty at the end.
    pub(crate) async fn next(&mut self, most: usize) -> Result<Vec<Arc<Task>>, Error> {
        let after = self.after.as_ref();
        let most = most.min(MOST);
        let page = self.engine.tasks(&self.tenant, &self.filter, after, most).await?;
        if let Some(last) = page.last() {
            self.after = Some(last.id.clone());
        }
        Ok(page)
    }
}

impl Page {
    /// Shows only tasks that match. The others are read as well: no index covers this.
    pub(crate) fn only(self, only: fn(&Task) -> bool) -> Self {
        Self { only: Some(only), ..self }
    }

    /// Passes the tasks that match `filter` to `show`, one page at a time. Returns the id after
    /// which more exist, if any.
    pub(crate) async fn of(
        self,
        engine: &Engine,
        tenant: &Tenant,
        filter: TaskFilter,
        mut show: impl FnMut(&[Arc<Task>]),
    ) -> Result<Option<TaskId>, Error> {
        let mut pages = Pages::new(engine, tenant, filter, self.after);
        let is_shown = |task: &Arc<Task>| self.only.is_none_or(|only| only(task));
        if self.all {
            loop {
                let mut page = pages.next(MOST).await?;
                if page.is_empty() {
                    return Ok(None);
                }
                page.retain(is_shown);
                if !page.is_empty() {
                    show(&page);
                }
            }
        }
        let (mut remaining, mut last) = (self.limit as usize, None);
        loop {
            // Reads one more than is shown, to know whether more exist.
            let most = if self.only.is_some() { MOST } else { remaining + 1 };
            let mut page = pages.next(most).await?;
            if page.is_empty() {
                return Ok(None);
            }
            page.retain(is_shown);
            let more = page.len() > remaining;
            page.truncate(remaining);
            remaining -= page.len();
            if let Some(shown) = page.last() {
                last = Some(shown.id.clone());
                show(&page);
            }
            if more {
                return Ok(last);
            }
        }
    }
}
