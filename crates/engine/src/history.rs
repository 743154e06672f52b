use std::sync::Arc;

use windlass_core::{
    Execution, HistoryPayload, Lifecycle, Message, Payload, PayloadKey, StepCompletion,
    StepOutcome, Table, Task, TaskKey, Timestamp, TurnRecord, WorkflowInput, WorkflowProperty,
    limits,
};
use windlass_store::Query;

use crate::engine::Engine;
use crate::error::Error;
use crate::messages::ReceivedMessage;
use crate::stats::add;

/// History rows per read.
const ROWS_PER_READ: u32 = 256;
/// Payload bytes of one turn's inputs: they must fit into one history row. The first always does.
const MAX_INPUT_BYTES: usize = 4 * 1_024 * 1_024;

/// Message payloads per read. The sizes of step results are unknown before.
const PAYLOADS_PER_READ: usize = 32;

/// A pending input of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingInput {
    /// The sequence number by which a turn consumes it.
    pub seq: u64,
    pub input: WorkflowInput,
}

impl Engine {
    /// Local time. The store's clock is authoritative.
    pub fn now(&self) -> Timestamp {
        self.config().clock.now()
    }

    /// The pending inputs of a workflow, in order: at most as many as one turn takes.
    pub async fn pending_inputs(&self, workflow: &Task) -> Result<Vec<PendingInput>, Error> {
        if !workflow.has_mailbox {
            return Ok(Vec::new());
        }
        let most = usize::try_from(limits::TURN_MESSAGES.max).unwrap_or(usize::MAX);
        let (mut pending, mut after, mut bytes) = (Vec::new(), 0, 0);
        loop {
            let mut messages = self.readable_messages(&workflow.task_key(), after, most).await?;
            let is_last = messages.len() < most;
            after = messages.last().map_or(after, |last| last.seq);
            // Skips timers that have not fired.
            messages.retain(|message| message.due_at.is_none());
            messages.truncate(most - pending.len());
            for page in messages.chunks(PAYLOADS_PER_READ) {
                for one in self.with_payloads(page.to_vec()).await? {
                    one.check()?;
                    bytes += one.payload.as_ref().map_or(0, |payload| payload.bytes.len());
                    if bytes > MAX_INPUT_BYTES && !pending.is_empty() {
                        return Ok(pending);
                    }
                    pending.push(PendingInput::of(workflow, one));
                }
            }
            if is_last || pending.len() == most {
                return Ok(pending);
            }
        }
    }

    /// The history rows of a workflow's current execution, from row `from` on.
    pub async fn history(&self, workflow: &Task, from: u32) -> Result<Vec<TurnRecord>, Error> {
        let turns = workflow.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        complete(self.rows(from, turns, |turn| workflow.turn_key(turn)).await)
    }

    /// The history of a past execution.
    pub async fn past_history(&self, execution: &Execution) -> Result<Vec<TurnRecord>, Error> {
        complete(self.readable_history_of_execution(execution).await)
    }

    /// Like [`Engine::history`], for diagnosis: the readable prefix, and the error that ends it.
    pub async fn readable_history(&self, workflow: &Task) -> (Vec<TurnRecord>, Option<Error>) {
        let turns = workflow.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        self.rows(0, turns, |turn| workflow.turn_key(turn)).await
    }

    /// Like [`Engine::past_history`]: the readable prefix, and the error that ends it.
    pub async fn readable_history_of_execution(
        &self,
        execution: &Execution,
    ) -> (Vec<TurnRecord>, Option<Error>) {
        self.rows(0, execution.turns, |turn| execution.turn_key(turn)).await
    }

