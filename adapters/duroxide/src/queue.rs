//! The orchestrator queue: what is sent to an instance.

use std::time::Duration;

use duroxide::providers::{ProviderError, WorkItem};
use windlass_core::command::{Absent, NewTask, NewWorkflow, Parcel, Reap, Send, Start};
use windlass_core::{Payload, Policy, Rejection, TaskKey, Timestamp, limits};
use windlass_engine::Error;

use crate::error::{failed, garbled};
use crate::names::{KIND, SOURCE, addressee, instance_id, orchestrations};
use crate::provider::{WindlassProvider, ms};

/// How long what comes before its instance is kept for it.
const EARLY_MS: u64 = 24 * 3_600_000;

/// What an item does where its instance is not there: it starts it, or may have come before the
/// start. All else is of no use then, and is dropped.
fn absent(item: &WorkItem, delay: Option<Duration>) -> Absent {
    match item {
        WorkItem::StartOrchestration { instance, parent_instance, .. }
        | WorkItem::ContinueAsNew { instance, parent_instance, .. } => {
            Absent::Create(Box::new(new_instance(instance, parent_instance.as_deref(), delay)))
        }
        WorkItem::CancelInstance { .. } | WorkItem::ExternalRaised { .. } => {
            Absent::Keep { ms: EARLY_MS }
        }
        _ => Absent::Refuse,
    }
}

fn new_instance(instance: &str, parent: Option<&str>, delay: Option<Duration>) -> NewTask {
    let forever = |limit: limits::RangeLimit| u64::try_from(limit.max).unwrap_or(u64::MAX);
    let policy = Policy {
        max_reclaims: u32::try_from(limits::RECLAIMS.max).unwrap_or(u32::MAX),
        retention_ms: forever(limits::RETENTION_MS),
        ..Policy::default()
    };
    NewTask {
        lane: orchestrations(),
        workflow: Some(NewWorkflow::default()),
        start: delay.map_or(Start::Now, |delay| Start::After { ms: ms(delay) }),
        parent: parent.map(instance_id),
        policy,
        ..NewTask::new(instance_id(instance), KIND)
    }
}

/// An item as a message to its instance. One that starts an instance brings its task along.
pub(crate) fn parcel(
    operation: &'static str,
    item: &WorkItem,
    delay: Option<Duration>,
) -> Result<Parcel, ProviderError> {
    let Some(instance) = addressee(item) else {
        return Err(ProviderError::permanent(operation, "no orchestrator takes such an item"));
    };
    let payload = serde_json::to_string(item).map_err(garbled(operation))?;
    Ok(Parcel {
        task: instance_id(instance),
        name: KIND.to_owned(),
        source: SOURCE.to_owned(),
        payload: Some(Payload::json(payload)),
        visible: delay.map_or(Start::Now, |delay| Start::After { ms: ms(delay) }),
        absent: absent(item, delay),
    })
}

/// As [`parcel`], for what an ack sends: a timer is visible when it fires.
pub(crate) fn parcel_of_ack(
    operation: &'static str,
    item: &WorkItem,
) -> Result<Parcel, ProviderError> {
    let mut parcel = parcel(operation, item, None)?;
    if let WorkItem::TimerFired { fire_at_ms, .. } = item {
        let at = Timestamp::from_millis(i64::try_from(*fire_at_ms).unwrap_or(i64::MAX));
        parcel.visible = Start::At { at };
    }
    Ok(parcel)
}

impl WindlassProvider {
    pub(crate) async fn enqueue(
        &self,
        item: &WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_for_orchestrator";
        let mut parcel = parcel(OPERATION, item, delay)?;
        loop {
            let (tenant, send) = (self.tenant.clone(), parcel.clone());
            match self.engine.submit(Send { tenant, parcel: send }).await {
                Ok(_) => return Ok(()),
                Err(Error::Rejected(Rejection::TaskNotFound)) => return Ok(()),
                Err(Error::Rejected(Rejection::ParentNotFound | Rejection::ParentEnded)) => {
                    // A parent that is not there is told nothing, and deletes nothing.
                    match &mut parcel.absent {
                        Absent::Create(new) if new.parent.is_some() => new.parent = None,
                        _ => return Ok(()),
                    }
                }
                // It was deleted, and is about to be gone.
                Err(Error::Rejected(Rejection::Ended { .. }))
                    if matches!(parcel.absent, Absent::Create(_)) =>
                {
                    let task = TaskKey::new(&self.tenant, &parcel.task);
                    self.reap(OPERATION, &task).await?;
                }
                Err(Error::Rejected(Rejection::Ended { .. })) => return Ok(()),
                Err(error) => return Err(failed(OPERATION)(error)),
            }
        }
    }

    /// Forgets an ended task with all that belongs to it, page by page.
    pub(crate) async fn reap(
        &self,
        operation: &'static str,
        task: &TaskKey,
    ) -> Result<(), ProviderError> {
        loop {
            match self.engine.submit(Reap { task: task.clone() }).await {
                Ok(_) => {}
                Err(Error::Rejected(Rejection::TaskNotFound | Rejection::NotEnded)) => {
                    return Ok(());
                }
                // Its children are called off by the sweep.
                Err(Error::Rejected(Rejection::ChildrenOpen { .. })) => {
                    self.engine.sweep().await.map_err(failed(operation))?;
                }
                Err(error) => return Err(failed(operation)(error)),
            }
        }
    }
}
