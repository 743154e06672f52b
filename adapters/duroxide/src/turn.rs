//! A turn of an instance: how it is fetched and abandoned.

use std::time::{Duration, Instant};

use duroxide::providers::{DispatcherCapabilityFilter, OrchestrationItem, ProviderError, WorkItem};
use duroxide::{ErrorDetails, Event, EventKind};
use windlass_core::command::{AbandonTurn, Claim, CommitTurn, Renew, RuntimeMetadata, TurnEnd};
use windlass_core::{Fence, Lifecycle, Message, Task, VersionRange, WorkerCapabilities};
use windlass_engine::{ClaimedTask, ReceivedMessage};

use crate::error::{failed, garbled};
use crate::execution_summary::ExecutionSummary;
use crate::history::Past;
use crate::names::{KIND, execution_id, instance_of, orchestrations};
use crate::provider::{WindlassProvider, lease_ms};
use crate::token::{Caller, Token};

const FETCH: &str = "fetch_orchestration_item";

/// How long an instance with an unreadable message is delayed.
const UNREADABLE_DELAY_MS: u64 = 60_000;
/// How long an instance that was not started yet is delayed.
const NOT_STARTED_DELAY_MS: u64 = 5_000;

/// The maximum size of messages delivered in one turn, so that its history row stays within its
/// limit. The rest is left for the next turn.
const MAX_TURN_BYTES: usize = 8 * 1_024 * 1_024;
/// How many messages are read at once.
const PAGE: usize = 64;

pub(crate) type Fetched = (OrchestrationItem, String, u32);

/// The messages fetched for an instance.
struct Mail {
    seqs: Vec<u64>,
    items: Vec<WorkItem>,
    attempts: u32,
}

/// The name and version of an orchestration.
struct Named {
    name: String,
    version: String,
}

/// The versions of duroxide that a dispatcher can replay; none if it supports none. As in the
/// provider of duroxide, only the first range counts.
fn versions(filter: Option<&DispatcherCapabilityFilter>) -> Option<VersionRange> {
    let range = |min: String, max: String| VersionRange { kind: KIND.into(), min, max };
    match filter {
        None => Some(range("0.0.0".to_owned(), format!("{}.0.0", u64::MAX))),
        Some(filter) => {
            let first = filter.supported_duroxide_versions.first()?;
            Some(range(first.min.to_string(), first.max.to_string()))
        }
    }
}

