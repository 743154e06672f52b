use windlass_core::command::{Cancel, DeleteTask, PruneExecutions};
use windlass_core::{Outcome, Rejection, Task, TaskKey, Timestamp, limits};

use crate::engine::Engine;
use crate::error::Error;

const CANCEL_REASON: &str = "it was deleted";

impl Engine {
    /// Deletes a workflow, its history and all of its children before the retention ends; returns
    /// the number of deleted tasks.
    ///
    /// Rejects a child whose open parent may still read its result, and, unless `force` cancels
    /// them first, workflows that run or have running children; nothing is changed then. Children
    /// are deleted before their parents, and a closed task accepts no more children, so none is
    /// orphaned. After a crash midway the parents remain, and the same call completes the deletion.
    pub async fn delete_workflow(&self, root: &TaskKey, force: bool) -> Result<usize, Error> {
        let task = self.task(root).await?.ok_or(Rejection::TaskNotFound)?;
        if task.workflow.is_none() {
            return Err(Rejection::NotAWorkflow.into());
        }
        if self.is_awaited(&task).await? {
            return Err(Rejection::ParentOpen.into());
        }
        let (mut tree, mut next) = (vec![root.clone()], 0);
        while let Some(key) = tree.get(next).cloned() {
            next += 1;
            self.ensure_ended(&key, force).await?;
            self.add_children(&key, &mut tree).await?;
        }
        for key in tree.iter().rev() {
            self.delete_all_pages(key).await?;
        }
        Ok(tree.len())
    }

    /// Deletes executions before the current one, except the last `keep_last` and those that ended
    /// at or after `before`; returns how many.
    pub async fn prune_executions(
        &self,
        workflow: &TaskKey,
        keep_last: u32,
        before: Option<Timestamp>,
    ) -> Result<usize, Error> {
        let mut total = 0;
        loop {
            let prune = PruneExecutions { task: workflow.clone(), keep_last, before };
            match self.submit(prune).await? {
                Outcome::Pruned { pruned, more } => {
                    total += pruned;
                    if !more {
                        return Ok(total);
                    }
                }
                other => unreachable!("unexpected outcome of a prune: {other:?}"),
            }
        }
    }

    /// Whether the parent of a workflow is open. A closed parent stays closed, and [`DeleteTask`]
    /// rejects for the same reason, so this early check rejects nothing that could be deleted.
    async fn is_awaited(&self, child: &Task) -> Result<bool, Error> {
        let Some(parent) = child.parent.as_ref().filter(|_| child.step.is_some()) else {
            return Ok(false);
        };
        let parent = self.task(&TaskKey::new(&child.tenant, parent)).await?;
        Ok(parent.is_some_and(|parent| parent.lifecycle.ended_at().is_none()))
    }

    /// Ensures that a task has ended: it accepts no more children.
    async fn ensure_ended(&self, key: &TaskKey, force: bool) -> Result<(), Error> {
        if !force {
            let task = self.task(key).await?;
            let is_open = |task: &Task| task.lifecycle.ended_at().is_none();
            let open = task.is_some_and(|task| is_open(&task));
            return if open { Err(Rejection::NotTerminal.into()) } else { Ok(()) };
        }
        match self.submit(Cancel { task: key.clone(), reason: CANCEL_REASON.to_owned() }).await {
            Err(Error::Rejected(Rejection::AlreadyTerminal { .. } | Rejection::TaskNotFound)) => {
                Ok(())
            }
            ended => ended.map(drop),
        }
    }

    async fn add_children(&self, parent: &TaskKey, tree: &mut Vec<TaskKey>) -> Result<(), Error> {
        let page = usize::try_from(limits::CREATE_TASKS.max).unwrap_or(usize::MAX);
        let mut after = None;
        loop {
            let children = self.children(parent, after.as_ref(), page).await?;
            let Some(last) = children.last() else { return Ok(()) };
            after = Some(last.id.clone());
            tree.extend(children.iter().map(|child| child.task_key()));
        }
    }

    /// Deletes a task; a long history takes several pages.
    async fn delete_all_pages(&self, key: &TaskKey) -> Result<(), Error> {
        loop {
            match self.submit(DeleteTask { task: key.clone() }).await {
                Ok(_) => {}
                Err(Error::Rejected(Rejection::TaskNotFound)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
