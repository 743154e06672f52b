use serde::{Deserialize, Serialize};

use crate::name::{LaneName, Tenant};
use crate::record::{Record, StoredRecord};
use crate::row::{Index, IndexSpec, Range, RowKey, TableSpec, Value};
use crate::task::Route;
use crate::time::Timestamp;

/// A ready route: this lane may have ready tasks of this route.
///
/// It is removed in two steps. The sweep first marks it `closing`. A command that makes a task
/// ready meanwhile reopens it, and that write conflicts with the removal. The sweep deletes it only
/// if it is still empty in a later commit. So every ready task is covered by a ready route, without
/// counting tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyRoute {
    pub tenant: Tenant,
    pub lane: LaneName,
    pub route: Route,
    pub closing: bool,
    pub due_at: Timestamp,
}

impl ReadyRoute {
    pub fn key_of(tenant: &Tenant, lane: &LaneName, route: &Route) -> RowKey {
        Self::row_key(vec![tenant.into(), lane.into(), route.into()])
    }

    pub(crate) fn of_lane(tenant: &Tenant, lane: &LaneName) -> Range {
        Range {
            index: Index::ReadyRouteByLane,
            prefix: vec![tenant.into(), lane.into()],
            until: None,
        }
    }
}

impl Record for ReadyRoute {
    const SPEC: TableSpec = TableSpec {
        name: "ready_route",
        key: &["tenant", "lane", "route"],
        columns: &["closing", "due_at"],
        numbers: &["closing", "due_at"],
        indexes: &[
            IndexSpec {
                index: Index::ReadyRouteByLane,
                columns: &["tenant", "lane", "route"],
                indexed_when: "route",
            },
            IndexSpec {
                index: Index::ReadyRouteDue,
                columns: &["due_at", "tenant", "lane", "route"],
                indexed_when: "due_at",
            },
        ],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), (&self.lane).into(), (&self.route).into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![Value::Int(i64::from(self.closing)), self.due_at.into()]
    }
}
