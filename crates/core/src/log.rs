use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::record::{Record, StoredRecord};
use crate::row::{RowKey, TableSpec, Value};

/// Retention state of the log. A single record, created by the first trim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// The last sequence number that retention removed.
    pub floor: u64,
}

impl Log {
    pub fn key_of() -> RowKey {
        Self::row_key(vec!["log".into()])
    }
}

impl Record for Log {
    const SPEC: TableSpec = TableSpec {
        name: "log",
        key: &["name"],
        columns: &["floor"],
        numbers: &["floor"],
        indexes: &[],
        list_indexes: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec!["log".into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![Value::Int(i64::try_from(self.floor).expect("sequence numbers are positive i64"))]
    }
}

/// A position in the log. The `incarnation` is renewed when a database is restored from a backup,
/// so that sequence numbers from after the backup are rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    pub incarnation: String,
    pub seq: u64,
}

/// The log cannot resume from a cursor without a gap. The reader may restart from `oldest`, and
/// misses the events in between.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the cursor has expired; the log can be read from {}", oldest.seq)]
pub struct CursorExpired {
    pub oldest: Cursor,
}

impl Cursor {
    /// Whether a log with this incarnation, floor and last number can resume from here without a
    /// gap. A number beyond `last` belongs to a lost incarnation.
    pub fn check(&self, incarnation: &str, floor: u64, last: u64) -> Result<(), CursorExpired> {
        if self.incarnation == incarnation && (floor..=last).contains(&self.seq) {
            return Ok(());
        }
        Err(CursorExpired { oldest: Cursor { incarnation: incarnation.to_owned(), seq: floor } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_cursors_can_resume() {
        for (incarnation, seq, floor, last, ok) in [
            ("a", 5, 4, 9, true),
            ("a", 5, 5, 5, true),
            ("a", 5, 6, 9, false),
            ("a", 5, 0, 4, false),
            ("b", 5, 0, 9, false),
        ] {
            let cursor = Cursor { incarnation: incarnation.into(), seq };
            let found = cursor.check("a", floor, last).is_ok();
            assert_eq!(found, ok, "{cursor:?} at {floor} to {last}");
        }
    }
}
