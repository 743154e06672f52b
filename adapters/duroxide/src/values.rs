//! The key-value store of an orchestration, as properties of its task. Changes of the current
//! execution are separate from the values of earlier ones, until it ends.

use std::collections::{BTreeMap, HashMap};

use duroxide::providers::{KvEntry, ProviderError};
use duroxide::{Event, EventKind};
use windlass_core::command::WorkflowCommand;
use windlass_core::{TaskKey, WorkflowProperty, limits};

use crate::error::{failed, garbled};
use crate::provider::WindlassProvider;

/// A value, and the time of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    text: String,
    at_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// The value left by earlier executions.
    left: Option<Value>,
    /// The change of this execution; `Some(None)` if it cleared the key.
    put: Option<Option<Value>>,
}

/// All values of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values(BTreeMap<String, Entry>);

impl Entry {
    fn value(&self) -> Option<&Value> {
        match &self.put {
            Some(put) => put.as_ref(),
            None => self.left.as_ref(),
        }
    }
}

impl Value {
    /// The properties of a value: its text, JSON-encoded if it is not a valid property, and its
    /// time.
    fn notes(&self, of: Names, key: &str) -> Result<[(String, String); 2], serde_json::Error> {
        let is_plain = limits::PROPERTY_VALUE.check_prose(&self.text).is_ok();
        let text = match is_plain {
            true => (format!("{}{key}", of.plain), self.text.clone()),
            false => (format!("{}{key}", of.written), serde_json::to_string(&self.text)?),
        };
        Ok([text, (format!("{}{key}", of.time), self.at_ms.to_string())])
    }
}

/// The prefixes of property names.
#[derive(Clone, Copy)]
struct Names {
    plain: char,
    written: char,
    time: char,
}

const LEFT: Names = Names { plain: 's', written: 'S', time: 't' };
const PUT: Names = Names { plain: 'd', written: 'D', time: 'u' };
const TAKEN: char = 'x';

impl Values {
    fn read(notes: Vec<WorkflowProperty>) -> Result<Self, serde_json::Error> {
        let mut values = Self::default();
        let unset = || Value { text: String::new(), at_ms: 0 };
        for note in notes {
            let mut chars = note.name.chars();
            let Some(what) = chars.next() else { continue };
            let entry = values.0.entry(chars.as_str().to_owned()).or_default();
            let value = match what {
                's' | 'S' | 't' => entry.left.get_or_insert_with(unset),
                'd' | 'D' | 'u' => entry.put.get_or_insert_default().get_or_insert_with(unset),
                TAKEN => {
                    entry.put = Some(None);
                    continue;
                }
                _ => continue,
            };
            match what {
                's' | 'd' => value.text = note.text,
                'S' | 'D' => value.text = serde_json::from_str(&note.text)?,
                _ => value.at_ms = note.text.parse().unwrap_or(0),
            }
        }
        Ok(values)
    }

    fn apply(&mut self, event: &Event) {
        match &event.kind {
            // The runtime rejects a value that is too long, and reports that in the same ack.
            EventKind::KeyValueSet { value, .. }
                if value.len() > limits::PROPERTY_VALUE.max_bytes => {}
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => {
                let value = Value { text: value.clone(), at_ms: *last_updated_at_ms };
                self.0.entry(key.clone()).or_default().put = Some(Some(value));
            }
            EventKind::KeyValueCleared { key } => self.take_away(|known| known == key),
            EventKind::KeyValuesCleared => self.take_away(|_| true),
            _ => {}
        }
    }

    /// A key that no earlier execution left needs no tombstone.
    fn take_away(&mut self, is_it: impl Fn(&String) -> bool) {
        for (_, entry) in self.0.iter_mut().filter(|(key, _)| is_it(key)) {
            entry.put = entry.left.as_ref().map(|_| None);
        }
        self.0.retain(|_, entry| *entry != Entry::default());
    }

    /// Merges the changes when the execution ends.
    fn settle(&mut self) {
        for entry in self.0.values_mut() {
            if let Some(put) = entry.put.take() {
                entry.left = put;
            }
        }
    }

    fn notes(&self) -> Result<BTreeMap<String, String>, serde_json::Error> {
        let mut notes = BTreeMap::new();
        for (key, entry) in &self.0 {
            if let Some(left) = &entry.left {
                notes.extend(left.notes(LEFT, key)?);
            }
            match &entry.put {
                Some(Some(put)) => notes.extend(put.notes(PUT, key)?),
                Some(None) => drop(notes.insert(format!("{TAKEN}{key}"), String::new())),
                None => {}
            }
        }
        Ok(notes)
    }

    /// The values of earlier executions, for the replay of this one.
    pub(crate) fn snapshot(&self) -> HashMap<String, KvEntry> {
        let left = self.0.iter().filter_map(|(key, entry)| {
            let Value { text, at_ms } = entry.left.clone()?;
            Some((key.clone(), KvEntry { value: text, last_updated_at_ms: at_ms }))
        });
        left.collect()
    }

    pub(crate) fn all(&self) -> HashMap<String, String> {
        let there = self.0.iter().filter_map(|(key, entry)| Some((key, entry.value()?)));
        there.map(|(key, value)| (key.clone(), value.text.clone())).collect()
    }
}

impl WindlassProvider {
    pub(crate) async fn values(
        &self,
        operation: &'static str,
        key: &TaskKey,
    ) -> Result<Values, ProviderError> {
        let notes = self.engine.properties(key).await.map_err(failed(operation))?;
        Values::read(notes).map_err(garbled(operation))
    }

    /// The changes of an ack to the properties of its instance.
    pub(crate) async fn changed_values(
        &self,
        operation: &'static str,
        key: &TaskKey,
        events: &[Event],
        ends: bool,
    ) -> Result<Vec<WorkflowCommand>, ProviderError> {
        let before = self.values(operation, key).await?;
        let mut after = before.clone();
        events.iter().for_each(|event| after.apply(event));
        if ends {
            after.settle();
        }
        let old = before.notes().map_err(garbled(operation))?;
        let new = after.notes().map_err(garbled(operation))?;
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        let gone = gone.map(|name| WorkflowCommand::SetProperty { name: name.clone(), text: None });
        let put = new.iter().filter(|(name, text)| old.get(*name) != Some(*text));
        let put = put.map(|(name, text)| WorkflowCommand::SetProperty {
            name: name.clone(),
            text: Some(text.clone()),
        });
        Ok(gone.chain(put).collect())
    }
}
