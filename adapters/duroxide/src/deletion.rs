//! Deletes instances and executions before their retention ends.

use std::collections::HashSet;
use std::sync::Arc;

use duroxide::providers::{
    DeleteInstanceResult, InstanceFilter, ProviderAdmin, ProviderError, PruneOptions, PruneResult,
};
use windlass_core::command::{Cancel, PruneExecutions};
use windlass_core::{Command, Outcome, Rejection, Task, TaskKey, Timestamp};
use windlass_engine::Error;

use crate::admin::{InstanceRecord, not_found};
use crate::error::{failed, unexpected};
use crate::execution_summary::ExecutionSummary;
use crate::names::instance_of;
use crate::provider::WindlassProvider;

const DELETE: &str = "delete_instances_atomic";

/// The default limit of instances in a bulk operation.
const BULK: u32 = 1_000;

impl WindlassProvider {
    /// The instances that match a filter, up to its limit.
    pub(crate) async fn matching(
        &self,
        operation: &'static str,
        filter: &InstanceFilter,
        fits: impl Fn(&InstanceRecord) -> bool + Send + Sync,
    ) -> Result<Vec<InstanceRecord>, ProviderError> {
        let mut found = match &filter.instance_ids {
            None => self.all_known(operation).await?,
            Some(ids) => {
                let mut found = Vec::new();
                for id in ids {
                    found.extend(self.instance_record(operation, id).await?);
                }
                found
            }
        };
        let in_time = |known: &InstanceRecord| match filter.completed_before {
            None => true,
            Some(before) => known.summary.completed_at.is_some_and(|at| at < before),
        };
        found.retain(|known| in_time(known) && fits(known));
        found.truncate(filter.limit.unwrap_or(BULK) as usize);
        Ok(found)
    }

    /// Ends all instances in one commit, so that readers see all or none of them, and deletes their
    /// records.
    pub(crate) async fn delete_all(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let own: HashSet<&str> = ids.iter().map(String::as_str).collect();
        let mut result = DeleteInstanceResult::default();
        let (mut instances, mut steps) = (Vec::new(), Vec::new());
        for id in &own {
            let Some(task) = self.instance(DELETE, id).await? else { continue };
            let summary = ExecutionSummary::of(&task);
            if !force && summary.as_ref().is_some_and(|summary| !summary.has_ended()) {
                let text = format!("instance {id} is still running: use force, or cancel it first");
                return Err(ProviderError::permanent(DELETE, text));
            }
            let children = self.children(DELETE, &task.task_key()).await?;
            if let Some(orphan) = left_behind(&children, &own) {
                let text = format!("{id} has a child {orphan} that is not to be deleted with it");
                return Err(ProviderError::permanent(DELETE, text));
            }
            steps.extend(children.into_iter().filter(|child| instance_of(&child.id).is_none()));
            self.count(&mut result, &task, summary.as_ref()).await?;
            instances.push(task.task_key());
        }
        result.queue_messages_deleted += steps.len() as u64;
        let steps = steps.iter().map(|step| step.task_key());
        let all: Vec<TaskKey> = instances.iter().cloned().chain(steps).collect();
        self.cancel_all(&all).await?;
        for key in all.iter().rev() {
            self.delete_task(DELETE, key).await?;
        }
        Ok(result)
    }

    async fn cancel_all(&self, keys: &[TaskKey]) -> Result<(), ProviderError> {
        let reason = "it was deleted".to_owned();
        let cancel =
            |key: &TaskKey| Command::from(Cancel { task: key.clone(), reason: reason.clone() });
        let answers = self.engine.submit_many(keys.iter().map(cancel).collect()).await;
        for answer in answers.map_err(failed(DELETE))? {
            match answer {
                Ok(_) => {}
                // Already cancelled together with its instance.
                Err(Error::Rejected(
                    Rejection::TaskNotFound | Rejection::AlreadyTerminal { .. },
                )) => {}
                Err(error) => return Err(failed(DELETE)(error)),
            }
        }
        Ok(())
    }

    async fn count(
        &self,
        result: &mut DeleteInstanceResult,
        task: &Task,
        summary: Option<&ExecutionSummary>,
    ) -> Result<(), ProviderError> {
        let key = task.task_key();
        result.instances_deleted += 1;
        if let Some(summary) = summary {
            result.executions_deleted += 1;
            result.events_deleted += summary.events;
        }
        for past in self.past_executions(DELETE, &key).await? {
            result.executions_deleted += 1;
            result.events_deleted += ExecutionSummary::of_past_execution(&past).events;
        }
        let mut after = 0;
        loop {
            let page = self.engine.messages(&key, after, 1_000).await.map_err(failed(DELETE))?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.message.seq;
            result.queue_messages_deleted += page.len() as u64;
        }
    }

    pub(crate) async fn delete_bulk(
        &self,
        filter: &InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let is_root =
            |known: &InstanceRecord| known.summary.has_ended() && known.parent().is_none();
        let mut result = DeleteInstanceResult::default();
        for root in self.matching("delete_instance_bulk", filter, is_root).await? {
            let tree = self.get_instance_tree(&root.id).await?;
            let one = self.delete_all(&tree.all_ids, true).await?;
            result.instances_deleted += one.instances_deleted;
            result.executions_deleted += one.executions_deleted;
            result.events_deleted += one.events_deleted;
            result.queue_messages_deleted += one.queue_messages_deleted;
        }
        Ok(result)
    }

    /// Deletes executions before the current one, oldest first, up to one that has not ended.
    pub(crate) async fn prune(
        &self,
        instance: &str,
        options: &PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        const OPERATION: &str = "prune_executions";
        let known = self.instance_record(OPERATION, instance).await?;
        let known = known.ok_or_else(|| not_found(OPERATION, instance))?;
        let key = known.task.task_key();
        let past = self.past_executions(OPERATION, &key).await?;
        let ended = past
            .iter()
            .take_while(|execution| ExecutionSummary::of_past_execution(execution).has_ended());
        let end = ended.last().map_or(0, |execution| execution.number + 1);
        let keep_last = options.keep_last.map_or(0, |keep| keep.saturating_sub(1));
        let keep_last = keep_last.max(known.task.execution.saturating_sub(end));
        let at = |ms: u64| Timestamp::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
        let before = options.completed_before.map(at);
        let mut result = PruneResult { instances_processed: 1, ..PruneResult::default() };
        loop {
            let prune = PruneExecutions { task: key.clone(), keep_last, before };
            match self.engine.submit(prune).await.map_err(failed(OPERATION))? {
                Outcome::Pruned { pruned, more } => {
                    result.executions_deleted += pruned as u64;
                    if !more {
                        break;
                    }
                }
                other => return Err(unexpected(OPERATION, &other)),
            }
        }
        let left = self.past_executions(OPERATION, &key).await?;
        let first = left.first().map_or(known.task.execution, |execution| execution.number);
        let gone = past.iter().filter(|execution| execution.number < first);
        result.events_deleted =
            gone.map(|execution| ExecutionSummary::of_past_execution(execution).events).sum();
        Ok(result)
    }
}

/// A child instance that is not among those to be deleted.
fn left_behind(children: &[Arc<Task>], own: &HashSet<&str>) -> Option<String> {
    let open = children.iter().filter(|child| child.lifecycle.ended_at().is_none());
    let mut instances = open.filter_map(|child| instance_of(&child.id));
    instances.find(|child| !own.contains(child)).map(str::to_owned)
}
