use crate::record::{AnyRecord, UnknownFields};
use crate::row::{Index, RowKey, Value, Version};
use crate::world::World;

/// A record in the world.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The loaded version; none if the store has no such record.
    pub(super) loaded_version: Option<Version>,
    pub(super) unknown_fields: Option<Box<UnknownFields>>,
    pub(super) state: RecordState,
    /// A finished command read it.
    pub(super) read: bool,
    /// A finished command changed it.
    pub(super) changed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum RecordState {
    Absent,
    Present(AnyRecord),
    /// The record exists, but this version of core cannot decode it.
    Unreadable,
}

impl World {
    /// Replaces the record under a key, updates the index positions, and logs the undo.
    pub(super) fn replace(&mut self, key: RowKey, state: RecordState) {
        let entry = self.entries.get_mut(&key).expect("a record is read before it is written");
        let old = std::mem::replace(&mut entry.state, state.clone());
        let was_changed = std::mem::replace(&mut entry.changed, true);
        self.unindex(&key, &old);
        self.index(&key, &state);
        self.undo_log.undo.push((key, old, was_changed));
    }

    pub(super) fn index(&mut self, key: &RowKey, state: &RecordState) {
        for position in positions(key, state) {
            self.positions.insert(position, key.clone());
        }
    }

    pub(super) fn unindex(&mut self, key: &RowKey, state: &RecordState) {
        for position in positions(key, state) {
            self.positions.remove(&position);
        }
    }
}

fn positions(key: &RowKey, state: &RecordState) -> Vec<(Index, Vec<Value>)> {
    let RecordState::Present(record) = state else { return Vec::new() };
    let spec = key.table.spec();
    if spec.indexes.is_empty() {
        return Vec::new();
    }
    let columns = record.columns();
    let position = |index: &crate::row::IndexSpec| {
        Some((index.index, index.index.layout().position(&key.values, &columns)?))
    };
    spec.indexes.iter().filter_map(position).collect()
}
