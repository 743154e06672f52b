//! Management queries over all instances.

use std::sync::Arc;

use async_trait::async_trait;
use duroxide::Event;
use duroxide::providers::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, ProviderAdmin,
    ProviderError, PruneOptions, PruneResult, QueueDepths, SystemMetrics,
};
use windlass_core::{Execution, Task, TaskId, TaskKey};
use windlass_engine::TaskFilter;

use crate::error::failed;
use crate::execution_summary::ExecutionSummary;
use crate::history::Past;
use crate::names::{all_activities, execution_id, instance_of, orchestrations};
use crate::provider::WindlassProvider;

const PAGE: usize = 1_000;

/// An instance with at least one ack.
#[derive(Clone, Debug)]
pub(crate) struct InstanceRecord {
    pub(crate) id: String,
    pub(crate) task: Arc<Task>,
    pub(crate) summary: ExecutionSummary,
}

impl InstanceRecord {
    fn of(task: Arc<Task>) -> Option<Self> {
        let id = instance_of(&task.id)?.to_owned();
        let summary =
            ExecutionSummary::of(&task).filter(|_| task.lifecycle.ended_at().is_none())?;
        Some(Self { id, task, summary })
    }

    pub(crate) fn parent(&self) -> Option<String> {
        let parent = self.task.parent.as_ref().and_then(instance_of);
        parent.map(str::to_owned).or_else(|| self.summary.parent.clone())
    }
}

pub(crate) fn not_found(operation: &'static str, instance: &str) -> ProviderError {
    ProviderError::permanent(operation, format!("instance {instance} not found"))
}

impl WindlassProvider {
    /// An instance by its name.
    pub(crate) async fn instance_record(
        &self,
        operation: &'static str,
        instance: &str,
    ) -> Result<Option<InstanceRecord>, ProviderError> {
        Ok(self.instance(operation, instance).await?.and_then(InstanceRecord::of))
    }

    /// All instances, latest first.
    pub(crate) async fn all_known(
        &self,
        operation: &'static str,
    ) -> Result<Vec<InstanceRecord>, ProviderError> {
        let filter = TaskFilter { lane: Some(orchestrations()), ..TaskFilter::default() };
        let (mut found, mut after) = (Vec::new(), None::<TaskId>);
        loop {
            let page = self.engine.tasks(&self.tenant, &filter, after.as_ref(), PAGE).await;
            let page = page.map_err(failed(operation))?;
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            found.extend(page.into_iter().filter_map(InstanceRecord::of));
        }
        found.sort_by_key(|known| std::cmp::Reverse(known.task.created_at));
        Ok(found)
    }

    /// The executions of an instance before the current one, in order.
    pub(crate) async fn past_executions(
        &self,
        operation: &'static str,
        key: &TaskKey,
    ) -> Result<Vec<Execution>, ProviderError> {
        let mut found: Vec<Execution> = Vec::new();
        loop {
            let after = found.last().map(|execution| execution.number);
            let page = self.engine.executions(key, after, PAGE).await.map_err(failed(operation))?;
            if page.is_empty() {
                return Ok(found);
            }
            found.extend(page);
        }
    }

    /// The children of a task, including activities.
    pub(crate) async fn children(
        &self,
        operation: &'static str,
        key: &TaskKey,
    ) -> Result<Vec<Arc<Task>>, ProviderError> {
        let mut found: Vec<Arc<Task>> = Vec::new();
        loop {
            let after = found.last().map(|task| task.id.clone());
            let page = self.engine.children(key, after.as_ref(), PAGE).await;
            let page = page.map_err(failed(operation))?;
            if page.is_empty() {
                return Ok(found);
            }
            found.extend(page);
        }
    }
}

fn millis(at: windlass_core::Timestamp) -> u64 {
    u64::try_from(at.millis()).unwrap_or(0)
}

