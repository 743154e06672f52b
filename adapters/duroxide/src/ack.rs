//! An ack: commits the result of a turn in one transaction.

use std::collections::HashSet;
use std::sync::Arc;

use duroxide::providers::{
    ExecutionMetadata, ProviderError, ScheduledActivityIdentifier, WorkItem,
};
use duroxide::{Event, EventKind};
use windlass_core::command::{
    CommitTurn, IfAbsent, NewTask, OnReject, RuntimeMetadata, TurnEnd, WorkflowCommand,
};
use windlass_core::{Payload, Rejection, Task, TaskKey, WorkflowProperty, WorkflowState, limits};
use windlass_engine::{Engine, Error};

use crate::activities::new_activity;
use crate::error::{StoreRetry, failed, garbled};
use crate::execution_summary::ExecutionSummary;
use crate::history::Row;
use crate::names::{activity_id, execution, instance_of, step};
use crate::provider::WindlassProvider;
use crate::queue::message_of_ack;
use crate::token::{Caller, Token};

const ACK: &str = "ack_orchestration_item";

/// The arguments of an ack.
#[derive(Debug)]
pub(crate) struct Ack {
    pub(crate) execution_id: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) worker_items: Vec<WorkItem>,
    pub(crate) orchestrator_items: Vec<WorkItem>,
    pub(crate) metadata: ExecutionMetadata,
    pub(crate) cancelled: Vec<ScheduledActivityIdentifier>,
}

impl Ack {
    /// The number of the first step, and the one after the last. Event ids must rise, so that no
    /// event overwrites another.
    fn steps(&self, state: &WorkflowState) -> Result<(Option<u64>, u64), ProviderError> {
        let ids: Vec<u64> = self.events.iter().map(Event::event_id).collect();
        if ids.contains(&0) {
            return Err(ProviderError::permanent(ACK, "an event has no id"));
        }
        if !ids.is_sorted_by(|one, next| one < next) {
            return Err(ProviderError::permanent(ACK, "the ids of events do not rise"));
        }
        let first = ids.first().map(|id| step(self.execution_id, *id));
        let last = ids.last().map(|id| step(self.execution_id, *id) + 1);
        Ok((first, last.unwrap_or(state.next_step).max(state.next_step)))
    }

    fn row(&self) -> Result<Option<Payload>, ProviderError> {
        if self.events.is_empty() && self.metadata.output.is_none() {
            return Ok(None);
        }
        let row = Row { events: self.events.clone(), output: self.metadata.output.clone() };
        Ok(Some(Payload::json(serde_json::to_string(&row).map_err(garbled(ACK))?)))
    }

    /// The activities to schedule and to cancel. One in both lists is neither.
    fn activities(&self, instance: &str) -> Result<Vec<WorkflowCommand>, ProviderError> {
        let name =
            |c: &ScheduledActivityIdentifier| (c.instance.clone(), c.execution_id, c.activity_id);
        let cancelled: HashSet<_> = self.cancelled.iter().map(name).collect();
        let mut commands = Vec::new();
        for item in &self.worker_items {
            let WorkItem::ActivityExecute { instance: of, execution_id, id, .. } = item else {
                return Err(ProviderError::permanent(ACK, "not an item for a worker"));
            };
            if !cancelled.contains(&(of.clone(), *execution_id, *id)) {
                let (step, task) = (step(*execution_id, *id), new_activity(ACK, item)?);
                commands.push(WorkflowCommand::Activity { step, task, eager: false });
            }
        }
        let own = self.cancelled.iter().filter(|cancelled| cancelled.instance == instance);
        commands.extend(own.map(|cancelled| WorkflowCommand::CancelTask {
            step: step(cancelled.execution_id, cancelled.activity_id),
            id: activity_id(&cancelled.instance, cancelled.execution_id, cancelled.activity_id),
        }));
        Ok(commands)
    }

    /// The last custom status, if any. The runtime rejects one that is too long, and reports that
    /// in the same ack.
    fn custom_status(&self) -> Option<&Option<String>> {
        let last = self.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::CustomStatusUpdated { status } => Some(status),
            _ => None,
        });
        let fits = |text: &String| text.len() <= limits::STATUS.max_bytes;
        last.filter(|status| status.as_ref().is_none_or(fits))
    }

    /// The failure to report to the parent that waits for this instance, if the ack does not report
    /// it. The runtime omits it when it fails an instance because its ack was rejected.
    fn untold_failure(&self, caller: &Caller) -> Option<WorkItem> {
        let details = self.events.iter().find_map(|event| match &event.kind {
            EventKind::OrchestrationFailed { details } => Some(details.clone()),
            _ => None,
        })?;
        let tells = |item: &WorkItem| {
            matches!(item, WorkItem::SubOrchFailed { .. } | WorkItem::SubOrchCompleted { .. })
        };
        let Caller { instance, execution, event } = caller.clone();
        (!self.orchestrator_items.iter().any(tells)).then_some(WorkItem::SubOrchFailed {
            parent_instance: instance,
            parent_execution_id: execution,
            parent_id: event,
            details,
        })
    }

    fn ends(&self) -> bool {
        let status = self.metadata.status.as_deref();
        matches!(status, Some("Completed" | "Failed" | "ContinuedAsNew"))
    }

    fn changes_values(&self, summary: &ExecutionSummary) -> bool {
        let is_change = |event: &Event| {
            matches!(
                event.kind,
                EventKind::KeyValueSet { .. }
                    | EventKind::KeyValueCleared { .. }
                    | EventKind::KeyValuesCleared
            )
        };
        self.events.iter().any(is_change) || self.ends() && summary.has_values
    }
}

