//! The text of every statement, made from the shape of the tables.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use windlass_core::{Index, Scan, Table, TableSpec};
use windlass_store::Query;

/// What each commit keeps of itself: the time, and that this handle's batch is there.
pub(crate) const KEEP_CLOCK: &str = "UPDATE meta SET clock = max(clock, ?)";
pub(crate) const KEEP_BATCH: &str = "INSERT INTO writer (id, batch, at, reopened) \
    VALUES (?, ?, ?, 0) ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, at = excluded.at";

pub(crate) const META: &str = "SELECT format, lowest, clock FROM meta WHERE id = 1";
pub(crate) const DATA_VERSION: &str = "PRAGMA data_version";

pub(crate) const LOG_HEAD: &str = "SELECT seq, at FROM event ORDER BY seq LIMIT ?";
pub(crate) const EVENTS: &str = "SELECT seq, at, tenant, lane, task, kind, family, name, body \
    FROM event WHERE seq > ? ORDER BY seq LIMIT ?";
pub(crate) const TRIM: &str = "DELETE FROM event WHERE seq <= ?";

/// A payload of the same key is written over: keys are unique to one life of their owner, and
/// what an earlier life left behind means nothing to anybody.
pub(crate) const PUT_PAYLOAD: &str = "INSERT OR REPLACE INTO payload \
    (tenant, task, generation, slot, content_type, bytes) VALUES (?, ?, ?, ?, ?, ?)";
pub(crate) const GET_PAYLOAD: &str = "SELECT content_type, bytes FROM payload \
    WHERE tenant = ? AND task = ? AND generation = ? AND slot = ?";
pub(crate) const DROP_PAYLOAD: &str = "DELETE FROM payload \
    WHERE tenant = ? AND task = ? AND generation = ? AND slot = ?";

/// How many events one statement takes: it is cheaper by the statement than by the row.
pub(crate) const EVENTS_AT_ONCE: usize = 16;

pub(crate) static APPEND_ONE: LazyLock<String> = LazyLock::new(|| append(1));
pub(crate) static APPEND_MANY: LazyLock<String> = LazyLock::new(|| append(EVENTS_AT_ONCE));

fn append(rows: usize) -> String {
    let values = vec!["(?, ?, ?, ?, ?, ?, ?, ?)"; rows].join(", ");
    format!("INSERT INTO event (at, tenant, lane, task, kind, family, name, body) VALUES {values}")
}

/// The statements of one table. Parameters come in the order key, columns, version, schema,
/// body; in an update the key comes last, followed by the version that must still be there.
pub(crate) struct TableSql {
    pub(crate) select: String,
    pub(crate) check: String,
    pub(crate) insert: String,
    pub(crate) update: String,
    pub(crate) delete: String,
}

pub(crate) fn of(table: Table) -> &'static TableSql {
    static ALL: LazyLock<BTreeMap<Table, TableSql>> =
        LazyLock::new(|| Table::ALL.iter().map(|table| (*table, TableSql::new(*table))).collect());
    &ALL[&table]
}

