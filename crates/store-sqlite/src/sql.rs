//! The SQL statements, generated from the table specs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use windlass_core::{IndexSpec, Range, Scan, Table, TableSpec, Value};
use windlass_store::{Count, Query};

/// The commit mark: time, last sequence number of the log, and batch number of this handle.
pub(crate) const SET_CLOCK: &str = "UPDATE meta SET clock = max(clock, ?), last_seq = ?";
pub(crate) const SET_BATCH: &str = "INSERT INTO writer (id, batch, at, reopened) \
    VALUES (?, ?, ?, 0) ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, at = excluded.at";

pub(crate) const META: &str = "SELECT format, lowest_compatible, clock, last_seq FROM meta";
pub(crate) const LOG: &str = "SELECT incarnation, last_seq FROM meta WHERE id = 1";
pub(crate) const RENEW: &str = "UPDATE meta SET incarnation = ? WHERE id = 1";
pub(crate) const DATA_VERSION: &str = "PRAGMA data_version";
pub(crate) const LOG_HEAD: &str = "SELECT seq, at FROM event ORDER BY seq LIMIT ?";
pub(crate) const APPEND: &str = "INSERT INTO event \
    (seq, at, tenant, lane, task, kind, category, name, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
pub(crate) const EVENTS: &str = "SELECT seq, at, tenant, lane, task, kind, category, name, body \
    FROM event WHERE seq > ? ORDER BY seq LIMIT ?";
pub(crate) const TRIM: &str = "DELETE FROM event WHERE seq <= ?";

/// Overwrites a payload with the same key: keys are unique to one incarnation of their owner, and a
/// leftover of an earlier one has no reader.
pub(crate) const PUT_PAYLOAD: &str = "INSERT OR REPLACE INTO payload \
    (tenant, task, execution, slot, content_type, bytes) VALUES (?, ?, ?, ?, ?, ?)";
pub(crate) const GET_PAYLOAD: &str = "SELECT content_type, bytes FROM payload \
    WHERE tenant = ? AND task = ? AND execution = ? AND slot = ?";
pub(crate) const DROP_PAYLOAD: &str = "DELETE FROM payload \
    WHERE tenant = ? AND task = ? AND execution = ? AND slot = ?";

/// The statements of one table. Parameters are ordered key, columns, version, schema, body; in an
/// update the key comes last, followed by the expected version.
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

