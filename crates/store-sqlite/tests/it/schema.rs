use std::collections::BTreeSet;

use rusqlite::Connection;
use windlass_core::{IndexSpec, Table};

use crate::fixture::Place;

fn texts(conn: &Connection, sql: &str, of: &str) -> Vec<String> {
    let mut stmt = conn.prepare(sql).unwrap();
    stmt.query_map([of], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

fn columns_of_index(conn: &Connection, index: &str) -> Vec<String> {
    texts(conn, "SELECT name FROM pragma_index_info(?) ORDER BY seqno", index)
}

/// Whether an index has the columns and the condition of its spec.
fn serves(conn: &Connection, name: &str, spec: &IndexSpec) -> bool {
    let sql = texts(conn, "SELECT sql FROM sqlite_schema WHERE name = ?", name).remove(0);
    let present = format!("WHERE {} IS NOT NULL", spec.indexed_when);
    columns_of_index(conn, name) == spec.columns && sql.ends_with(&present)
}

#[test]
fn tables_have_exactly_the_columns_and_indexes_of_their_specs() {
    let place = Place::new();
    drop(place.open());
    let conn = place.raw();
    for table in Table::ALL {
        let spec = table.spec();
        let own = ["version", "schema", "body"];
        let wanted = [spec.key, spec.columns, &own[..]].concat();
        let columns = texts(&conn, "SELECT name FROM pragma_table_info(?)", spec.name);
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(columns.iter().cloned().collect::<BTreeSet<_>>(), set(&wanted), "{table:?}");
        let key = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk";
        assert_eq!(texts(&conn, key, spec.name), spec.key, "{table:?}");
        let made = "SELECT name FROM pragma_index_list(?) WHERE origin = 'c'";
        let mut made = texts(&conn, made, spec.name);
        // The primary key serves an index with the same columns.
        for index in spec.indexes.iter().filter(|index| index.columns != spec.key) {
            let at = made.iter().position(|name| serves(&conn, name, index));
            made.remove(at.unwrap_or_else(|| panic!("no index for {:?}", index.index)));
        }
        for column in spec.list_indexes {
            let wanted = [&spec.key[..1], &[*column], &spec.key[1..]].concat();
            let at = made.iter().position(|name| columns_of_index(&conn, name) == wanted);
            made.remove(at.unwrap_or_else(|| panic!("no index for lists by {column}")));
        }
        assert!(made.is_empty(), "{table:?} has unneeded indexes: {made:?}");
    }
}
