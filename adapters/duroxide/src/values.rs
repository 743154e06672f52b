//! What an orchestration keeps under keys, as notes of its task. What the present execution did to
//! a key is apart from what those before it left there, until it ends.

use std::collections::{BTreeMap, HashMap};

use duroxide::providers::{KvEntry, ProviderError};
use duroxide::{Event, EventKind};
use serde::{Deserialize, Serialize};
use windlass_core::command::Deed;
use windlass_core::{Note, TaskKey, limits};

use crate::error::{failed, garbled};
use crate::provider::WindlassProvider;

/// The note with the times of the others.
const TIMES: &str = "t";

/// What is under a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// What earlier executions left.
    left: Option<String>,
    /// What this one put there; nothing if it took it away.
    put: Option<Option<String>>,
}

/// When what is under each key was put there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Times {
    left: BTreeMap<String, u64>,
    put: BTreeMap<String, u64>,
}

/// All values of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    entries: BTreeMap<String, Entry>,
    times: Times,
}

impl Entry {
    fn value(&self) -> Option<&String> {
        match &self.put {
            Some(put) => put.as_ref(),
            None => self.left.as_ref(),
        }
    }
}

impl Values {
    fn read(notes: Vec<Note>) -> Result<Self, serde_json::Error> {
        let mut values = Self::default();
        for note in notes {
            if note.name == TIMES {
                values.times = serde_json::from_str(&note.text)?;
                continue;
            }
            let Some((what, key)) = note.name.split_at_checked(1) else { continue };
            let entry = values.entries.entry(key.to_owned()).or_default();
            match what {
                "s" => entry.left = Some(note.text),
                "d" => entry.put = Some(Some(note.text)),
                "x" => entry.put = Some(None),
                _ => {}
            }
        }
        Ok(values)
    }

    fn apply(&mut self, event: &Event) {
        match &event.kind {
            // One that is too long was refused by the runtime, which says so in the same ack.
            EventKind::KeyValueSet { value, .. } if limits::NOTE.check_prose(value).is_err() => {}
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => {
                let entry = self.entries.entry(key.clone()).or_default();
                entry.put = Some(Some(value.clone()));
                self.times.put.insert(key.clone(), *last_updated_at_ms);
            }
            EventKind::KeyValueCleared { key } => {
                self.entries.entry(key.clone()).or_default().put = Some(None);
                self.times.put.remove(key);
            }
            EventKind::KeyValuesCleared => {
                self.entries.values_mut().for_each(|entry| entry.put = Some(None));
                self.times.put.clear();
            }
            _ => {}
        }
    }

    /// The execution ends: what it did stays.
    fn settle(&mut self) {
        for (key, entry) in &mut self.entries {
            let Some(put) = entry.put.take() else { continue };
            match self.times.put.remove(key) {
                Some(at) if put.is_some() => self.times.left.insert(key.clone(), at),
                _ => self.times.left.remove(key),
            };
            entry.left = put;
        }
    }

    fn notes(&self) -> Result<BTreeMap<String, String>, serde_json::Error> {
        let mut notes = BTreeMap::new();
        for (key, entry) in &self.entries {
            if let Some(left) = &entry.left {
                notes.insert(format!("s{key}"), left.clone());
            }
            match &entry.put {
                Some(Some(put)) => notes.insert(format!("d{key}"), put.clone()),
                Some(None) => notes.insert(format!("x{key}"), String::new()),
                None => None,
            };
        }
        if self.times != Times::default() {
            notes.insert(TIMES.to_owned(), serde_json::to_string(&self.times)?);
        }
        Ok(notes)
    }

    /// What earlier executions left, for the replay of this one.
    pub(crate) fn snapshot(&self) -> HashMap<String, KvEntry> {
        let left = self.entries.iter().filter_map(|(key, entry)| {
            let last_updated_at_ms = self.times.left.get(key).copied().unwrap_or(0);
            let value = entry.left.clone()?;
            Some((key.clone(), KvEntry { value, last_updated_at_ms }))
        });
        left.collect()
    }

    pub(crate) fn all(&self) -> HashMap<String, String> {
        let there = self.entries.iter().filter_map(|(key, e)| Some((key, e.value()?)));
        there.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl WindlassProvider {
    pub(crate) async fn values(
        &self,
        operation: &'static str,
        key: &TaskKey,
    ) -> Result<Values, ProviderError> {
        let notes = self.engine.notes(key).await.map_err(failed(operation))?;
        Values::read(notes).map_err(garbled(operation))
    }

    /// What an ack does to the notes of its instance.
    pub(crate) async fn changed_values(
        &self,
        operation: &'static str,
        key: &TaskKey,
        events: &[Event],
        ends: bool,
    ) -> Result<Vec<Deed>, ProviderError> {
        let before = self.values(operation, key).await?;
        let mut after = before.clone();
        events.iter().for_each(|event| after.apply(event));
        if ends {
            after.settle();
        }
        let old = before.notes().map_err(garbled(operation))?;
        let new = after.notes().map_err(garbled(operation))?;
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        let gone = gone.map(|name| Deed::Note { name: name.clone(), text: None });
        let put = new.iter().filter(|(name, text)| old.get(*name) != Some(*text));
        let put =
            put.map(|(name, text)| Deed::Note { name: name.clone(), text: Some(text.clone()) });
        Ok(gone.chain(put).collect())
    }
}