/// Parameters are ordered prefix, the rest of `after`, `until`, limit.
///
/// Index columns are not null in indexed rows, so plain comparisons suffice. INDEXED BY fixes the
/// index regardless of statistics; SQLite allows it only if the index condition is repeated.
pub(crate) fn scan(scan: &Scan) -> String {
    let Range { index, prefix, until } = &scan.range;
    let IndexSpec { columns, indexed_when, .. } = index.spec();
    let TableSpec { name, key, .. } = index.table().spec();
    let names = each(columns, "", ", ");
    let mut text = format!(r#"SELECT {names}, version, schema, body FROM "{name}""#);
    // The primary key serves an index with the same columns.
    if columns == key {
        text += " NOT INDEXED";
    } else {
        text += &format!(r#" INDEXED BY "{name}_{indexed_when}""#);
    }
    text += &format!(r#" WHERE "{indexed_when}" IS NOT NULL"#);
    let (same, rest) = columns.split_at(prefix.len());
    for column in same {
        text += &format!(r#" AND "{column}" = ?"#);
    }
    if scan.after.is_some() {
        text += &after(rest);
    }
    if until.is_some() {
        text += &format!(r#" AND "{}" <= ?"#, rest[0]);
    }
    text + &format!(" ORDER BY {names} LIMIT ?")
}

/// A list for people. Parameters are ordered prefix, filter, the rest of `after`, limit.
pub(crate) fn list(query: &Query) -> String {
    let TableSpec { name, key, list_indexes, .. } = query.table.spec();
    let keys = each(key, "", ", ");
    let mut text = format!(r#"SELECT {keys}, version, schema, body FROM "{name}""#);
    let mut filters = query.filter.iter().filter(|_| !query.prefix.is_empty());
    // Without statistics SQLite would prefer to scan the table in key order.
    if let Some((column, _)) = filters.find(|(column, _)| list_indexes.contains(column)) {
        text += &format!(r#" INDEXED BY "{name}_{column}""#);
    }
    text += " WHERE true";
    for column in key.iter().take(query.prefix.len()) {
        text += &format!(r#" AND "{column}" = ?"#);
    }
    for (column, value) in &query.filter {
        // With `=` SQLite can use an index for the order, with `IS` it cannot.
        let is = if *value == Value::Null { "IS" } else { "=" };
        text += &format!(r#" AND "{column}" {is} ?"#);
    }
    if query.after.is_some() {
        text += &after(&key[decided(query)..]);
    }
    text + &format!(" ORDER BY {keys} LIMIT ?")
}

/// The number of rows in each group. Parameters are those of the prefix.
pub(crate) fn count(count: &Count) -> String {
    let TableSpec { name, key, .. } = count.table.spec();
    let by = each(&count.by, "", ", ");
    let mut text = format!(r#"SELECT {by}, count(*) FROM "{name}" WHERE true"#);
    for column in key.iter().take(count.prefix.len()) {
        text += &format!(r#" AND "{column}" = ?"#);
    }
    if let Some(present) = count.present {
        text += &format!(r#" AND "{present}" IS NOT NULL"#);
    }
    text + &format!(" GROUP BY {by} ORDER BY {by}")
}

/// The number of `after` columns that the prefix already fixes. Comparing only the others lets
/// SQLite seek to the position instead of the first row of the prefix.
pub(crate) fn decided(query: &Query) -> usize {
    let prefix = query.prefix.len();
    let same = query.after.as_ref().is_some_and(|after| after.starts_with(&query.prefix));
    if same && prefix < query.table.spec().key.len() { prefix } else { 0 }
}

/// The condition that a row is after a position.
fn after(columns: &[&str]) -> String {
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
        let mut rows = stmt.raw_query();
        let mut details = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            details.push(row.get("detail").unwrap());
        }
        details
    }

    fn migrated() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&crate::open::MIGRATIONS.concat()).unwrap();
        conn
    }

    fn check(conn: &Connection, wanted: &Scan) {
        let spec = wanted.range.index.spec();
        let TableSpec { name, key, .. } = wanted.range.index.table().spec();
        let used = if spec.columns == *key {
            format!("SEARCH {name} USING PRIMARY KEY")
        } else {
            format!("SEARCH {name} USING INDEX {name}_{}", spec.indexed_when)
        };
        let found = plan(conn, &scan(wanted));
        assert_eq!(found.len(), 1, "{wanted:?}: {found:?}");
        // An unbounded scan has nothing to search for.
        let Range { prefix, until, .. } = &wanted.range;
        let whole = prefix.is_empty() && wanted.after.is_none() && until.is_none();
        assert!(whole || found[0].starts_with(&used), "{wanted:?}: {found:?}");
        assert_eq!(found[0].matches("=?").count(), prefix.len(), "{wanted:?}: {found:?}");
    }

    #[test]
    fn every_scan_is_one_search_of_its_index() {
        let conn = migrated();
        for spec in Table::ALL.iter().flat_map(|table| table.spec().indexes) {
            let position = vec![Value::Int(0); spec.columns.len()];
            for prefix in 0..spec.columns.len() {
                for after in [None, Some(position.clone())] {
                    for until in [None, Some(Value::Int(0))] {
                        let prefix = position[..prefix].to_vec();
                        let range = Range { index: spec.index, prefix, until };
                        check(&conn, &Scan { range, after: after.clone(), limit: 1 });
                    }
                }
            }
        }
    }

    #[test]
    fn a_list_page_starts_after_the_previous_page() {
        let conn = migrated();
        let after = Some(vec!["t".into(), "x".into()]);
        for (prefix, expected) in [
            (vec![], "((tenant,id)>(?,?))"),
            (vec!["t".into()], "(tenant=? AND id>?)"),
            (vec!["u".into()], "(tenant=?)"),
        ] {
            let query = Query { prefix, after: after.clone(), ..Query::all(Table::Task, 10) };
            let found = plan(&conn, &list(&query));
            assert_eq!(found, [format!("SEARCH task USING PRIMARY KEY {expected}")], "{query:?}");
        }
    }

    #[test]
    fn lists_and_counts_by_state_use_an_index() {
        let conn = migrated();
        let query = Query {
            prefix: vec!["t".into()],
            filter: vec![("state", "failed".into())],
            ..Query::all(Table::Task, 10)
        };
        let by_state = "SEARCH task USING INDEX task_state (tenant=? AND state=?";
        assert_eq!(plan(&conn, &list(&query)), [format!("{by_state})")]);
        let after = Some(vec!["t".into(), "x".into()]);
        let found = plan(&conn, &list(&Query { after, ..query }));
        assert_eq!(found, [format!("{by_state} AND id>?)")]);
        let states = Count {
            table: Table::Task,
            prefix: vec!["t".into()],
            present: None,
            by: vec!["state"],
        };
        let found = plan(&conn, &count(&states));
        assert_eq!(found, ["SEARCH task USING COVERING INDEX task_state (tenant=?)"]);
        let ready = Count { present: Some("ready_at"), by: vec!["lane"], ..states };
        let found = plan(&conn, &count(&ready));
        assert_eq!(found, ["SEARCH task USING COVERING INDEX task_ready_at (tenant=?)"]);
    }
}
