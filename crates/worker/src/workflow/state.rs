use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{HistoryPayload, Payload};

use super::planned_command::PlannedCommand;

/// The most values of a workflow.
pub const MAX_VALUES: usize = 150;
/// The largest value, in bytes.
pub const VALUE_BYTES: usize = 64 * 1_024;
/// The longest status, in bytes.
pub const STATUS_BYTES: usize = 256 * 1_024;
/// The longest name of a value, in bytes.
pub const VALUE_KEY_BYTES: usize = 255;

/// The status and values of a workflow, readable from outside. Written at the end of a turn.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The status, if it was set since the last row.
    status: Option<String>,
    values: BTreeMap<String, Payload>,
    changed: BTreeSet<String>,
    /// The keys of values that were written.
    written: BTreeSet<String>,
}

impl State {
    pub(super) fn of(values: BTreeMap<String, Payload>) -> Self {
        let written = values.keys().cloned().collect();
        Self { values, written, ..Self::default() }
    }

    pub(super) fn set_status(&mut self, status: String) -> Result<(), String> {
        if status.len() > STATUS_BYTES {
            return Err(format!("it has {} bytes, {STATUS_BYTES} at most", status.len()));
        }
        if status.contains('\0') {
            return Err("it contains a NUL".to_owned());
        }
        self.status = Some(status);
        Ok(())
    }

    pub(super) fn set(&mut self, key: &str, value: Payload) -> Result<(), String> {
        let bytes = value.bytes.len();
        if key.is_empty() || key.len() > VALUE_KEY_BYTES || key.chars().any(char::is_control) {
            return Err(format!(
                "its name must have 1 to {VALUE_KEY_BYTES} bytes and no control characters"
            ));
        }
        if bytes > VALUE_BYTES {
            return Err(format!("it has {bytes} bytes, {VALUE_BYTES} at most"));
        }
        if !self.values.contains_key(key) && self.values.len() >= MAX_VALUES {
            return Err(format!("{MAX_VALUES} values are stored at most"));
        }
        self.values.insert(key.to_owned(), value);
        self.changed.insert(key.to_owned());
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Option<Payload> {
        self.values.get(key).cloned()
    }

    pub(super) fn all(&self) -> BTreeMap<String, HistoryPayload> {
        let values = self.values.iter();
        values.map(|(key, value)| (key.clone(), HistoryPayload(value.clone()))).collect()
    }

    pub(super) fn remove(&mut self, key: &str) {
        if self.values.remove(key).is_some() {
            self.changed.insert(key.to_owned());
        }
    }

    /// The changes to write since the last call.
    pub(super) fn commands(&mut self) -> Vec<PlannedCommand> {
        let changed = std::mem::take(&mut self.changed);
        let mut values = Vec::new();
        for key in changed {
            let value = self.values.get(&key).cloned();
            let was_written = match value {
                Some(_) => !self.written.insert(key.clone()),
                None => self.written.remove(&key),
            };
            // A value that was set and removed since then was never written.
            if value.is_some() || was_written {
                values.push(PlannedCommand::Value { key, value });
            }
        }
        self.status.take().map(PlannedCommand::Status).into_iter().chain(values).collect()
    }
}
