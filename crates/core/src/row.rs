//! The view of a store: tables, keys, versions, columns and bytes, without any rules.

use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::name::IdempotencyKey;
use crate::record::Table;

/// One value of a key or of an index column. All stores use this order: null, then numbers, then
/// text by its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Null,
    Int(i64),
    Text(Arc<str>),
}

impl Value {
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Null | Value::Text(_) => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Null | Value::Int(_) => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(Arc::from(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Version of a record, for the optimistic check: the time of its last write in microseconds. It
/// rises with every write and is never reused, even if a key is deleted and recreated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub i64);

impl Version {
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The key of a record in a table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    pub table: Table,
    pub values: Vec<Value>,
}

impl RowKey {
    /// A 64-bit hash of the key, identical in all versions of the program.
    pub fn hash64(&self) -> i64 {
        let table = self.table.spec().name.as_bytes();
        let mut hash = fnv(0xcbf2_9ce4_8422_2325, table);
        for value in &self.values {
            hash = match value {
                Value::Null => fnv(hash, &[0]),
                Value::Int(number) => fnv(fnv(hash, &[1]), &number.to_le_bytes()),
                Value::Text(text) => fnv(fnv(hash, &[2]), text.as_bytes()),
            };
        }
        hash.cast_signed()
    }
}

/// Continues an FNV-1a hash.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Redacts the idempotency key at the end of the key of an admission.
impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = match (self.table, self.values.last()) {
            (Table::Admission, Some(Value::Text(text))) => Some(IdempotencyKey::new(text)),
            _ => None,
        };
        let open = &self.values[..self.values.len() - usize::from(secret.is_some())];
        let mut key = f.debug_struct("RowKey");
        key.field("table", &self.table).field("values", &open);
        if let Some(secret) = &secret {
            key.field("secret", secret);
        }
        key.finish()
    }
}

/// A record as it is written to a store. `columns` are in the order of [`TableSpec::columns`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: RowKey,
    pub version: Version,
    pub columns: Vec<Value>,
    pub schema: u16,
    pub body: String,
}

/// A record as it is read from a store. It has no columns, since the body determines them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    pub key: RowKey,
    pub version: Version,
    pub schema: u16,
    pub body: String,
}

/// The shape of a table, which is all that a store needs to load and save its records.
///
/// Besides these columns every table has `version`, `schema` and `body`.
#[derive(Debug)]
pub struct TableSpec {
    pub name: &'static str,
    pub key: &'static [&'static str],
    pub columns: &'static [&'static str],
    /// The numeric columns; all others, and all of the key, are text.
    pub numbers: &'static [&'static str],
    pub indexes: &'static [IndexSpec],
    /// Columns that lists filter by. Each has an index of the first key column, this column and the
    /// rest of the key.
    pub list_indexes: &'static [&'static str],
    /// A column that marks records with many concurrent writers. Where transactions run
    /// concurrently, waiting for the row lock of such a record is cheaper than a conflict.
    pub contended: Option<&'static str>,
}

/// An ordered index of a table. A row is in the index while its column `indexed_when` is not null.
///
/// `columns` end with the key columns, so that every position is unique.
#[derive(Debug)]
pub struct IndexSpec {
    pub index: Index,
    pub columns: &'static [&'static str],
    pub indexed_when: &'static str,
}

impl TableSpec {
    /// The value of a column of `row`, by name.
    pub fn value<'r>(&self, row: &'r Row, column: &str) -> &'r Value {
        Spot::of(self, column).value(&row.key.values, &row.columns)
    }
}

/// Positions of the index columns in a row, resolved by name once.
#[derive(Debug)]
pub(crate) struct Layout {
    indexed_when: Spot,
    columns: Vec<Spot>,
    /// Positions of the key columns among the index columns.
    key: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Spot {
    Key(usize),
    Column(usize),
}

impl Spot {
    fn of(spec: &TableSpec, column: &str) -> Self {
        let at = |names: &[&str]| names.iter().position(|name| *name == column);
        match at(spec.key) {
            Some(i) => Spot::Key(i),
            None => {
                Spot::Column(at(spec.columns).expect("index columns are columns of their table"))
            }
        }
    }