impl TableSql {
    fn new(table: Table) -> Self {
        let TableSpec { name, key, columns, .. } = table.spec();
        let here = each(key, "= ?", " AND ");
        let own = ["version", "schema", "body"];
        let set = each(&[columns, &own[..]].concat(), "= ?", ", ");
        let all = [key, columns, &own[..]].concat();
        let (names, marks) = (each(&all, "", ", "), vec!["?"; all.len()].join(", "));
        Self {
            select: format!(r#"SELECT version, schema, body FROM "{name}" WHERE {here}"#),
            check: format!(r#"SELECT 1 FROM "{name}" WHERE {here} AND version = ?"#),
            insert: format!(r#"INSERT INTO "{name}" ({names}) VALUES ({marks})"#),
            update: format!(r#"UPDATE "{name}" SET {set} WHERE {here} AND version = ?"#),
            delete: format!(r#"DELETE FROM "{name}" WHERE {here} AND version = ?"#),
        }
    }
}

/// What the text of a scan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    index: Index,
    prefix: usize,
    after: bool,
    until: bool,
}

impl Shape {
    pub(crate) fn of(scan: &Scan) -> Self {
        Self {
            index: scan.range.index,
            prefix: scan.range.prefix.len(),
            after: scan.after.is_some(),
            until: scan.range.until.is_some(),
        }
    }

    /// Parameters come in the order prefix, the rest of `after`, `until`, limit.
    ///
    /// The columns of an index are not null in the rows that are in it, so plain comparisons do.
    /// Naming the index keeps SQLite to it whatever statistics the file holds; naming the
    /// condition of the index is what allows that.
    pub(crate) fn text(self) -> String {
        let spec = self.index.spec();
        let (prefix, rest) = spec.columns.split_at(self.prefix);
        let columns = each(spec.columns, "", ", ");
        let TableSpec { name, key, .. } = self.index.table().spec();
        let present = spec.present;
        // The primary key serves an index of the same columns.
        let by = if spec.columns == *key {
            "NOT INDEXED".to_owned()
        } else {
            format!(r#"INDEXED BY "{name}_{present}""#)
        };
        let mut text = format!(r#"SELECT {columns}, version, schema, body FROM "{name}" {by}"#);
        text += &format!(r#" WHERE "{present}" IS NOT NULL"#);
        for column in prefix {
            text += &format!(r#" AND "{column}" = ?"#);
        }
        if self.after {
            text += &behind(rest);
        }
        if self.until {
            text += &format!(r#" AND "{}" <= ?"#, rest[0]);
        }
        text + &format!(" ORDER BY {columns} LIMIT ?")
    }
}

/// A list for people. Parameters come in the order prefix, filter, after, limit.
pub(crate) fn list(query: &Query) -> String {
    let TableSpec { name, key, .. } = query.table.spec();
    let keys = each(key, "", ", ");
    let mut text = format!(r#"SELECT {keys}, version, schema, body FROM "{name}" WHERE true"#);
    for column in key.iter().take(query.prefix.len()) {
        text += &format!(r#" AND "{column}" = ?"#);
    }
    for (column, _) in &query.filter {
        text += &format!(r#" AND "{column}" IS ?"#);
    }
    if query.after.is_some() {
        text += &behind(key);
    }
    text + &format!(" ORDER BY {keys} LIMIT ?")
}

/// The condition that a row lies behind a position.
fn behind(columns: &[&str]) -> String {
    let marks = vec!["?"; columns.len()].join(", ");
    format!(" AND ({}) > ({marks})", each(columns, "", ", "))
}

fn each(names: &[&str], suffix: &str, separator: &str) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!(r#""{name}" {suffix}"#)).collect();
    quoted.join(separator)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn plan(conn: &Connection, text: &str) -> Vec<String> {
        let mut stmt = conn.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
        let detail = |row: &rusqlite::Row<'_>| row.get("detail");
        let mut rows = stmt.raw_query();
        let mut details = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            details.push(detail(row).unwrap());
        }
        details
    }

    fn migrated() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../migrations/0001_tables.sql")).unwrap();
        conn
    }

    fn check(conn: &Connection, shape: Shape) {
        let spec = shape.index.spec();
        let TableSpec { name, key, .. } = shape.index.table().spec();
        let used = if spec.columns == *key {
            format!("SEARCH {name} USING PRIMARY KEY")
        } else {
            format!("SEARCH {name} USING INDEX {name}_{}", spec.present)
        };
        let found = plan(conn, &shape.text());
        assert_eq!(found.len(), 1, "{shape:?}: {found:?}");
        // Without any bound there is nothing to search for.
        let whole = shape.prefix == 0 && !shape.after && !shape.until;
        assert!(whole || found[0].starts_with(&used), "{shape:?}: {found:?}");
        assert_eq!(found[0].matches("=?").count(), shape.prefix, "{shape:?}: {found:?}");
    }

    #[test]
    fn every_scan_is_one_search_of_its_index() {
        let conn = migrated();
        for spec in Table::ALL.iter().flat_map(|table| table.spec().indexes) {
            for prefix in 0..spec.columns.len() {
                for (after, until) in [(false, false), (true, false), (false, true), (true, true)] {
                    check(&conn, Shape { index: spec.index, prefix, after, until });
                }
            }
        }
    }
}
