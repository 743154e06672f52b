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

/// The net effects of one batch, committed atomically with an optimistic check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// The time of the batch, as of which all of it was decided.
    pub at: Timestamp,
    /// The time of the batch or a little later. The clock of the store continues from here.
    pub now: Timestamp,
    /// Read as absent. The commit conflicts if one of the keys exists.
    pub inserts: Vec<Row>,
    pub updates: Vec<Update>,
    pub deletes: Vec<(RowKey, Version)>,
    /// Read but not changed. The commit conflicts if a version differs.
    pub reads: Vec<(RowKey, Version)>,
    pub events: Vec<Event>,
    /// Overwrite payloads that an earlier task with the same id left under the key.
    pub payloads: Vec<(PayloadKey, Payload)>,
    pub dropped_payloads: Vec<PayloadKey>,
    /// Delete the log up to and including this number.
    pub trim_through: Option<u64>,
    /// Wakes of waiting claims, sent after the commit.
    pub wakes: BTreeMap<Wake, u32>,
    /// Ready tasks that the batch scanned but did not claim. Where a scan locks rows, concurrent
    /// claims have skipped them.
    pub left_ready: BTreeMap<Wake, u32>,
    /// The earliest time at which a record written here is due for the sweep.
    pub next_due: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The row to write, with its next version.
    pub row: Row,
    /// The version that the stored row must still have.
    pub expected: Version,
}

/// A lane where a claim may find a task: of one route, or of any route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wake {
    pub tenant: Tenant,
    pub lane: LaneName,
    pub route: Option<Route>,
}

impl Wake {
    /// A name that means every lane of a tenant, used when the affected lanes are too many to
    /// record. No lane has this name.
    pub fn every_lane() -> LaneName {
        LaneName::new("")
    }

    /// Notifies the lease holder of a task that its lease was revoked.
    pub(crate) fn for_holder(task: &Task) -> Self {
        let route = Some(Route::of_holder(&task.id));
        Self { tenant: task.tenant.clone(), lane: task.lane.clone(), route }
    }

    /// The task whose lease was revoked, if this wake notifies its lease holder.
    pub fn taken_away(&self) -> Option<TaskKey> {
        let id = self.route.as_ref()?.held_task()?;
        Some(TaskKey { tenant: self.tenant.clone(), id })
    }

    /// Whether it covers this lane.
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

    /// The next version: the time of the write in microseconds, but always a higher number.
    fn version_after(&self, expected: Version) -> Version {
        expected.next().max(Version(self.now.micros()))
    }

    fn note_due(&mut self, row: &Row) {
        let Some(index) = row.key.table.due() else { return };
        let present = index.spec().indexed_when;
        if let Value::Int(micros) = row.key.table.spec().value(row, present) {
            let due_at = Timestamp::from_micros(*micros);
            self.next_due = Some(self.next_due.map_or(due_at, |known| known.min(due_at)));
        }
    }

    fn note_left_ready(&mut self, slot: &Slot) {
        let Slot::Here(AnyRecord::Task(task)) = slot else { return };
        if task.ready_at().is_some() {
            let (tenant, lane) = (task.tenant.clone(), task.lane.clone());
            let kept = matches!(task.lifecycle, Lifecycle::Granted { .. });
            let route = (!kept).then(|| task.route.clone());
            let wake = Wake { tenant, lane, route };
            *self.left_ready.entry(wake).or_default() += 1;
        }
    }

    fn add(&mut self, key: RowKey, entry: Entry) {
        let Entry { base, extra, slot, read, changed } = entry;
        if !changed {
            self.note_left_ready(&slot);
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
            (Some(_), Slot::Unreadable, true) => unreachable!("unreadable records are not changed"),
        }
    }
}

impl World {
    /// Writes every task with a log event, even if its record is unchanged, so that concurrent
    /// batches with events of one task conflict and the events of a task are ordered by time.
    fn write_logged_tasks(&mut self) {
        for event in &self.events {
            let Some((id, _)) = &event.task else { continue };
            let key = TaskKey::new(&event.tenant, id).row_key();
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.changed |= matches!(entry.slot, Slot::Here(_));
            }
        }
    }

    /// Ends the batch. Returns its net effects, and the hints for the next one.
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
        // The last operation on a payload key wins: a batch may drop a key and attach it again.
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
