//! Hand-made rows, as a store sees them.

use windlass_core::{
    ChangeSet, Lane, LaneName, PayloadKey, Row, RowKey, Slot, StoredRecord, Table, Task, Tenant,
    Timestamp, Value, Version,
};

/// The start time of the suites' clocks.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_000_000);

pub(crate) fn lane_key(name: &str) -> RowKey {
    Lane::key_of(&Tenant::default(), &LaneName::new(name))
}

pub(crate) fn lane_row(name: &str, version: i64) -> Row {
    let lane = Lane::new(&Tenant::default(), &LaneName::new(name));
    let body = serde_json::to_string(&lane).expect("a lane serializes");
    let columns = vec![lane.state.as_str().into(), Value::Null];
    Row { key: lane_key(name), version: Version(version), columns, schema: 1, body }
}

pub(crate) fn task_key(id: &str) -> RowKey {
    Task::row_key(vec!["default".into(), id.into()])
}

pub(crate) fn payload_key(task: &str, execution: u32, slot: Slot) -> PayloadKey {
    PayloadKey { tenant: Tenant::default(), task: task.into(), execution, slot }
}

/// A row of the task table, by its indexed columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskSpot {
    pub(crate) tenant: &'static str,
    pub(crate) lane: &'static str,
    pub(crate) route: &'static str,
    pub(crate) rank: i64,
    pub(crate) ready_at: Option<i64>,
    pub(crate) due_at: Option<i64>,
    /// A further list that contains it, and its position there.
    pub(crate) line: Option<(&'static str, i64)>,
    pub(crate) open_parent: Option<&'static str>,
    pub(crate) id: &'static str,
}

impl TaskSpot {
    pub(crate) fn ready(id: &'static str, rank: i64, ready_at: i64) -> Self {
        let (tenant, lane, route) = ("default", "l", "");
        let (ready_at, due_at) = (Some(ready_at), None);
        Self { tenant, lane, route, rank, ready_at, due_at, line: None, open_parent: None, id }
    }

    /// The row, with a body that no version of core can decode.
    pub(crate) fn row(self, version: i64) -> Row {
        let Self { tenant, lane, route, rank, ready_at, due_at, line, open_parent, id } = self;
        let state = if ready_at.is_some() { "waiting" } else { "delayed" };
        Row {
            key: RowKey { table: Table::Task, values: vec![tenant.into(), id.into()] },
            version: Version(version),
            columns: vec![
                "kind".into(),
                lane.into(),
                route.into(),
                state.into(),
                rank.into(),
                ready_at.into(),
                due_at.into(),
                START.into(),
                Value::Null,
                line.map(|(line, _)| line).into(),
                line.map(|(_, since)| since).into(),
                open_parent.into(),
                open_parent.into(),
            ],
            schema: 1,
            body: serde_json::json!({ "written by": "fixture", "id": id }).to_string(),
        }
    }
}

pub(crate) fn queue_row(tenant: &str, lane: &str, route: &str, due_at: i64) -> Row {
    Row {
        key: RowKey {
            table: Table::ReadyRoute,
            values: vec![tenant.into(), lane.into(), route.into()],
        },
        version: Version(1),
        columns: vec![Value::Int(0), due_at.into()],
        schema: 1,
        body: "{}".into(),
    }
}

pub(crate) fn admission_row(key: &str, due_at: i64) -> Row {
    Row {
        key: RowKey {
            table: Table::Admission,
            values: vec!["default".into(), "task".into(), key.into()],
        },
        version: Version(1),
        columns: vec![due_at.into()],
        schema: 1,
        body: "{}".into(),
    }
}

pub(crate) fn inserts(rows: impl IntoIterator<Item = Row>) -> ChangeSet {
    ChangeSet { inserts: rows.into_iter().collect(), ..ChangeSet::default() }
}