    async fn rows(
        &self,
        from: u32,
        until: u32,
        key: impl Fn(u32) -> PayloadKey,
    ) -> (Vec<TurnRecord>, Option<Error>) {
        let (mut rows, mut next) = (Vec::new(), from);
        while next < until {
            let end = until.min(next + ROWS_PER_READ);
            let keys: Vec<PayloadKey> = (next..end).map(&key).collect();
            let payloads = match self.store().payloads(&keys).await {
                Ok(payloads) => payloads,
                Err(error) => return (rows, Some(error.into())),
            };
            for (row, turn) in payloads.into_iter().zip(next..) {
                match decode_turn(row, turn) {
                    Ok(row) => rows.push(row),
                    Err(error) => return (rows, Some(error)),
                }
            }
            add(&self.counters().history_rows, u64::from(end - next));
            next = end;
        }
        (rows, None)
    }

    /// The published status and values of a workflow, by name; the status has an empty name.
    pub async fn properties(&self, workflow: &TaskKey) -> Result<Vec<WorkflowProperty>, Error> {
        let prefix = vec![(&workflow.tenant).into(), (&workflow.id).into()];
        let properties = self
            .list_all::<WorkflowProperty>(Query {
                prefix,
                ..Query::all(Table::WorkflowProperty, 0)
            })
            .await?;
        Ok(properties.iter().map(|property| (**property).clone()).collect())
    }

    /// The past executions of a workflow after `after`, in order.
    pub async fn executions(
        &self,
        workflow: &TaskKey,
        after: Option<u32>,
        limit: usize,
    ) -> Result<Vec<Execution>, Error> {
        let prefix = vec![(&workflow.tenant).into(), (&workflow.id).into()];
        let cursor = |number| Execution::key_of(&workflow.tenant, &workflow.id, number).values;
        let after = after.map(cursor);
        let query = Query { prefix, after, ..Query::all(Table::Execution, limit) };
        let executions = self.list::<Execution>(query).await?;
        Ok(executions.into_iter().map(|execution| (*execution).clone()).collect())
    }
}

fn complete((rows, error): (Vec<TurnRecord>, Option<Error>)) -> Result<Vec<TurnRecord>, Error> {
    error.map_or(Ok(rows), Err)
}

fn decode_turn(row: Option<Payload>, turn: u32) -> Result<TurnRecord, Error> {
    let row = row.ok_or(Error::HistoryMissing { turn })?;
    let unreadable = |error| Error::HistoryUnreadable { turn, error: Arc::new(error) };
    serde_json::from_slice(&row.bytes).map_err(unreadable)
}

impl PendingInput {
    fn of(workflow: &Task, received: ReceivedMessage) -> Self {
        Self { seq: received.message.seq, input: input(workflow, received) }
    }
}

/// A message as an input of workflow code.
fn input(workflow: &Task, received: ReceivedMessage) -> WorkflowInput {
    let ReceivedMessage { message, payload } = received;
    if let Some(StepCompletion { step, task }) = &message.completion {
        let outcome =
            task.as_ref().map_or(StepOutcome::Fired, |task| outcome(&task.lifecycle, payload));
        return WorkflowInput::StepCompletion { step: *step, outcome };
    }
    if message.source == Message::ENGINE && message.name == Message::CANCEL {
        let cancel_reason =
            workflow.workflow.as_ref().and_then(|workflow| workflow.cancel_reason.clone());
        return WorkflowInput::Cancel { reason: cancel_reason.unwrap_or_default() };
    }
    let (name, source) = (message.name.clone(), message.source.clone());
    WorkflowInput::Message { name, source, payload: payload.map(HistoryPayload) }
}

fn outcome(ended: &Lifecycle, result: Option<Payload>) -> StepOutcome {
    match ended {
        Lifecycle::Failed { class, reason, .. } => {
            StepOutcome::Failed { class: *class, reason: reason.clone() }
        }
        Lifecycle::Cancelled { reason, .. } => StepOutcome::Cancelled { reason: reason.clone() },
        Lifecycle::Expired { .. } => StepOutcome::Expired,
        _ => StepOutcome::Completed { result: result.map(HistoryPayload) },
    }
}
