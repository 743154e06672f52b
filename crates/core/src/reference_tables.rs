use std::collections::BTreeMap;

use crate::command::{Command, Decided, Outcome, decide};
use crate::event::{Event, LogEvent};
use crate::payload::{Payload, PayloadKey};
use crate::rejection::Rejection;
use crate::row::{Index, Row, RowKey, Scan, StoredRow, TableSpec, Value, Version};
use crate::time::Timestamp;
use crate::world::{ChangeSet, Hints, LoadRequest, Loaded, LogEntry, PageRow, World};

/// The reference implementation of a store, in ordered maps: the core of the in-memory store, and
/// the oracle for the other stores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReferenceTables {
    rows: BTreeMap<RowKey, Row>,
    positions: BTreeMap<(Index, Vec<Value>), RowKey>,
    payloads: BTreeMap<PayloadKey, Payload>,
    events: BTreeMap<u64, Event>,
    last_seq: u64,
}

/// A change set conflicts with the stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionConflict;

impl ReferenceTables {
    pub fn load(&self, wanted: &LoadRequest) -> Loaded {
        let stored = |key: &RowKey| self.rows.get(key).map(stored);
        let entry = |(&seq, event): (&u64, &Event)| LogEntry { seq, at: event.at };
        Loaded {
            rows: wanted.rows.iter().filter_map(stored).collect(),
            pages: wanted.scans.iter().map(|scan| self.page(scan)).collect(),
            log_head: self.events.iter().take(wanted.log_head).map(entry).collect(),
            as_of: Timestamp::default(),
        }
    }

    fn page(&self, scan: &Scan) -> Vec<PageRow> {
        let range = &scan.range;
        let start = scan.after.clone().unwrap_or_else(|| range.prefix.clone());
        let mut page = Vec::new();
        for ((index, position), key) in self.positions.range((range.index, start)..) {
            if *index != range.index || !range.contains(position) || page.len() == scan.limit {
                break;
            }
            if scan.after.as_ref() != Some(position) {
                let StoredRow { version, schema, body, .. } = stored(&self.rows[key]);
                page.push(PageRow { position: position.clone(), version, schema, body });
            }
        }
        page
    }

    /// Commits a change set, if all versions that it read or replaces are unchanged.
    pub fn commit(&mut self, changes: &ChangeSet) -> Result<(), VersionConflict> {
        let same = |key: &RowKey, version: Version| {
            self.rows.get(key).is_some_and(|row| row.version == version)
        };
        let holds = changes.reads.iter().all(|(key, version)| same(key, *version))
            && changes.updates.iter().all(|update| same(&update.row.key, update.expected))
            && changes.deletes.iter().all(|(key, version)| same(key, *version))
            && changes.inserts.iter().all(|row| !self.rows.contains_key(&row.key));
        if !holds {
            return Err(VersionConflict);
        }
        for row in changes.inserts.iter().chain(changes.updates.iter().map(|u| &u.row)) {
            self.insert(row.clone());
        }
        for (key, _) in &changes.deletes {
            self.delete(key);
        }
        for (key, payload) in &changes.payloads {
            self.payloads.insert(key.clone(), payload.clone());
        }
        for key in &changes.dropped_payloads {
            self.payloads.remove(key);
        }
        for event in &changes.events {
            self.last_seq += 1;
            self.events.insert(self.last_seq, event.clone());
        }
        if let Some(through) = changes.trim_through {
            self.events = self.events.split_off(&(through + 1));
        }
        Ok(())
    }

    fn insert(&mut self, row: Row) {
        self.delete(&row.key);
        let spec = row.key.table.spec();
        for position in positions(spec, &row) {
            self.positions.insert(position, row.key.clone());
        }
        self.rows.insert(row.key.clone(), row);
    }

    fn delete(&mut self, key: &RowKey) {
        if let Some(row) = self.rows.remove(key) {
            for position in positions(key.table.spec(), &row) {
                self.positions.remove(&position);
            }
        }
    }

    /// The last sequence number of the log.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.rows.values()
    }

    pub fn row(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key)
    }

    pub fn payload(&self, key: &PayloadKey) -> Option<&Payload> {
        self.payloads.get(key)
    }

    pub fn payloads(&self) -> impl Iterator<Item = (&PayloadKey, &Payload)> {
        self.payloads.iter()
    }

    /// The events after `seq`, oldest first.
    pub fn events_after(&self, seq: u64) -> impl Iterator<Item = LogEvent> {
        let after = self.events.range(seq.saturating_add(1)..);
        after.map(|(&seq, event)| LogEvent::new(seq, event))
    }

    /// Inserts a row unchecked, to test rows of other versions.
    pub fn plant(&mut self, row: Row) {
        self.insert(row);
    }

    /// Decides and commits one command.
    pub fn execute(&mut self, now: Timestamp, command: &Command) -> Result<Outcome, Rejection> {
        let (outcome, changes) = self.attempt(now, command);
        self.commit(&changes).expect("these tables have no other writers");
        outcome
    }

    /// Decides one command without committing it.
    pub fn attempt(
        &self,
        now: Timestamp,
        command: &Command,
    ) -> (Result<Outcome, Rejection>, ChangeSet) {
        let mut world = World::new(now, Hints::default());
        loop {
            if let Decided::Ready(outcome) = decide(&mut world, command) {
                return (outcome, world.finish().0);
            }
            let wanted = world.take_load_request().expect("a parked command needs more rows");
            let loaded = self.load(&wanted);
            world.absorb(&wanted, loaded);
        }
    }
}

fn stored(row: &Row) -> StoredRow {
    let Row { key, version, schema, body, .. } = row.clone();
    StoredRow { key, version, schema, body }
}

fn positions(spec: &TableSpec, row: &Row) -> Vec<(Index, Vec<Value>)> {
    let position = |index: &crate::row::IndexSpec| Some((index.index, index.index.position(row)?));
    spec.indexes.iter().filter_map(position).collect()
}
