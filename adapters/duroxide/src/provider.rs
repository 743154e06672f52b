use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duroxide::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, Provider, ProviderAdmin,
    ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, WorkItem,
};
use duroxide::{Event, SystemStats};
use windlass::OpenError;
use windlass_core::{Task, TaskKey, Tenant, WorkerId, WorkflowProperty, limits};
use windlass_engine::Engine;

use crate::ack::Ack;
use crate::error::failed;
use crate::execution_summary::ExecutionSummary;
use crate::history_cache::HistoryCache;
use crate::names::instance_id;

/// A duroxide provider on an engine. It uses one tenant; clones of the engine may do other work
/// beside it.
#[derive(Clone, Debug)]
pub struct WindlassProvider {
    pub(crate) engine: Engine,
    pub(crate) tenant: Tenant,
    /// The lease holder, where no session owner is given.
    pub(crate) worker: WorkerId,
    pub(crate) history_cache: Arc<HistoryCache>,
}

impl WindlassProvider {
    /// Opens a store by its URL, with its own engine: `sqlite://app.db`, or
    /// `postgres://app@db/app`, which several processes may share.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Ok(Self::new((*windlass::Engine::open(url).await?).clone()))
    }

    /// Uses the tenant `duroxide`.
    pub fn new(engine: Engine) -> Self {
        Self::for_tenant(engine, "duroxide")
    }

    pub fn for_tenant(engine: Engine, tenant: impl Into<Tenant>) -> Self {
        let worker = format!("duroxide-{}", Engine::new_id());
        Self { engine, tenant: tenant.into(), worker: worker.into(), history_cache: Arc::default() }
    }

    /// The engine it runs on.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn key(&self, instance: &str) -> TaskKey {
        TaskKey::new(&self.tenant, &instance_id(instance))
    }

    /// The task of an instance, unless it was deleted.
    pub(crate) async fn instance(
        &self,
        operation: &'static str,
        instance: &str,
    ) -> Result<Option<Arc<Task>>, ProviderError> {
        let task = self.engine.task(&self.key(instance)).await.map_err(failed(operation))?;
        Ok(task.filter(|task| task.lifecycle.ended_at().is_none()))
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.engine.now().millis()).unwrap_or(0)
    }
}

pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A lock duration, clamped to the limits of a lease.
pub(crate) fn lease_ms(lock: Duration) -> u64 {
    let end = |end: i64| u64::try_from(end).unwrap_or(u64::MAX);
    ms(lock).clamp(end(limits::LEASE_MS.min), end(limits::LEASE_MS.max))
}

#[async_trait]
impl Provider for WindlassProvider {
    fn name(&self) -> &str {
        "windlass"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        self.fetch_turn(lock_timeout, poll_timeout, filter).await
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        let ack = Ack {
            execution_id,
            events: history_delta,
            worker_items,
            orchestrator_items,
            metadata,
            cancelled: cancelled_activities,
        };
        self.ack(lock_token, ack).await
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.abandon_turn(lock_token, delay, ignore_attempt).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read", instance, None).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.read_events("read_with_execution", instance, Some(execution_id)).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.append(instance, execution_id, new_events).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.enqueue_activity(&item).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        self.fetch_activity(lock_timeout, poll_timeout, session, tag_filter).await
    }

    async fn ack_work_item(
        &self,
        token: &str,
        completion: Option<WorkItem>,
    ) -> Result<(), ProviderError> {
        self.ack_activity(token, completion).await
    }

    async fn renew_work_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.renew("renew_work_item_lock", token, extend_for).await
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        self.renew_sessions(owner_ids, extend_for, idle_timeout).await
    }

    async fn cleanup_orphaned_sessions(
        &self,
        _idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        self.release_orphaned_sessions().await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.abandon_activity(token, delay, ignore_attempt).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.renew("renew_orchestration_item_lock", token, extend_for).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.enqueue(&item, delay).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        const OPERATION: &str = "get_custom_status";
        let Some(task) = self.instance(OPERATION, instance).await? else { return Ok(None) };
        let version = ExecutionSummary::of(&task).map_or(0, |summary| summary.status_version);
        if version <= last_seen_version {
            return Ok(None);
        }
        let notes = self.engine.properties(&task.task_key()).await.map_err(failed(OPERATION))?;
        let status = notes.into_iter().find(|note| note.name == WorkflowProperty::STATUS);
        Ok(Some((status.map(|note| note.text), version)))
    }

    async fn get_kv_value(
        &self,
        instance: &str,
        key: &str,
    ) -> Result<Option<String>, ProviderError> {
        let values = self.values("get_kv_value", &self.key(instance)).await?;
        Ok(values.all().remove(key))
    }

    async fn get_kv_all_values(
        &self,
        instance: &str,
    ) -> Result<HashMap<String, String>, ProviderError> {
        Ok(self.values("get_kv_all_values", &self.key(instance)).await?.all())
    }

    async fn get_instance_stats(
        &self,
        instance: &str,
    ) -> Result<Option<SystemStats>, ProviderError> {
        const OPERATION: &str = "get_instance_stats";
        let Some(task) = self.instance(OPERATION, instance).await? else { return Ok(None) };
        let Some(summary) = ExecutionSummary::of(&task) else { return Ok(None) };
        let values = self.values(OPERATION, &task.task_key()).await?.all();
        Ok(Some(SystemStats {
            history_event_count: summary.events,
            history_size_bytes: summary.bytes,
            queue_pending_count: summary.carried,
            kv_user_key_count: values.len() as u64,
            kv_total_value_bytes: values.values().map(|value| value.len() as u64).sum(),
        }))
    }
}
