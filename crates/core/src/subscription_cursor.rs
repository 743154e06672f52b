use serde::{Deserialize, Serialize};

use crate::log::Cursor;
use crate::name::Tenant;
use crate::record::{Record, StoredRecord};
use crate::row::{RowKey, TableSpec, Value};
use crate::time::Timestamp;

/// The cursor of a durable subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionCursor {
    pub tenant: Tenant,
    pub name: String,
    pub cursor: Cursor,
    pub moved_at: Timestamp,
}

impl SubscriptionCursor {
    pub fn key_of(tenant: &Tenant, name: &str) -> RowKey {
        Self::row_key(vec![tenant.into(), name.into()])
    }
}

impl Record for SubscriptionCursor {
    const SPEC: TableSpec = TableSpec {
        name: "subscription_cursor",
        key: &["tenant", "name"],
        columns: &["seq"],
        numbers: &["seq"],
        indexes: &[],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec![(&self.tenant).into(), self.name.as_str().into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![i64::try_from(self.cursor.seq).unwrap_or(i64::MAX).into()]
    }
}