    fn value<'r>(self, key: &'r [Value], columns: &'r [Value]) -> &'r Value {
        match self {
            Spot::Key(i) => &key[i],
            Spot::Column(i) => &columns[i],
        }
    }
}

impl Layout {
    fn new(index: Index) -> Self {
        let (table, spec) = (index.table().spec(), index.spec());
        let at = |column: &&str| spec.columns.iter().position(|name| name == column);
        Self {
            indexed_when: Spot::of(table, spec.indexed_when),
            columns: spec.columns.iter().map(|column| Spot::of(table, column)).collect(),
            key: table.key.iter().map(|c| at(c).expect("index columns end with the key")).collect(),
        }
    }

    /// The index position of a row; none if it is not in the index.
    pub(crate) fn position(&self, key: &[Value], columns: &[Value]) -> Option<Vec<Value>> {
        if *self.indexed_when.value(key, columns) == Value::Null {
            return None;
        }
        Some(self.columns.iter().map(|spot| spot.value(key, columns).clone()).collect())
    }

    /// The key of the row at a position.
    pub(crate) fn key(&self, position: &[Value]) -> Vec<Value> {
        self.key.iter().map(|&at| position[at].clone()).collect()
    }
}

/// The indexes that commands scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Index {
    TaskReady,
    TaskDue,
    ReadyRouteByLane,
    ReadyRouteDue,
    AdmissionDue,
    NodeDue,
    TaskList,
    TaskOpenChild,
    MessageOfTask,
    MessageDue,
    WaitpointOfTask,
    KeyringDue,
    ChildrenDue,
    ConcurrencyLimitDue,
    ConcurrencyLimitOwned,
    WorkerDue,
    EffectOfOwner,
    EffectDue,
    LimiterDue,
    ExecutionOfTask,
    ExecutionDue,
    WorkflowPropertyOfTask,
}

impl Index {
    pub const fn table(self) -> Table {
        match self {
            Index::TaskReady | Index::TaskDue | Index::TaskList | Index::TaskOpenChild => {
                Table::Task
            }
            Index::ReadyRouteByLane | Index::ReadyRouteDue => Table::ReadyRoute,
            Index::AdmissionDue => Table::Admission,
            Index::NodeDue => Table::Node,
            Index::MessageOfTask | Index::MessageDue => Table::Message,
            Index::WaitpointOfTask => Table::Waitpoint,
            Index::KeyringDue => Table::Keyring,
            Index::ChildrenDue => Table::Children,
            Index::ConcurrencyLimitDue | Index::ConcurrencyLimitOwned => Table::ConcurrencyLimit,
            Index::WorkerDue => Table::Worker,
            Index::EffectOfOwner | Index::EffectDue => Table::Effect,
            Index::LimiterDue => Table::Limiter,
            Index::ExecutionOfTask | Index::ExecutionDue => Table::Execution,
            Index::WorkflowPropertyOfTask => Table::WorkflowProperty,
        }
    }

    /// Whether a scan is about to change the rows it finds, so that concurrent scans should skip
    /// locked rows. Nodes are not skipped: each node checks all others.
    pub const fn is_consumed(self) -> bool {
        match self {
            Index::TaskReady
            | Index::TaskDue
            | Index::ReadyRouteDue
            | Index::AdmissionDue
            | Index::MessageDue
            | Index::KeyringDue
            | Index::ChildrenDue
            | Index::ConcurrencyLimitDue
            | Index::WorkerDue
            | Index::EffectDue
            | Index::LimiterDue
            | Index::ExecutionDue => true,
            Index::ReadyRouteByLane
            | Index::NodeDue
            | Index::TaskList
            | Index::TaskOpenChild
            | Index::MessageOfTask
            | Index::WaitpointOfTask
            | Index::EffectOfOwner
            | Index::ExecutionOfTask
            | Index::WorkflowPropertyOfTask
            | Index::ConcurrencyLimitOwned => false,
        }
    }