impl WindlassProvider {
    pub(crate) async fn ack(&self, token: &str, ack: Ack) -> Result<(), ProviderError> {
        let token = Token::read(ACK, token)?;
        let fence = token.fence(&self.tenant);
        let known = self.looked_up(&fence.task).await?;
        let gone = || ProviderError::permanent(ACK, "the instance does not exist");
        let known = known.ok_or_else(gone)?;
        let (Some(instance), Some(state)) = (instance_of(&known.id), &known.workflow) else {
            return Err(gone());
        };
        let is_next = execution(ack.execution_id) > known.execution;
        let turn = if is_next { 0 } else { state.turns };
        let (first_step, next_step) = ack.steps(state)?;
        let row = ack.row()?;
        let summary = self.summary_after(&known, &ack, row.as_ref(), turn, is_next);
        let mut commands = ack.activities(instance)?;
        let untold = token.caller.as_ref().and_then(|caller| ack.untold_failure(caller));
        for item in ack.orchestrator_items.iter().chain(&untold) {
            let message = message_of_ack(ACK, item)?;
            commands.push(WorkflowCommand::Send { message, on_reject: OnReject::RejectTurn });
        }
        if let Some(status) = ack.custom_status() {
            commands.push(WorkflowCommand::SetProperty {
                name: WorkflowProperty::STATUS.to_owned(),
                text: status.clone(),
            });
        }
        if ack.changes_values(&summary) {
            let key = known.task_key();
            commands.extend(self.changed_values(ACK, &key, &ack.events, ack.ends()).await?);
        }
        let version = ack.metadata.pinned_duroxide_version.as_ref().map(ToString::to_string);
        let metadata = RuntimeMetadata {
            execution: execution(ack.execution_id),
            first_step,
            text: serde_json::to_string(&summary).map_err(garbled(ACK))?,
            version,
            turn_id: Engine::new_id().to_string(),
        };
        let mut commit = CommitTurn {
            fence,
            turn,
            row,
            consumed: token.messages,
            commands,
            next_step,
            end: TurnEnd::Yield,
            sticky_ms: None,
            eager: None,
            metadata: Some(Box::new(metadata)),
        };
        let mut retry = StoreRetry::default();
        loop {
            // Identical on every retry, so that an ack with a lost response is recognized.
            let answer = self.engine.submit(commit.clone()).await;
            if retry.wait(&answer).await {
                continue;
            }
            match answer {
                Err(Error::Rejected(
                    Rejection::TaskNotFound
                    | Rejection::AlreadyTerminal { .. }
                    | Rejection::ParentNotFound
                    | Rejection::ParentTerminal,
                )) if self.drop_orphans(&mut commit.commands).await? => {}
                answer => return answer.map(drop).map_err(failed(ACK)),
            }
        }
    }

    fn summary_after(
        &self,
        known: &Task,
        ack: &Ack,
        row: Option<&Payload>,
        turn: u32,
        is_next: bool,
    ) -> ExecutionSummary {
        let before = ExecutionSummary::of(known).unwrap_or_default();
        let mut summary = if is_next { before.next() } else { before };
        summary.apply_ack(&ack.metadata, &ack.events, self.now_ms());
        summary.bytes += row.map_or(0, |row| row.bytes.len() as u64);
        if ack.metadata.status.is_some() || ack.metadata.output.is_some() {
            summary.output_row = ack.metadata.output.as_ref().map(|_| turn);
        }
        summary.status_version += u64::from(ack.custom_status().is_some());
        summary
    }

    async fn looked_up(&self, task: &TaskKey) -> Result<Option<Arc<Task>>, ProviderError> {
        let mut retry = StoreRetry::default();
        loop {
            let answer = self.engine.task(task).await;
            if !retry.wait(&answer).await {
                return answer.map_err(failed(ACK));
            }
        }
    }

    /// Removes messages to instances that do not exist and are not created by them, and parents
    /// that do not exist: a turn is not rejected because of them. Returns whether any were found;
    /// if not, the turn itself is rejected.
    async fn drop_orphans(
        &self,
        commands: &mut Vec<WorkflowCommand>,
    ) -> Result<bool, ProviderError> {
        let (mut remaining, mut changed) = (Vec::with_capacity(commands.len()), false);
        for mut command in commands.drain(..) {
            let mut reaches = true;
            if let WorkflowCommand::Send { message, .. } = &mut command {
                let key = TaskKey::new(&self.tenant, &message.task);
                let target = self.looked_up(&key).await?;
                let has_ended = target.as_ref().map(|task| task.lifecycle.ended_at().is_some());
                match &mut message.if_absent {
                    // The instance was deleted: its remains are removed to make room for a new one.
                    IfAbsent::Start(new) => {
                        if has_ended == Some(true) {
                            self.delete_task(ACK, &key).await?;
                            changed = true;
                        }
                        changed |= self.drop_lost_parent(new).await?;
                    }
                    IfAbsent::Reject => reaches = has_ended == Some(false),
                    _ => reaches = has_ended != Some(true),
                }
            }
            changed |= !reaches;
            remaining.extend(reaches.then_some(command));
        }
        *commands = remaining;
        Ok(changed)
    }

    async fn drop_lost_parent(&self, new: &mut NewTask) -> Result<bool, ProviderError> {
        let Some(parent) = &new.parent else { return Ok(false) };
        let key = TaskKey::new(&self.tenant, parent);
        let there = self.looked_up(&key).await?;
        let is_lost = there.is_none_or(|parent| parent.lifecycle.ended_at().is_some());
        if is_lost {
            new.parent = None;
        }
        Ok(is_lost)
    }
}
