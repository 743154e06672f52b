use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::record::{Filed, Record};
use crate::row::{RowKey, TableSpec, Value};

/// What the log has forgotten. There is one of it, made by the first trim.
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
        listed_by: &[],
        contended: None,
    };

    fn key(&self) -> Vec<Value> {
        vec!["log".into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![Value::Int(i64::try_from(self.floor).expect("sequence numbers are positive i64"))]
    }
}

/// A place in the log. Whoever restores a database from a backup renews its `incarnation`, so that
/// a number that came from a lost future is not taken for one of the present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    pub incarnation: String,
    pub seq: u64,
}

/// The log cannot go on from a cursor without a gap. Start over from `oldest`, knowing that what
/// lies between is lost to this reader.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the cursor is behind what the log still holds; it can go on from {}", oldest.seq)]
pub struct CursorExpired {
    pub oldest: Cursor,
}

impl Cursor {
    /// Whether a log of this incarnation, with this floor and this last number, can go on from here
    /// without a gap. A number that it has not given yet came from a log that is lost.
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