    /// The number of leading columns that name a queue, for an index of queues: rows are consumed
    /// from the head of each.
    pub const fn queue_columns(self) -> Option<usize> {
        match self {
            Index::TaskReady => Some(3),
            Index::TaskDue
            | Index::ReadyRouteDue
            | Index::AdmissionDue
            | Index::NodeDue
            | Index::MessageDue
            | Index::KeyringDue
            | Index::ChildrenDue
            | Index::ConcurrencyLimitDue
            | Index::WorkerDue
            | Index::EffectDue
            | Index::LimiterDue
            | Index::ExecutionDue => Some(0),
            Index::ReadyRouteByLane
            | Index::TaskList
            | Index::TaskOpenChild
            | Index::MessageOfTask
            | Index::WaitpointOfTask
            | Index::EffectOfOwner
            | Index::ExecutionOfTask
            | Index::WorkflowPropertyOfTask
            | Index::ConcurrencyLimitOwned => None,
        }
    }

    /// The index position of a row; none if it is not in the index.
    pub fn position(self, row: &Row) -> Option<Vec<Value>> {
        self.layout().position(&row.key.values, &row.columns)
    }

    pub(crate) const ALL: [Index; 22] = [
        Index::TaskReady,
        Index::TaskDue,
        Index::ReadyRouteByLane,
        Index::ReadyRouteDue,
        Index::AdmissionDue,
        Index::NodeDue,
        Index::TaskList,
        Index::TaskOpenChild,
        Index::MessageOfTask,
        Index::MessageDue,
        Index::WaitpointOfTask,
        Index::KeyringDue,
        Index::ChildrenDue,
        Index::ConcurrencyLimitDue,
        Index::ConcurrencyLimitOwned,
        Index::WorkerDue,
        Index::EffectOfOwner,
        Index::EffectDue,
        Index::LimiterDue,
        Index::ExecutionOfTask,
        Index::ExecutionDue,
        Index::WorkflowPropertyOfTask,
    ];

    pub(crate) fn layout(self) -> &'static Layout {
        static LAYOUTS: LazyLock<Vec<Layout>> =
            LazyLock::new(|| Index::ALL.into_iter().map(Layout::new).collect());
        &LAYOUTS[self as usize]
    }

    pub fn spec(self) -> &'static IndexSpec {
        let mut specs = self.table().spec().indexes.iter();
        specs.find(|spec| spec.index == self).expect("every index is listed by its table")
    }
}

/// A range of an index: rows whose first columns equal `prefix` and whose next column is at most
/// `until`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    pub index: Index,
    pub prefix: Vec<Value>,
    pub until: Option<Value>,
}

impl Range {
    /// Whether a position of the same index is in this range.
    pub fn contains(&self, position: &[Value]) -> bool {
        position.starts_with(&self.prefix)
            && self.until.as_ref().is_none_or(|until| position[self.prefix.len()] <= *until)
    }
}

/// A page of a range: the first `limit` rows after the position `after`, in index order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub range: Range,
    pub after: Option<Vec<Value>>,
    pub limit: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::PublicState;

    #[test]
    fn constant_lists_are_in_enum_order() {
        assert!(Index::ALL.iter().enumerate().all(|(at, index)| *index as usize == at));
        assert!(PublicState::ALL.iter().enumerate().all(|(at, state)| *state as usize == at));
        for index in Index::ALL {
            assert_eq!(index.spec().index, index);
        }
    }

    /// Nodes of different versions compare these hashes.
    #[test]
    fn the_hash_of_a_key_is_stable() {
        let key = |table, values: &[Value]| RowKey { table, values: values.to_vec() };
        let (a, b) = (Value::Text("a".into()), Value::Text("b".into()));
        let keys = [
            key(Table::Task, &[a.clone(), b.clone()]),
            key(Table::Task, &[b, a.clone()]),
            key(Table::Lane, &[a.clone(), Value::Int(1)]),
            key(Table::Lane, &[a, Value::Null]),
        ];
        let hashes = [
            -7_235_394_361_223_228_975,
            -9_107_891_250_875_018_211,
            -1_044_909_511_865_580_392,
            3_708_761_750_516_080_614,
        ];
        assert_eq!(keys.map(|key| key.hash64()), hashes);
    }
}