#[async_trait]
impl ProviderAdmin for WindlassProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        let all = self.all_known("list_instances").await?;
        Ok(all.into_iter().map(|known| known.id).collect())
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        let all = self.all_known("list_instances_by_status").await?;
        let those = all.into_iter().filter(|known| known.summary.status() == status);
        Ok(those.map(|known| known.id).collect())
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        const OPERATION: &str = "list_executions";
        let Some(known) = self.instance_record(OPERATION, instance).await? else {
            return Ok(Vec::new());
        };
        let past = self.past_executions(OPERATION, &known.task.task_key()).await?;
        let numbers = past.iter().map(|execution| execution.number);
        Ok(numbers.chain([known.task.execution]).map(execution_id).collect())
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read_history_with_execution_id", instance, Some(execution_id)).await
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read_history", instance, None).await
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        let task = self.instance("latest_execution_id", instance).await?;
        Ok(execution_id(task.map_or(0, |task| task.execution)))
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        const OPERATION: &str = "get_instance_info";
        let known = self.instance_record(OPERATION, instance).await?;
        let known = known.ok_or_else(|| not_found(OPERATION, instance))?;
        let past = Past::Present(&known.task);
        let output = self.output(OPERATION, &past, known.summary.output_row).await?;
        let unknown = || "unknown".to_owned();
        Ok(InstanceInfo {
            parent_instance_id: known.parent(),
            current_execution_id: execution_id(known.task.execution),
            status: known.summary.status().to_owned(),
            output,
            created_at: millis(known.task.created_at),
            updated_at: known.summary.updated_at,
            orchestration_name: known.summary.name.unwrap_or_else(unknown),
            orchestration_version: known.summary.version.unwrap_or_else(unknown),
            instance_id: known.id,
        })
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        const OPERATION: &str = "get_execution_info";
        let known = self.instance_record(OPERATION, instance).await?;
        let known = known.ok_or_else(|| not_found(OPERATION, instance))?;
        let past = self.past(OPERATION, &known.task, Some(execution_id)).await?;
        let past = past.ok_or_else(|| {
            let text = format!("execution {execution_id} of {instance} not found");
            ProviderError::permanent(OPERATION, text)
        })?;
        let (summary, started_at) = match &past {
            Past::Present(task) => (known.summary.clone(), task.started_at),
            Past::Before(execution) => {
                (ExecutionSummary::of_past_execution(execution), execution.started_at)
            }
        };
        Ok(ExecutionInfo {
            execution_id,
            status: summary.status().to_owned(),
            output: self.output(OPERATION, &past, summary.output_row).await?,
            started_at: millis(started_at),
            completed_at: summary.completed_at,
            event_count: usize::try_from(summary.events).unwrap_or(usize::MAX),
        })
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        const OPERATION: &str = "get_system_metrics";
        let mut metrics = SystemMetrics::default();
        for known in self.all_known(OPERATION).await? {
            metrics.total_instances += 1;
            match known.summary.status() {
                "Running" => metrics.running_instances += 1,
                "Completed" => metrics.completed_instances += 1,
                "Failed" => metrics.failed_instances += 1,
                _ => {}
            }
            metrics.total_executions += 1;
            metrics.total_events += known.summary.events;
            if known.task.execution > 0 {
                for past in self.past_executions(OPERATION, &known.task.task_key()).await? {
                    metrics.total_executions += 1;
                    metrics.total_events += ExecutionSummary::of_past_execution(&past).events;
                }
            }
        }
        Ok(metrics)
    }

    /// In-flight messages of a turn count for the orchestrator queue.
    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        const OPERATION: &str = "get_queue_depths";
        let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let messages = self.engine.count_messages(&self.tenant).await.map_err(failed(OPERATION))?;
        let ready = self.engine.count_ready(&self.tenant).await.map_err(failed(OPERATION))?;
        let waiting = all_activities().filter_map(|lane| ready.get(&lane)).sum();
        Ok(QueueDepths {
            orchestrator_queue: size(messages),
            worker_queue: size(waiting),
            timer_queue: 0,
        })
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        let children = self.children("list_children", &self.key(instance_id)).await?;
        let those = children.iter().filter(|child| child.lifecycle.ended_at().is_none());
        Ok(those.filter_map(|child| instance_of(&child.id)).map(str::to_owned).collect())
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        const OPERATION: &str = "get_parent_id";
        let known = self.instance_record(OPERATION, instance_id).await?;
        Ok(known.ok_or_else(|| not_found(OPERATION, instance_id))?.parent())
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.delete_all(ids, force).await
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.delete_bulk(&filter).await
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.prune(instance_id, &options).await
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        let mut result = PruneResult::default();
        for known in self.matching("prune_executions_bulk", &filter, |_| true).await? {
            let one = self.prune(&known.id, &options).await?;
            result.instances_processed += one.instances_processed;
            result.executions_deleted += one.executions_deleted;
            result.events_deleted += one.events_deleted;
        }
        Ok(result)
    }
}
