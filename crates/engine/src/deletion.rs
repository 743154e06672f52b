use windlass_core::command::{Cancel, PruneExecutions, Reap};
use windlass_core::{Outcome, Rejection, Task, TaskKey, Timestamp, limits};

use crate::engine::Engine;
use crate::error::Error;

const REASON: &str = "it was deleted";

impl Engine {
    /// Forgets a workflow with its history and all of its children, before its time; says how many
    /// tasks that were.
    ///
    /// A child whose parent may yet ask for it is refused, and nothing is changed. So is one that
    /// runs, or has a child that does, unless `force` ends them first. Children go before their
    /// parents, and an ended task gets no more of them, so that none is left behind. Each goes
    /// whole: when the program ends midway, parents are left, and the same call finishes it.
    pub async fn delete_workflow(&self, root: &TaskKey, force: bool) -> Result<usize, Error> {
        let known = self.task(root).await?.ok_or(Rejection::TaskNotFound)?;
        if known.workflow.is_none() {
            return Err(Rejection::NotAWorkflow.into());
        }
        if self.is_awaited(&known).await? {
            return Err(Rejection::ParentOpen.into());
        }
        let (mut tree, mut next) = (vec![root.clone()], 0);
        while let Some(key) = tree.get(next).cloned() {
            next += 1;
            self.end_for_good(&key, force).await?;
            self.add_children(&key, &mut tree).await?;
        }
        for key in tree.iter().rev() {
            self.reap_whole(key).await?;
        }
        Ok(tree.len())
    }

    /// Forgets executions of a workflow before the present one, but the last of them and those
    /// that have ended since; says how many.
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
                other => unreachable!("a prune is answered as a prune, not {other:?}"),
            }
        }
    }

    /// Whether the parent of a workflow has not ended. One that has stays so, and [`Reap`] refuses
    /// for the same reason: who is told no here has lost nothing to it.
    async fn is_awaited(&self, child: &Task) -> Result<bool, Error> {
        let Some(parent) = child.parent.as_ref().filter(|_| child.step.is_some()) else {
            return Ok(false);
        };
        let parent = self.task(&TaskKey::new(&child.tenant, parent)).await?;
        Ok(parent.is_some_and(|parent| parent.lifecycle.ended_at().is_none()))
    }

    /// From here on a task has no more children than it has.
    async fn end_for_good(&self, key: &TaskKey, force: bool) -> Result<(), Error> {
        if !force {
            let known = self.task(key).await?;
            let is_open = |task: &Task| task.lifecycle.ended_at().is_none();
            let open = known.is_some_and(|task| is_open(&task));
            return if open { Err(Rejection::NotEnded.into()) } else { Ok(()) };
        }
        match self.submit(Cancel { task: key.clone(), reason: REASON.to_owned() }).await {
            Err(Error::Rejected(Rejection::Ended { .. } | Rejection::TaskNotFound)) => Ok(()),
            ended => ended.map(drop),
        }
    }

    async fn add_children(&self, parent: &TaskKey, tree: &mut Vec<TaskKey>) -> Result<(), Error> {
        let page = usize::try_from(limits::BULK.max).unwrap_or(usize::MAX);
        let mut after = None;
        loop {
            let children = self.children(parent, after.as_ref(), page).await?;
            let Some(last) = children.last() else { return Ok(()) };
            after = Some(last.id.clone());
            tree.extend(children.iter().map(|child| child.task_key()));
        }
    }

    /// A long history goes page by page.
    async fn reap_whole(&self, key: &TaskKey) -> Result<(), Error> {
        loop {
            match self.submit(Reap { task: key.clone() }).await {
                Ok(_) => {}
                Err(Error::Rejected(Rejection::TaskNotFound)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
