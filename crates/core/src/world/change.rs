use std::collections::BTreeMap;

use crate::event::Event;
use crate::name::{LaneName, Tenant};
use crate::payload::{Payload, PayloadKey};
use crate::record::{AnyRecord, encode};
use crate::row::{Row, RowKey, Value, Version};
use crate::task::{Lifecycle, Route, Task, TaskKey};
use crate::time::Timestamp;
use crate::world::entry::{Entry, Slot};
use crate::world::{Hints, World};

/// All effects of one batch: net, checked, and committed together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// The time of the batch: everything in it was decided as of this.
    pub at: Timestamp,
    /// The time of the batch, or a little later: the clock of the store goes on from here.
    pub now: Timestamp,
    /// Read as absent; a key that is there by the time of the commit is a conflict.
    pub inserts: Vec<Row>,
    pub updates: Vec<Update>,
    pub deletes: Vec<(RowKey, Version)>,
    /// Read and left alone; the version must still be that one.
    pub reads: Vec<(RowKey, Version)>,
    pub events: Vec<Event>,
    /// Written over whatever an earlier life of its task left under the key.
    pub payloads: Vec<(PayloadKey, Payload)>,
    pub dropped_payloads: Vec<PayloadKey>,
    /// Forget the log up to and including this number.
    pub trim_through: Option<u64>,
    /// Hints for claims that wait; sent after the commit.
    pub wakes: BTreeMap<Wake, u32>,
    /// What is ready and was looked at, but not taken. Where looking locks, others have passed it
    /// over in the meantime.
    pub left_ready: BTreeMap<Wake, u32>,
    /// The earliest moment at which something written here needs the engine.
    pub next_due: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The row to write, with its version to be.
    pub row: Row,
    /// The version that must still be there.
    pub expected: Version,
}

/// A lane where a claim may find something: tasks of one route, or of any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wake {
    pub tenant: Tenant,
    pub lane: LaneName,
    pub route: Option<Route>,
}

impl Wake {
    /// Stands for every lane of a tenant, where more of them may have something than anybody
    /// remembers. No lane is called that.
    pub fn every_lane() -> LaneName {
        LaneName::new("")
    }

    /// Word for whoever holds a task that it is taken away.
    pub(crate) fn for_holder(task: &Task) -> Self {
        let route = Some(Route::of_holder(&task.id));
        Self { tenant: task.tenant.clone(), lane: task.lane.clone(), route }
    }

    /// The task that was taken from whoever holds it, if it is word of that.
    pub fn taken_away(&self) -> Option<TaskKey> {
        let id = self.route.as_ref()?.held_task()?;
        Some(TaskKey { tenant: self.tenant.clone(), id })
    }

    /// Whether it comes from this lane, or from every one.
    pub fn is_from(&self, lane: &LaneName) -> bool {
        self.lane == *lane || self.lane.as_str().is_empty()
    }
}

impl ChangeSet {
    /// Whether a commit would write nothing.
    pub fn is_empty(&self) -> bool {
        self.inserts.is_empty()
            && self.updates.is_empty()
            && self.deletes.is_empty()
            && self.events.is_empty()
            && self.payloads.is_empty()
            && self.dropped_payloads.is_empty()
            && self.trim_through.is_none()
    }

    /// A version is the time of the write in microseconds, and rises in any case.
    fn version_after(&self, expected: Version) -> Version {
        expected.next().max(Version(self.now.micros()))
    }

    fn note_due(&mut self, row: &Row) {
        let Some(index) = row.key.table.due() else { return };
        let present = index.spec().present;
        if let Value::Int(micros) = row.key.table.spec().value(row, present) {
            let due_at = Timestamp::from_micros(*micros);
            self.next_due = Some(self.next_due.map_or(due_at, |known| known.min(due_at)));
        }
    }

    fn note_left(&mut self, slot: &Slot) {
        let Slot::Here(AnyRecord::Task(task)) = slot else { return };
        if task.ready_at().is_some() {
            let (tenant, lane) = (task.tenant.clone(), task.lane.clone());
            let kept = matches!(task.lifecycle, Lifecycle::Reserved { .. });
            let route = (!kept).then(|| task.route.clone());
            let wake = Wake { tenant, lane, route };
            *self.left_ready.entry(wake).or_default() += 1;
        }
    }

    fn add(&mut self, key: RowKey, entry: Entry) {
        let Entry { base, extra, slot, read, changed } = entry;
        if !changed {
            self.note_left(&slot);
        }
        match (base, slot, changed) {
            (None, Slot::Here(record), true) => {
                let row = encode(&record, None, Version(self.now.micros()));
                self.note_due(&row);
                self.inserts.push(row);
            }
            (Some(expected), Slot::Here(record), true) => {
                let row = encode(&record, extra.as_deref(), self.version_after(expected));
                self.note_due(&row);
                self.updates.push(Update { row, expected });
            }
            (Some(version), Slot::Absent, true) => self.deletes.push((key, version)),
            (Some(version), _, false) if read => self.reads.push((key, version)),
            (None, _, _) | (Some(_), _, false) => {}
            (Some(_), Slot::Unreadable, true) => unreachable!("what cannot be read is not changed"),
        }
    }
}

impl World {
    /// Writes every task that the log tells of, also where its record stays the same: two batches
    /// that log something of one task conflict, and its entries are in the order of their times.
    fn write_logged_tasks(&mut self) {
        for event in &self.events {
            let Some((id, _)) = &event.task else { continue };
            let key = TaskKey::new(&event.tenant, id).row_key();
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.changed |= matches!(entry.slot, Slot::Here(_));
            }
        }
    }

    /// Ends the batch: its net effects, and what it leaves for the next one to guess with.
    pub fn finish(mut self) -> (ChangeSet, Hints) {
        self.write_logged_tasks();
        let wakes = self.wakes_since(0);
        let mut changes = ChangeSet {
            at: self.now,
            now: self.latest,
            events: self.events,
            trim_through: self.trim_through,
            ..ChangeSet::default()
        };
        // What happened last to a payload counts: one key can go and come again in one batch.
        for (key, payload) in self.payloads.into_iter().collect::<BTreeMap<_, _>>() {
            match payload {
                Some(payload) => changes.payloads.push((key, payload)),
                None => changes.dropped_payloads.push(key),
            }
        }
        for wake in wakes {
            *changes.wakes.entry(wake).or_default() += 1;
        }
        for (key, entry) in self.entries {
            changes.add(key, entry);
        }
        (changes, self.hints)
    }
}
