use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use serde::{Deserialize, Serialize};
use windlass_core::{HistoryPayload, WorkflowInput};

/// A message that the code of a workflow has not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadSignal {
    pub name: String,
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<HistoryPayload>,
}

impl From<UnreadSignal> for WorkflowInput {
    fn from(UnreadSignal { name, source, payload }: UnreadSignal) -> Self {
        WorkflowInput::Message { name, source, payload }
    }
}

/// Unread messages and waits. The first message of a name goes to the first wait for that name.
#[derive(Debug, Default)]
pub(super) struct Mail {
    delivered: u64,
    names: BTreeMap<String, Named>,
}

#[derive(Debug, Default)]
struct Named {
    /// Each with its position in the order of arrival.
    unread: VecDeque<(u64, UnreadSignal)>,
    waits: VecDeque<(u64, Option<Waker>)>,
}

impl Named {
    /// The wakers of waits that have a message to read.
    fn called(&self) -> Vec<Waker> {
        let called = self.waits.iter().take(self.unread.len());
        called.filter_map(|(_, waker)| waker.clone()).collect()
    }
}

impl Mail {
    pub(super) fn deliver(&mut self, message: UnreadSignal) -> Vec<Waker> {
        self.delivered += 1;
        let named = self.names.entry(message.name.clone()).or_default();
        named.unread.push_back((self.delivered, message));
        named.called()
    }

    pub(super) fn wait(&mut self, name: &str, step: u64) {
        self.names.entry(name.to_owned()).or_default().waits.push_back((step, None));
    }

    /// Takes the message for this wait and ends the wait. Without one, registers the waker.
    pub(super) fn take(&mut self, name: &str, step: u64, waker: &Waker) -> Option<UnreadSignal> {
        let named = self.names.get_mut(name)?;
        let place = named.waits.iter().position(|(waiting, _)| *waiting == step)?;
        let Some((_, message)) = named.unread.remove(place) else {
            named.waits[place].1 = Some(waker.clone());
            return None;
        };
        named.waits.remove(place);
        self.forget_empty(name);
        Some(message)
    }

    /// Ends a wait that has read nothing; its message goes to the next wait.
    pub(super) fn leave(&mut self, name: &str, step: u64) -> Vec<Waker> {
        let Some(named) = self.names.get_mut(name) else { return Vec::new() };
        named.waits.retain(|(waiting, _)| *waiting != step);
        let called = named.called();
        self.forget_empty(name);
        called
    }

    /// Removes an unused name: names may be unique to each message.
    fn forget_empty(&mut self, name: &str) {
        if self.names.get(name).is_some_and(|n| n.unread.is_empty() && n.waits.is_empty()) {
            self.names.remove(name);
        }
    }

    pub(super) fn unread(&self) -> usize {
        self.names.values().map(|named| named.unread.len()).sum()
    }

    /// All unread messages, in order of arrival.
    pub(super) fn carried(&self) -> Vec<UnreadSignal> {
        let unread = self.names.values().flat_map(|named| named.unread.iter().cloned());
        let ordered: BTreeMap<u64, UnreadSignal> = unread.collect();
        ordered.into_values().collect()
    }

    /// The names that are awaited, with the wakers of the waits.
    pub(super) fn waits(&self) -> impl Iterator<Item = (&str, Option<&Waker>)> {
        self.names.iter().flat_map(|(name, named)| {
            named.waits.iter().map(move |(_, waker)| (name.as_str(), waker.as_ref()))
        })
    }
}
