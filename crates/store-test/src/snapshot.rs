use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use windlass_core::{
    Index, LoadRequest, LogEvent, PageRow, Payload, PayloadKey, Range, ReferenceTables, Row, Scan,
    Slot, StoredRow, Table, Task, Value, read_row,
};
use windlass_store::{Query, Store, StoreError};

/// Small, so that a snapshot takes several pages.
const PAGE: usize = 50;

fn every_index() -> impl Iterator<Item = Index> {
    Table::ALL.iter().flat_map(|table| table.spec().indexes).map(|spec| spec.index)
}

/// Everything that can be read from a store: every row of every table, every index in order, the
/// payloads of every task, and the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub rows: Vec<StoredRow>,
    pub indexes: Vec<(Index, Vec<PageRow>)>,
    pub payloads: BTreeMap<PayloadKey, Payload>,
    pub events: Vec<LogEvent>,
}

impl Snapshot {
    pub async fn of(store: &dyn Store) -> Result<Self, StoreError> {
        Self::with_payloads(store, &BTreeSet::new()).await
    }

    /// Also reads payloads that no task owns.
    pub async fn with_payloads(
        store: &dyn Store,
        also: &BTreeSet<PayloadKey>,
    ) -> Result<Self, StoreError> {
        let mut rows = Vec::new();
        for &table in Table::ALL {
            rows.extend(table_of(store, table).await?);
        }
        let keys: Vec<_> = also.iter().cloned().chain(owned_payloads(&rows)).collect();
        let found = store.payloads(&keys).await?;
        let there = |(key, payload): (PayloadKey, Option<Payload>)| Some((key, payload?));
        Ok(Self {
            rows,
            indexes: indexes_of(store).await?,
            payloads: keys.into_iter().zip(found).filter_map(there).collect(),
            events: log_of(store).await?,
        })
    }

    /// The expected snapshot of a store with these records.
    pub fn of_tables(tables: &ReferenceTables) -> Self {
        let stored = |row: &Row| {
            let Row { key, version, schema, body, .. } = row.clone();
            StoredRow { key, version, schema, body }
        };
        let wanted = LoadRequest {
            scans: every_index().map(|index| page(index, None, usize::MAX)).collect(),
            ..LoadRequest::default()
        };
        let pages = tables.load(&wanted).pages;
        Self {
            rows: tables.rows().map(stored).collect(),
            indexes: every_index().zip(pages).collect(),
            payloads: tables.payloads().map(|(k, p)| (k.clone(), p.clone())).collect(),
            events: tables.events_after(0).collect(),
        }
    }

    /// Without versions, which depend on the number of commits.
    pub fn without_versions(mut self) -> Self {
        let rows = self.rows.iter_mut().map(|row| &mut row.version);
        let pages = self.indexes.iter_mut().flat_map(|(_, page)| page);
        rows.chain(pages.map(|row| &mut row.version)).for_each(|version| version.0 = 0);
        self
    }

    /// A description of the first difference, if any.
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let payload = |(key, payload): (&PayloadKey, &Payload)| (key.clone(), payload.clone());
        let found: Vec<_> = self.payloads.iter().map(payload).collect();
        let wanted: Vec<_> = expected.payloads.iter().map(payload).collect();
        first_difference("row", &self.rows, &expected.rows)
            .or_else(|| first_difference("index", &self.indexes, &expected.indexes))
            .or_else(|| first_difference("payload", &found, &wanted))
            .or_else(|| first_difference("event", &self.events, &expected.events))
    }
}

fn first_difference<T: PartialEq + fmt::Debug>(
    what: &str,
    found: &[T],
    expected: &[T],
) -> Option<String> {
    let differs = |at: &usize| found.get(*at) != expected.get(*at);
    let at = (0..found.len().max(expected.len())).find(differs)?;
    Some(format!("{what} {at}: found {:?}, expected {:?}", found.get(at), expected.get(at)))
}

async fn table_of(store: &dyn Store, table: Table) -> Result<Vec<StoredRow>, StoreError> {
    let mut rows: Vec<StoredRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| row.key.values.clone());
        let query = Query { after: after.clone(), ..Query::all(table, PAGE) };
        let page = store.query(&query).await?;
        let more = page.len() == PAGE && page[0].key.values > *start(&after);
        rows.extend(page);
        if !more {
            return Ok(rows);
        }
    }
}

async fn indexes_of(store: &dyn Store) -> Result<Vec<(Index, Vec<PageRow>)>, StoreError> {
    let mut tx = store.begin().await?;
    let mut indexes = Vec::new();
    for index in every_index() {
        let mut rows: Vec<PageRow> = Vec::new();
        loop {
            let after = rows.last().map(|row| row.position.clone());
            let scans = vec![page(index, after.clone(), PAGE)];
            let wanted = Arc::new(LoadRequest { scans, ..LoadRequest::default() });
            let found: Vec<_> = tx.load(wanted).await?.pages.into_iter().flatten().collect();
            let more = found.len() == PAGE && found[0].position > *start(&after);
            rows.extend(found);
            if !more {
                break;
            }
        }
        indexes.push((index, rows));
    }
    Ok(indexes)
}

/// The position that a page must start after. Otherwise paging stops, so that a store that repeats
/// pages does not cause an endless loop.
fn start(after: &Option<Vec<Value>>) -> &Vec<Value> {
    const NOTHING: &Vec<Value> = &Vec::new();
    after.as_ref().unwrap_or(NOTHING)
}

fn page(index: Index, after: Option<Vec<Value>>, limit: usize) -> Scan {
    Scan { range: Range { index, prefix: Vec::new(), until: None }, after, limit }
}

async fn log_of(store: &dyn Store) -> Result<Vec<LogEvent>, StoreError> {
    let mut events: Vec<LogEvent> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let page = store.events(after, PAGE).await?;
        let more = page.len() == PAGE && page[0].seq > after;
        events.extend(page);
        if !more {
            return Ok(events);
        }
    }
}

fn owned_payloads(rows: &[StoredRow]) -> impl Iterator<Item = PayloadKey> {
    let tasks = rows.iter().filter(|row| row.key.table == Table::Task);
    let tasks = tasks.filter_map(|row| read_row::<Task>(row.schema, &row.body));
    tasks.flat_map(|task| {
        let result = |execution: &u32| PayloadKey {
            tenant: task.tenant.clone(),
            task: task.id.clone(),
            execution: *execution,
            slot: Slot::RESULT,
        };
        task.input_key().into_iter().chain(task.results.iter().map(result)).collect::<Vec<_>>()
    })
}
