use serde::{Deserialize, Serialize};

use crate::log::Cursor;
use crate::name::Tenant;
use crate::record::{Filed, Record};
use crate::row::{RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// The cursor of a durable subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookmark {
    pub tenant: Tenant,
    pub name: String,
    pub cursor: Cursor,
    pub moved_at: Timestamp,
}

impl Bookmark {
    pub fn key_of(tenant: &Tenant, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), name.into()])
    }
}

impl Record for Bookmark {
    const SPEC: TableSpec = TableSpec {
        name: "bookmark",
        key: &["tenant", "name"],
        columns: &["seq"],
        numbers: &["seq"],
        indexes: &[],
        listed_by: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), self.name.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![i64::try_from(self.cursor.seq).unwrap_or(i64::MAX).into()]
    }
}