impl WindlassProvider {
    pub(crate) async fn fetch_turn(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<Fetched>, ProviderError> {
        let Some(range) = versions(filter) else { return Ok(None) };
        let claim = Claim {
            tenant: self.tenant.clone(),
            lanes: vec![orchestrations()],
            capabilities: WorkerCapabilities {
                versions: vec![range],
                ..WorkerCapabilities::default()
            },
            lease_ms: lease_ms(lock_timeout),
            deliver_messages: true,
            ..Claim::new(self.worker.clone())
        };
        let started = Instant::now();
        loop {
            let left = poll_timeout.saturating_sub(started.elapsed());
            let Some(claimed) = self.claim(FETCH, &claim, left).await? else { return Ok(None) };
            if let Some(fetched) = self.deliver(&claimed).await? {
                return Ok(Some(fetched));
            }
        }
    }

    /// Leases one task. Without a wait, sweeps due work and claims once more.
    pub(crate) async fn claim(
        &self,
        operation: &'static str,
        claim: &Claim,
        wait: Duration,
    ) -> Result<Option<ClaimedTask>, ProviderError> {
        let found = self.engine.claim(claim.clone(), wait).await.map_err(failed(operation))?;
        if !found.is_empty() || !wait.is_zero() {
            return Ok(found.into_iter().next());
        }
        self.engine.sweep().await.map_err(failed(operation))?;
        let found = self.engine.claim(claim.clone(), wait).await.map_err(failed(operation))?;
        Ok(found.into_iter().next())
    }

    /// Builds the item for the lease holder; none if there is nothing to deliver.
    async fn deliver(&self, claimed: &ClaimedTask) -> Result<Option<Fetched>, ProviderError> {
        let task = &*claimed.task;
        let Some(instance) = instance_of(&task.id) else { return Ok(None) };
        let Some(mail) = self.messages(task).await? else { return Ok(None) };
        let (history, history_error) = match self.events(FETCH, &Past::Present(task)).await? {
            Ok(events) => (events, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let summary = ExecutionSummary::of(task);
        let Some(named) = named(summary.as_ref(), &history, &mail.items) else {
            self.snooze_unknown(task, &mail).await?;
            return Ok(None);
        };
        if mail.items.is_empty() {
            self.consume_undelivered(task, mail.seqs).await?;
            return Ok(None);
        }
        let has_values =
            summary.is_some_and(|summary| summary.has_values) && history_error.is_none();
        let kv_snapshot = match has_values {
            true => self.values(FETCH, &task.task_key()).await?.snapshot(),
            false => Default::default(),
        };
        let mut token = Token::new(task.fence(), mail.seqs, false);
        token.caller = caller(&history, &mail.items);
        let token = token.write().map_err(garbled(FETCH))?;
        let item = OrchestrationItem {
            instance: instance.to_owned(),
            orchestration_name: named.name,
            execution_id: execution_id(task.execution),
            version: named.version,
            history,
            messages: mail.items,
            history_error,
            kv_snapshot,
        };
        Ok(Some((item, token, mail.attempts)))
    }

    /// The in-flight messages of a lease; none if one cannot be read. That message is not consumed,
    /// and the instance is delayed, so that it does not block others.
    async fn messages(&self, task: &Task) -> Result<Option<Mail>, ProviderError> {
        let Lifecycle::Active(lease) = &task.lifecycle else { return Ok(None) };
        let mut received = self.messages_by_seq(task, &lease.in_flight).await?;
        let seqs = received.iter().map(|one| one.message.seq).collect();
        let mut mail = Mail { seqs, items: Vec::new(), attempts: 1 };
        // Completions of activities are numbered by their steps; they are delivered by arrival.
        received.sort_by_key(|one| (one.message.sent_at, one.message.seq));
        for received in received {
            mail.attempts = mail.attempts.max(received.message.delivery_count.saturating_add(1));
            match item(task, &received) {
                Ok(item) => mail.items.extend(item),
                Err(_) => {
                    self.abandon(&task.fence(), UNREADABLE_DELAY_MS, true).await?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(mail))
    }

    /// The first messages, up to the limit of a turn.
    async fn messages_by_seq(
        &self,
        task: &Task,
        seqs: &[u64],
    ) -> Result<Vec<ReceivedMessage>, ProviderError> {
        let (Some(first), Some(last)) = (seqs.first(), seqs.last()) else { return Ok(Vec::new()) };
        let (mut found, mut after, mut bytes) = (Vec::new(), first.saturating_sub(1), 0);
        loop {
            let page = self.engine.messages(&task.task_key(), after, PAGE).await;
            let page = page.map_err(failed(FETCH))?;
            let Some(end) = page.last().map(|one| one.message.seq) else { return Ok(found) };
            for one in page.into_iter().filter(|one| seqs.contains(&one.message.seq)) {
                bytes += one.payload.as_ref().map_or(0, |payload| payload.bytes.len());
                if bytes > MAX_TURN_BYTES && !found.is_empty() {
                    return Ok(found);
                }
                found.push(one);
            }
            if end >= *last {
                return Ok(found);
            }
            after = end;
        }
    }

    /// The instance was never started, so its name is unknown. Queue messages are dropped; others
    /// may belong to a later start, so the instance is delayed.
    async fn snooze_unknown(&self, task: &Task, mail: &Mail) -> Result<(), ProviderError> {
        let is_queued = |item: &WorkItem| matches!(item, WorkItem::QueueMessage { .. });
        if mail.items.iter().all(is_queued) {
            return self.consume_undelivered(task, mail.seqs.clone()).await;
        }
        self.abandon(&task.fence(), NOT_STARTED_DELAY_MS, false).await
    }

    /// Consumes messages without delivering them.
    async fn consume_undelivered(
        &self,
        task: &Task,
        messages: Vec<u64>,
    ) -> Result<(), ProviderError> {
        let workflow = task.workflow.as_ref();
        let text = workflow.and_then(|workflow| workflow.metadata.clone()).unwrap_or_default();
        let commit = CommitTurn {
            fence: task.fence(),
            turn: workflow.map_or(0, |workflow| workflow.turns),
            row: None,
            consumed: messages,
            commands: Vec::new(),
            next_step: workflow.map_or(0, |workflow| workflow.next_step),
            end: TurnEnd::Yield,
            sticky_ms: None,
            eager: None,
            metadata: Some(Box::new(RuntimeMetadata {
                execution: task.execution,
                text,
                ..RuntimeMetadata::default()
            })),
        };
        self.engine.submit(commit).await.map(drop).map_err(failed(FETCH))
    }

    async fn abandon(
        &self,
        fence: &Fence,
        delay_ms: u64,
        count_delivery: bool,
    ) -> Result<(), ProviderError> {
        let abandon = AbandonTurn { fence: fence.clone(), delay_ms, count_delivery };
        self.engine.submit(abandon).await.map(drop).map_err(failed(FETCH))
    }

    pub(crate) async fn abandon_turn(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "abandon_orchestration_item";
        let fence = Token::read(OPERATION, token)?.fence(&self.tenant);
        let delay_ms = delay.map_or(0, crate::provider::ms);
        let abandon = AbandonTurn { fence, delay_ms, count_delivery: !ignore_attempt };
        self.engine.submit(abandon).await.map(drop).map_err(failed(OPERATION))
    }

    pub(crate) async fn renew(
        &self,
        operation: &'static str,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let fence = Token::read(operation, token)?.fence(&self.tenant);
        let renew = Renew { fence, lease_ms: lease_ms(extend_for) };
        self.engine.submit(renew).await.map(drop).map_err(failed(operation))
    }
}

/// Decodes a message. An activity that ended without a result has failed; one that its worker
/// dropped is not reported.
fn item(task: &Task, received: &ReceivedMessage) -> Result<Option<WorkItem>, serde_json::Error> {
    let message = &received.message;
    if message.source == Message::ENGINE && message.name == Message::CANCEL {
        let instance = instance_of(&task.id).unwrap_or_default().to_owned();
        let reason = task.workflow.as_ref().and_then(|workflow| workflow.cancel_reason.clone());
        let reason = reason.unwrap_or_default();
        return Ok(Some(WorkItem::CancelInstance { instance, reason }));
    }
    if let Some(payload) = &received.payload {
        return serde_json::from_slice(&payload.bytes).map(Some);
    }
    let report = received.message.completion.as_ref();
    let Some((step, ended)) = report.and_then(|r| Some((r.step, r.task.as_ref()?))) else {
        return Ok(None);
    };
    let Lifecycle::Failed { reason, .. } = &ended.lifecycle else { return Ok(None) };
    let (execution_id, id) = crate::names::event_of(step);
    Ok(Some(WorkItem::ActivityFailed {
        instance: instance_of(&received.message.task).unwrap_or_default().to_owned(),
        execution_id,
        id,
        details: ErrorDetails::Infrastructure {
            operation: "activity".to_owned(),
            message: reason.clone(),
            retryable: false,
        },
    }))
}

/// The parent that waits for an orchestration: from its history, or from its start item.
fn caller(history: &[Event], items: &[WorkItem]) -> Option<Caller> {
    let started = history.iter().find_map(|event| match &event.kind {
        EventKind::OrchestrationStarted {
            parent_instance, parent_id, parent_execution_id, ..
        } => Some((parent_instance, parent_id, parent_execution_id)),
        _ => None,
    });
    let starts = items.iter().find_map(|item| match item {
        WorkItem::StartOrchestration {
            parent_instance, parent_id, parent_execution_id, ..
        } => Some((parent_instance, parent_id, parent_execution_id)),
        _ => None,
    });
    let (instance, event, execution) = started.or(starts)?;
    Some(Caller { instance: instance.clone()?, execution: (*execution)?, event: (*event)? })
}

/// The name of an orchestration: from its acks, from its history, or from its start item.
fn named(
    summary: Option<&ExecutionSummary>,
    history: &[Event],
    items: &[WorkItem],
) -> Option<Named> {
    let unknown = || "unknown".to_owned();
    if let Some(ExecutionSummary { name: Some(name), version, .. }) = summary {
        let version = version.clone().unwrap_or_else(unknown);
        return Some(Named { name: name.clone(), version });
    }
    let started = history.iter().find_map(|event| match &event.kind {
        EventKind::OrchestrationStarted { name, version, .. } => {
            Some(Named { name: name.clone(), version: version.clone() })
        }
        _ => None,
    });
    let starts = items.iter().find_map(|item| match item {
        WorkItem::StartOrchestration { orchestration, version, .. }
        | WorkItem::ContinueAsNew { orchestration, version, .. } => Some(Named {
            name: orchestration.clone(),
            version: version.clone().unwrap_or_else(unknown),
        }),
        _ => None,
    });
    let known = || summary.map(|_| Named { name: unknown(), version: unknown() });
    started.or(starts).or_else(known)
}
