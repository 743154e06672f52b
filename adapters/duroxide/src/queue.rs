//! The orchestrator queue: messages to an instance.

use std::time::Duration;

use duroxide::providers::{ProviderError, WorkItem};
use windlass_core::command::{
    Delay, DeleteTask, IfAbsent, MailboxLimit, NewMessage, NewTask, NewWorkflow, SendMessages,
};
use windlass_core::{Payload, Policy, Rejection, TaskKey, Timestamp, limits};
use windlass_engine::Error;

use crate::error::{failed, garbled};
use crate::names::{KIND, SOURCE, addressee, instance_id, orchestrations};
use crate::provider::{WindlassProvider, ms};

/// How long messages are buffered for an instance that does not exist yet.
const BUFFER_MS: u64 = 24 * 3_600_000;

/// What an item does if its instance does not exist: it starts the instance, or it is buffered for
/// a later start. All others are dropped.
fn if_absent(item: &WorkItem, delay: Option<Duration>) -> IfAbsent {
    match item {
        WorkItem::StartOrchestration { instance, parent_instance, .. }
        | WorkItem::ContinueAsNew { instance, parent_instance, .. } => {
            IfAbsent::Start(Box::new(new_instance(instance, parent_instance.as_deref(), delay)))
        }
        WorkItem::CancelInstance { .. } | WorkItem::ExternalRaised { .. } => {
            IfAbsent::Buffer { ttl_ms: BUFFER_MS }
        }
        _ => IfAbsent::Reject,
    }
}

fn new_instance(instance: &str, parent: Option<&str>, delay: Option<Duration>) -> NewTask {
    let forever = |limit: limits::RangeLimit| u64::try_from(limit.max).unwrap_or(u64::MAX);
    let policy = Policy {
        max_lost_leases: u32::try_from(limits::LOST_LEASES.max).unwrap_or(u32::MAX),
        retention_ms: forever(limits::RETENTION_MS),
        ..Policy::default()
    };
    NewTask {
        lane: orchestrations(),
        workflow: Some(NewWorkflow::default()),
        delay: delay.map_or(Delay::None, |delay| Delay::For { ms: ms(delay) }),
        parent: parent.map(instance_id),
        policy,
        ..NewTask::new(instance_id(instance), KIND)
    }
}

/// An item as a message to its instance. One that starts an instance includes its task.
pub(crate) fn message(
    operation: &'static str,
    item: &WorkItem,
    delay: Option<Duration>,
) -> Result<NewMessage, ProviderError> {
    let Some(instance) = addressee(item) else {
        return Err(ProviderError::permanent(operation, "not an item for an orchestrator"));
    };
    let payload = serde_json::to_string(item).map_err(garbled(operation))?;
    Ok(NewMessage {
        delay: delay.map_or(Delay::None, |delay| Delay::For { ms: ms(delay) }),
        if_absent: if_absent(item, delay),
        limit: MailboxLimit::Extended,
        payload: Some(Payload::json(payload)),
        ..NewMessage::new(instance_id(instance), KIND, SOURCE)
    })
}

/// Like [`message`], for the items of an ack: a timer becomes visible when it fires.
pub(crate) fn message_of_ack(
    operation: &'static str,
    item: &WorkItem,
) -> Result<NewMessage, ProviderError> {
    let mut message = message(operation, item, None)?;
    if let WorkItem::TimerFired { fire_at_ms, .. } = item {
        let at = Timestamp::from_millis(i64::try_from(*fire_at_ms).unwrap_or(i64::MAX));
        message.delay = Delay::Until { at };
    }
    Ok(message)
}

impl WindlassProvider {
    pub(crate) async fn enqueue(
        &self,
        item: &WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_for_orchestrator";
        let mut message = message(OPERATION, item, delay)?;
        loop {
            let (tenant, messages) = (self.tenant.clone(), vec![message.clone()]);
            match self.engine.submit(SendMessages { tenant, messages }).await {
                Ok(_) => return Ok(()),
                Err(Error::Rejected(Rejection::TaskNotFound)) => return Ok(()),
                Err(Error::Rejected(Rejection::ParentNotFound | Rejection::ParentTerminal)) => {
                    // A parent that does not exist gets no completion and deletes no children.
                    match &mut message.if_absent {
                        IfAbsent::Start(new) if new.parent.is_some() => new.parent = None,
                        _ => return Ok(()),
                    }
                }
                // The instance was deleted, and its records are about to be removed.
                Err(Error::Rejected(Rejection::AlreadyTerminal { .. }))
                    if matches!(message.if_absent, IfAbsent::Start(_)) =>
                {
                    let task = TaskKey::new(&self.tenant, &message.task);
                    self.delete_task(OPERATION, &task).await?;
                }
                Err(Error::Rejected(Rejection::AlreadyTerminal { .. })) => return Ok(()),
                Err(error) => return Err(failed(OPERATION)(error)),
            }
        }
    }

    /// Deletes an ended task with all its records, page by page.
    pub(crate) async fn delete_task(
        &self,
        operation: &'static str,
        task: &TaskKey,
    ) -> Result<(), ProviderError> {
        loop {
            match self.engine.submit(DeleteTask { task: task.clone() }).await {
                Ok(_) => {}
                Err(Error::Rejected(Rejection::TaskNotFound | Rejection::NotTerminal)) => {
                    return Ok(());
                }
                // The sweep cancels its children.
                Err(Error::Rejected(Rejection::ChildrenOpen { .. })) => {
                    self.engine.sweep().await.map_err(failed(operation))?;
                }
                Err(error) => return Err(failed(operation)(error)),
            }
        }
    }
}
