//! The history of an instance: a row for each ack with events or an output.

use duroxide::Event;
use duroxide::providers::ProviderError;
use serde::{Deserialize, Serialize};
use windlass_core::{Execution, Payload, PayloadKey, Task};

use crate::error::failed;
use crate::execution_summary::ExecutionSummary;
use crate::names::execution;
use crate::provider::WindlassProvider;

/// How many rows are read at once.
const ROWS_AT_ONCE: usize = 256;

/// The history row of an ack.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) events: Vec<Event>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
}

impl Row {
    fn read(payload: &Payload) -> Result<Self, String> {
        serde_json::from_slice(&payload.bytes).map_err(|error| error.to_string())
    }
}

/// An execution of an instance: the current one, or an earlier one.
#[derive(Debug)]
pub(crate) enum Past<'t> {
    Present(&'t Task),
    Before(Box<Execution>),
}

impl Past<'_> {
    fn keys(&self) -> Vec<PayloadKey> {
        match self {
            Past::Present(task) => {
                let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
                (0..turns).map(|turn| task.turn_key(turn)).collect()
            }
            Past::Before(execution) => {
                (0..execution.turns).map(|turn| execution.turn_key(turn)).collect()
            }
        }
    }

    fn row_key(&self, turn: u32) -> PayloadKey {
        match self {
            Past::Present(task) => task.turn_key(turn),
            Past::Before(execution) => execution.turn_key(turn),
        }
    }
}

impl WindlassProvider {
    /// The events of an execution in order, or why they cannot be read.
    pub(crate) async fn events(
        &self,
        operation: &'static str,
        past: &Past<'_>,
    ) -> Result<Result<Vec<Event>, String>, ProviderError> {
        let keys = past.keys();
        let Past::Present(task) = past else { return self.rows(operation, &keys).await };
        let mut known =
            self.history_cache.take(task, u32::try_from(keys.len()).unwrap_or(u32::MAX));
        let missing = keys.get(known.rows as usize..).unwrap_or_default();
        match self.rows(operation, missing).await? {
            Err(error) => Ok(Err(error)),
            Ok(read) => {
                known.rows += u32::try_from(missing.len()).unwrap_or(0);
                known.events.extend(read);
                let events = known.events.clone();
                let summary = ExecutionSummary::of(task).unwrap_or_default();
                if !summary.has_ended() {
                    known.bytes = summary.bytes;
                    self.history_cache.put(&task.id, known);
                }
                Ok(Ok(events))
            }
        }
    }

    async fn rows(
        &self,
        operation: &'static str,
        keys: &[PayloadKey],
    ) -> Result<Result<Vec<Event>, String>, ProviderError> {
        let mut events = Vec::new();
        for keys in keys.chunks(ROWS_AT_ONCE) {
            let rows = self.engine.payloads(keys).await.map_err(failed(operation))?;
            for (row, key) in rows.iter().zip(keys) {
                let row = row.as_ref().ok_or_else(|| format!("{} is missing", key.slot.as_str()));
                match row.and_then(Row::read) {
                    Ok(row) => events.extend(row.events),
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        Ok(Ok(events))
    }

    /// The output stored in a row of an execution.
    pub(crate) async fn output(
        &self,
        operation: &'static str,
        past: &Past<'_>,
        turn: Option<u32>,
    ) -> Result<Option<String>, ProviderError> {
        let Some(turn) = turn else { return Ok(None) };
        let row = self.engine.payload(&past.row_key(turn)).await.map_err(failed(operation))?;
        Ok(row.and_then(|row| Row::read(&row).ok()?.output))
    }

    /// An execution of an instance by its number; by default the current one.
    pub(crate) async fn past<'t>(
        &self,
        operation: &'static str,
        task: &'t Task,
        execution_id: Option<u64>,
    ) -> Result<Option<Past<'t>>, ProviderError> {
        let number = match execution_id {
            Some(0) => return Ok(None),
            Some(execution_id) => execution(execution_id),
            None => task.execution,
        };
        if number == task.execution {
            return Ok(Some(Past::Present(task)));
        }
        let key = task.task_key();
        let found = self.engine.executions(&key, number.checked_sub(1), 1).await;
        let found = found.map_err(failed(operation))?.into_iter().next();
        let found = found.filter(|execution| execution.number == number);
        Ok(found.map(|execution| Past::Before(Box::new(execution))))
    }

    pub(crate) async fn read_events(
        &self,
        operation: &'static str,
        instance: &str,
        execution_id: Option<u64>,
    ) -> Result<Vec<Event>, ProviderError> {
        let Some(task) = self.instance(operation, instance).await? else { return Ok(Vec::new()) };
        let Some(past) = self.past(operation, &task, execution_id).await? else {
            return Ok(Vec::new());
        };
        let events = self.events(operation, &past).await?;
        events.map_err(|error| ProviderError::permanent(operation, error))
    }
}
