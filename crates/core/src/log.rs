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
    const SPEC: TableSpec =
        TableSpec { name: "log", key: &["name"], columns: &["floor"], indexes: &[] };

    fn key(&self) -> Vec<Value> {
        vec!["log".into()]
    }

    fn columns(&self) -> Vec<Value> {
        vec![Value::Int(i64::try_from(self.floor).expect("sequence numbers are positive i64"))]
    }
}

/// A place in the log. `incarnation` changes when a database is restored from a backup, so that
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
    /// Whether a log of this incarnation and with this floor can go on from here without a gap.
    pub fn check(&self, incarnation: &str, floor: u64) -> Result<(), CursorExpired> {
        if self.incarnation == incarnation && self.seq >= floor {
            return Ok(());
        }
        Err(CursorExpired { oldest: Cursor { incarnation: incarnation.to_owned(), seq: floor } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_cursors_can_go_on() {
        for (incarnation, seq, floor, ok) in
            [("a", 5, 4, true), ("a", 5, 5, true), ("a", 5, 6, false), ("b", 5, 0, false)]
        {
            let cursor = Cursor { incarnation: incarnation.into(), seq };
            assert_eq!(cursor.check("a", floor).is_ok(), ok, "{cursor:?} at {floor}");
        }
    }
}
