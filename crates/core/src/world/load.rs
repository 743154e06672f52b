use std::collections::{BTreeMap, BTreeSet};

use crate::record::decode;
use crate::row::{Range, RowKey, Scan, StoredRow, Value, Version};
use crate::time::Timestamp;
use crate::world::World;
use crate::world::entry::{Entry, RecordState};
use crate::world::scan::Coverage;

/// The rows and ranges that the parked commands of a round need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadRequest {
    pub rows: Vec<RowKey>,
    pub scans: Vec<Scan>,
    /// The number of oldest log events; zero for none.
    pub log_head: usize,
}

/// The rows that a store found. A requested row that is not in `rows` does not exist. `pages`
/// correspond to `scans`; a page shorter than its limit ends its range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    pub rows: Vec<StoredRow>,
    pub pages: Vec<Vec<PageRow>>,
    pub log_head: Vec<LogEntry>,
    /// The latest commit time that may be visible in these rows. Stores with concurrent
    /// transactions must set it; in others the batch time is later than every commit.
    pub as_of: Timestamp,
}

impl Loaded {
    /// Whether any record was written at or after `now`: versions are write times.
    fn has_version_since(&self, now: Timestamp) -> bool {
        let rows = self.rows.iter().map(|row| row.version);
        let found = self.pages.iter().flatten().map(|row| row.version);
        rows.chain(found).any(|version| version.0 >= now.micros())
    }
}

/// A row found by a scan, with its values of the index columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRow {
    pub position: Vec<Value>,
    pub version: Version,
    pub schema: u16,
    pub body: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub seq: u64,
    pub at: Timestamp,
}

/// The requests noted during a round. Limits of commands that scan the same range add up, so that
/// each command finds different rows.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PendingLoads {
    pub(super) rows: BTreeSet<RowKey>,
    pub(super) scans: BTreeMap<Range, usize>,
    pub(super) log_head: usize,
}

impl World {
    /// Ends a round. Returns the rows to load, or none if every command was decided.
    pub fn take_load_request(&mut self) -> Option<LoadRequest> {
        self.picked.clear();
        let pending = std::mem::take(&mut self.pending_loads);
        if pending.rows.is_empty() && pending.scans.is_empty() && pending.log_head == 0 {
            return None;
        }
        let scan = |(range, limit): (Range, usize)| {
            let after = self.coverage.get(&range).and_then(|covered| covered.last.clone());
            Scan { range, after, limit }
        };
        Some(LoadRequest {
            rows: pending.rows.into_iter().collect(),
            scans: pending.scans.into_iter().map(scan).collect(),
            log_head: pending.log_head,
        })
    }

    /// Absorbs the rows loaded for `request`. Until a change is accepted, the batch time is raised
    /// above every commit that may be visible, so that the write times of a record never decrease.
    pub fn absorb(&mut self, request: &LoadRequest, loaded: Loaded) {
        self.commit_time = self.commit_time.max(loaded.as_of.next());
        if self.has_changes {
            self.is_late |= loaded.has_version_since(self.now);
        } else {
            self.now = self.now.max(loaded.as_of.next());
        }
        for row in loaded.rows {
            self.absorb_row(row);
        }
        for key in &request.rows {
            self.entries.entry(key.clone()).or_insert(Entry {
                loaded_version: None,
                unknown_fields: None,
                state: RecordState::Absent,
                read: false,
                changed: false,
            });
        }
        for (scan, page) in request.scans.iter().zip(loaded.pages) {
            self.absorb_page(scan, page);
        }
        if request.log_head > 0 {
            self.log_head = Some(loaded.log_head);
        }
    }

    fn absorb_page(&mut self, scan: &Scan, page: Vec<PageRow>) {
        let last = page.last().filter(|_| page.len() >= scan.limit);
        let last = last.map(|last| last.position.clone());
        let before = self.coverage.get(&scan.range).map_or(0, |covered| covered.rows);
        self.coverage.insert(scan.range.clone(), Coverage { rows: before + page.len(), last });
        let (table, layout) = (scan.range.index.table(), scan.range.index.layout());
        for row in page {
            let key = RowKey { table, values: layout.key(&row.position) };
            let PageRow { version, schema, body, .. } = row;
            self.absorb_row(StoredRow { key, version, schema, body });
        }
    }

    /// The first load of a record counts. If a second load shows a later version, or a record that
    /// was absent, another batch committed in between: rows that were only scanned and absent
    /// records are not checked by the commit, so the batch is late.
    fn absorb_row(&mut self, row: StoredRow) {
        if let Some(entry) = self.entries.get(&row.key) {
            self.is_late |= entry.loaded_version.is_none_or(|version| version < row.version);
            return;
        }
        let (state, unknown_fields) = match decode(row.key.table, row.schema, &row.body) {
            Some((record, unknown_fields)) if record.key() == row.key => {
                (RecordState::Present(record), unknown_fields)
            }
            // A body with a different key is treated as unreadable.
            Some(_) | None => (RecordState::Unreadable, None),
        };
        self.index(&row.key, &state);
        let entry = Entry {
            loaded_version: Some(row.version),
            unknown_fields,
            state,
            read: false,
            changed: false,
        };
        self.entries.insert(row.key, entry);
    }
}
