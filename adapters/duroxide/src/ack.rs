//! An ack: all that came of a turn, in one commit.

use std::collections::HashSet;

use duroxide::providers::{
    ExecutionMetadata, ProviderError, ScheduledActivityIdentifier, WorkItem,
};
use duroxide::{Event, EventKind};
use windlass_core::command::{CommitTurn, Deed, Foreign, Then};
use windlass_core::{Note, Payload, Task, WorkflowState};
use windlass_engine::Engine;

use crate::about::About;
use crate::activities::new_activity;
use crate::error::{failed, garbled};
use crate::history::Row;
use crate::names::{activity_id, generation, instance_of, step};
use crate::provider::WindlassProvider;
use crate::queue::parcel_of_ack;
use crate::token::Token;

const ACK: &str = "ack_orchestration_item";

/// All that an ack says.
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
    /// The numbers of the first step and of the one after the last. Events rise, so that none is
    /// written over another.
    fn steps(&self, state: &WorkflowState) -> Result<(Option<u64>, u64), ProviderError> {
        let ids: Vec<u64> = self.events.iter().map(Event::event_id).collect();
        if ids.contains(&0) {
            return Err(ProviderError::permanent(ACK, "the runtime gives every event its id"));
        }
        if !ids.is_sorted_by(|one, next| one < next) {
            return Err(ProviderError::permanent(ACK, "the ids of events rise"));
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

    /// The activities to be scheduled and those to be called off. One that is both is neither.
    fn activities(&self, instance: &str) -> Result<Vec<Deed>, ProviderError> {
        let name =
            |c: &ScheduledActivityIdentifier| (c.instance.clone(), c.execution_id, c.activity_id);
        let cancelled: HashSet<_> = self.cancelled.iter().map(name).collect();
        let mut deeds = Vec::new();
        for item in &self.worker_items {
            let WorkItem::ActivityExecute { instance: of, execution_id, id, .. } = item else {
                return Err(ProviderError::permanent(ACK, "no worker takes such an item"));
            };
            if !cancelled.contains(&(of.clone(), *execution_id, *id)) {
                let (step, task) = (step(*execution_id, *id), new_activity(ACK, item)?);
                deeds.push(Deed::Activity { step, task, eager: false });
            }
        }
        let own = self.cancelled.iter().filter(|cancelled| cancelled.instance == instance);
        deeds.extend(own.map(|cancelled| Deed::CancelTask {
            step: step(cancelled.execution_id, cancelled.activity_id),
            id: activity_id(&cancelled.instance, cancelled.execution_id, cancelled.activity_id),
        }));
        Ok(deeds)
    }

    /// The last that is said of the status, if anything is.
    fn custom_status(&self) -> Option<&Option<String>> {
        self.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::CustomStatusUpdated { status } => Some(status),
            _ => None,
        })
    }

    fn ends(&self) -> bool {
        let status = self.metadata.status.as_deref();
        matches!(status, Some("Completed" | "Failed" | "ContinuedAsNew"))
    }

    fn changes_values(&self, about: &About) -> bool {
        let is_change = |event: &Event| {
            matches!(
                event.kind,
                EventKind::KeyValueSet { .. }
                    | EventKind::KeyValueCleared { .. }
                    | EventKind::KeyValuesCleared
            )
        };
        self.events.iter().any(is_change) || self.ends() && about.has_values
    }
}

impl WindlassProvider {
    pub(crate) async fn ack(&self, token: &str, ack: Ack) -> Result<(), ProviderError> {
        let token = Token::read(ACK, token)?;
        let fence = token.fence(&self.tenant);
        let known = self.engine.task(&fence.task).await.map_err(failed(ACK))?;
        let gone = || ProviderError::permanent(ACK, "the instance is gone");
        let known = known.ok_or_else(gone)?;
        let (Some(instance), Some(state)) = (instance_of(&known.id), &known.workflow) else {
            return Err(gone());
        };
        let is_next = generation(ack.execution_id) > known.generation;
        let turn = if is_next { 0 } else { state.turns };
        let (first_step, next_step) = ack.steps(state)?;
        let row = ack.row()?;
        let about = self.about_after(&known, &ack, row.as_ref(), turn, is_next);
        let mut deeds = ack.activities(instance)?;
        for item in &ack.orchestrator_items {
            deeds.push(Deed::Send(parcel_of_ack(ACK, item)?));
        }
        self.drop_orphans(&mut deeds, instance).await?;
        if let Some(status) = ack.custom_status() {
            deeds.push(Deed::Note { name: Note::STATUS.to_owned(), text: status.clone() });
        }
        if ack.changes_values(&about) {
            let key = known.task_key();
            deeds.extend(self.changed_values(ACK, &key, &ack.events, ack.ends()).await?);
        }
        let version = ack.metadata.pinned_duroxide_version.as_ref().map(ToString::to_string);
        let foreign = Foreign {
            execution: generation(ack.execution_id),
            first_step,
            about: serde_json::to_string(&about).map_err(garbled(ACK))?,
            version,
            nonce: Engine::new_id().to_string(),
        };
        let commit = CommitTurn {
            fence,
            turn,
            row,
            taken: token.messages,
            deeds,
            next_step,
            then: Then::Rest,
            sticky_ms: None,
            eager: None,
            foreign: Some(Box::new(foreign)),
        };
        self.engine.submit(commit).await.map(drop).map_err(failed(ACK))
    }

    fn about_after(
        &self,
        known: &Task,
        ack: &Ack,
        row: Option<&Payload>,
        turn: u32,
        is_next: bool,
    ) -> About {
        let before = About::of(known).unwrap_or_default();
        let mut about = if is_next { before.next() } else { before };
        about.learn(&ack.metadata, &ack.events, self.now_ms());
        about.bytes += row.map_or(0, |row| row.bytes.len() as u64);
        if ack.metadata.status.is_some() || ack.metadata.output.is_some() {
            about.output_row = ack.metadata.output.as_ref().map(|_| turn);
        }
        about.status_version += u64::from(ack.custom_status().is_some());
        about
    }

    /// Leaves out what is sent to instances that are not there and are not made for it. A turn is
    /// not refused because of those.
    async fn drop_orphans(
        &self,
        deeds: &mut Vec<Deed>,
        instance: &str,
    ) -> Result<(), ProviderError> {
        let own = crate::names::instance_id(instance);
        let mut known = HashSet::from([own.to_string()]);
        for deed in deeds.iter() {
            let Deed::Send(parcel) = deed else { continue };
            let id = parcel.task.to_string();
            if parcel.create.is_some() || known.contains(&id) {
                known.insert(id);
                continue;
            }
            let key = windlass_core::TaskKey::new(&self.tenant, &parcel.task);
            let task = self.engine.task(&key).await.map_err(failed(ACK))?;
            if task.is_some_and(|task| task.lifecycle.ended_at().is_none()) {
                known.insert(id);
            }
        }
        deeds.retain(|deed| match deed {
            Deed::Send(parcel) => known.contains(parcel.task.as_str()),
            _ => true,
        });
        Ok(())
    }
}
