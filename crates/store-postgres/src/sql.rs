//! The SQL statements, from `statements.sql` or generated from the table specs.

use std::collections::BTreeMap;

use windlass_core::{Range, RowKey, Scan, Table, TableSpec, Value};
use windlass_store::{Count, Query, SqlFilter};

use crate::pipeline::Param;

/// Statements for the tables of one schema.
#[derive(Debug)]
pub(crate) struct Sql {
    schema: String,
    named: BTreeMap<&'static str, String>,
    pub(crate) optimistic: bool,
}

/// Raises an error unless a statement that returns one row per hit returns exactly as many as its
/// last parameter. The error aborts the transaction, including the pipelined COMMIT.
fn exactly(counted: &str, last: usize) -> String {
    format!("SELECT 1 / (CASE WHEN count(*) = ${last} THEN 1 ELSE 0 END) FROM ({counted}) AS hit")
}

fn exactly_written(writing: &str, last: usize) -> String {
    let check = exactly("SELECT 1 FROM written", last);
    format!("WITH written AS ({writing} RETURNING 1) {check}")
}

impl Sql {
    pub(crate) fn new(schema: &str) -> Self {
        let sections = include_str!("../sql/statements.sql").split("-- @").skip(1);
        let named = sections.map(|section| {
            let (name, text) = section.split_once('\n').expect("a name has its own line");
            (name, text.replace("{schema}", &format!(r#""{schema}""#)))
        });
        Self { schema: schema.to_owned(), named: named.collect(), optimistic: false }
    }

    /// A statement of `statements.sql`.
    pub(crate) fn named(&self, name: &str) -> &str {
        self.named.get(name).expect("the statement exists")
    }

    pub(crate) fn name(&self, table: &str) -> String {
        format!(r#""{}"."{table}""#, self.schema)
    }

    /// `unnest($1::text[], ..) AS k("a", ..)`, from parameter 1 on.
    fn unnest(table: Table, names: &[&str], more: &[(&str, &str)]) -> String {
        let own = names.iter().map(|name| (*name, type_of(table, name)));
        let columns: Vec<(&str, &str)> = own.chain(more.iter().copied()).collect();
        let params = (1..).zip(&columns).map(|(i, (_, kind))| format!("${i}::{kind}[]"));
        let params: Vec<_> = params.collect();
        let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
        format!("unnest({}) AS k({})", params.join(", "), list(&names, ""))
    }

    pub(crate) fn select(&self, table: Table) -> String {
        let TableSpec { name, key, .. } = table.spec();
        let keys = Self::unnest(table, key, &[]);
        let (own, on) = (list(key, "t."), same(key));
        let table = self.name(name);
        format!("SELECT {own}, t.version, t.schema, t.body FROM {keys} JOIN {table} AS t ON {on}")
    }

    /// Locks contended records in key order. Either `waits` for locks, or fails with a conflict.
    pub(crate) fn lock(&self, table: Table, waits: bool) -> Option<String> {
        let TableSpec { name, key, contended, .. } = table.spec();
        let contended = contended.filter(|_| !self.optimistic)?;
        let keys = Self::unnest(table, key, &[]);
        let (table, on, order) = (self.name(name), same(key), list(key, "t."));
        let how = if waits { "" } else { " NOWAIT" };
        Some(format!(
            r#"SELECT 1 FROM {keys} JOIN {table} AS t ON {on}
            WHERE t."{contended}" IS NOT NULL ORDER BY {order} FOR UPDATE OF t{how}"#
        ))
    }

    pub(crate) fn check(&self, table: Table) -> String {
        let TableSpec { name, key, .. } = table.spec();
        let keys = Self::unnest(table, key, &[("version", "bigint")]);
        let (table, on) = (self.name(name), same(key));
        let found = format!(
            "SELECT 1 FROM {keys} JOIN {table} AS t ON {on} AND t.version = k.version \
             FOR SHARE OF t"
        );
        exactly(&found, key.len() + 2)
    }

    pub(crate) fn insert(&self, table: Table) -> String {
        let TableSpec { name, key, columns, .. } = table.spec();
        let all = [*key, columns].concat();
        let rows = Self::unnest(table, &all, OWN);
        let names = [&all[..], &["version", "schema", "body"]].concat();
        let (table, names) = (self.name(name), list(&names, ""));
        format!("INSERT INTO {table} ({names}) SELECT {names} FROM {rows}")
    }

    pub(crate) fn update(&self, table: Table) -> String {
        let TableSpec { name, key, columns, .. } = table.spec();
        let all = [*key, columns].concat();
        let more = [OWN, &[("expected", "bigint")]].concat();
        let rows = Self::unnest(table, &all, &more);
        let set = [columns, &["version", "schema", "body"][..]].concat();
        let set: Vec<_> = set.iter().map(|name| format!(r#""{name}" = k."{name}""#)).collect();
        let (table, on, set) = (self.name(name), same(key), set.join(", "));
        let update = format!(
            "UPDATE {table} AS t SET {set} FROM {rows} WHERE {on} AND t.version = k.expected"
        );
        exactly_written(&update, all.len() + more.len() + 1)
    }

    pub(crate) fn delete(&self, table: Table) -> String {
        let TableSpec { name, key, .. } = table.spec();
        let keys = Self::unnest(table, key, &[("version", "bigint")]);
        let (table, on) = (self.name(name), same(key));
        let delete =
            format!("DELETE FROM {table} AS t USING {keys} WHERE {on} AND t.version = k.version");
        exactly_written(&delete, key.len() + 2)
    }

    /// A page of an index. Rows of consumable indexes are locked; rows that another transaction has
    /// locked are skipped.
    pub(crate) fn scan<'s>(
        &self,
        scan: &'s Scan,
        start: Option<&'s [Value]>,
    ) -> (String, Vec<Param<'s>>) {
        let Range { index, prefix, until } = &scan.range;
        let spec = index.spec();
        let (same, rest) = spec.columns.split_at(prefix.len());
        let mut filter = self.filter(index.table(), &list(spec.columns, ""));
        filter.text += &format!(r#" AND "{}" IS NOT NULL"#, spec.indexed_when);
        filter.compare(same, "=", prefix);
        let after = scan.after.as_deref().map(|after| (after, ">"));
        if let Some((from, how)) = after.or(start.map(|start| (start, ">="))) {
            filter.compare_all(rest, how, &from[prefix.len()..]);
        }
        if let Some(until) = until {
            filter.compare(&rest[..1], "<=", std::slice::from_ref(until));
        }
        let (mut text, params) = page(filter, rest, scan.limit);
        if index.is_consumed() {
            text += " FOR UPDATE SKIP LOCKED";
        }
        (text, params)
    }

    /// A list for people.
    pub(crate) fn list<'q>(&self, query: &'q Query) -> (String, Vec<Param<'q>>) {
        let key = query.table.spec().key;
        let mut filter = self.filter(query.table, &list(key, ""));
        filter.compare(key, "=", &query.prefix);
        for (column, value) in &query.filter {
            filter.compare(&[column], "=", std::slice::from_ref(value));
        }
        if let Some(after) = &query.after {
            filter.compare_all(key, ">", after);
        }
        page(filter, key, query.limit)
    }

    /// The number of rows in each group.
    pub(crate) fn count<'c>(&self, count: &'c Count) -> (String, Vec<Param<'c>>) {
        let TableSpec { name, key, .. } = count.table.spec();
        let (by, table) = (list(&count.by, ""), self.name(name));
        let mut filter = SqlFilter::new(format!("SELECT {by}, count(*) FROM {table} WHERE true"));
        filter.compare(key, "=", &count.prefix);
        if let Some(present) = count.present {
            filter.text += &format!(r#" AND "{present}" IS NOT NULL"#);
        }
        let params = filter.values.into_iter().map(Param::of).collect();
        (filter.text + &format!(" GROUP BY {by} ORDER BY {by}"), params)
    }

    fn filter<'v>(&self, table: Table, columns: &str) -> SqlFilter<'v> {
        let table = self.name(table.spec().name);
        SqlFilter::new(format!("SELECT {columns}, version, schema, body FROM {table} WHERE true"))
    }

    /// The key and column values of many rows, column by column.
    pub(crate) fn columns<'r>(
        &self,
        table: Table,
        rows: &[(&'r RowKey, &'r [Value])],
    ) -> Vec<Param<'r>> {
        let width = rows.first().map_or(0, |(key, columns)| key.values.len() + columns.len());
        let value = |row: &(&'r RowKey, &'r [Value]), i: usize| -> &'r Value {
            let (key, columns) = *row;
            key.values.get(i).unwrap_or_else(|| &columns[i - key.values.len()])
        };
        let spec = table.spec();
        let column = |(i, name): (usize, &&str)| match type_of(table, name) {
            "bigint" => Param::Ints(rows.iter().map(|row| value(row, i).as_int()).collect()),
            _ => Param::Texts(rows.iter().map(|row| value(row, i).as_text()).collect()),
        };
        spec.key.iter().chain(spec.columns).take(width).enumerate().map(column).collect()
    }
}

/// Columns that every table has besides those of its spec.
const OWN: &[(&str, &str)] = &[("version", "bigint"), ("schema", "smallint"), ("body", "text")];

fn type_of(table: Table, column: &str) -> &'static str {
    if table.spec().numbers.contains(&column) { "bigint" } else { "text" }
}

/// Values beyond the range of Postgres are larger than any that it stores.
pub(crate) fn number(n: impl TryInto<i64>) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

fn list(names: &[&str], of: &str) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!(r#"{of}"{name}""#)).collect();
    quoted.join(", ")
}

fn same(key: &[&str]) -> String {
    let each: Vec<_> = key.iter().map(|name| format!(r#"t."{name}" = k."{name}""#)).collect();
    each.join(" AND ")
}

/// A page in this order.
fn page<'v>(filter: SqlFilter<'v>, order: &[&str], limit: usize) -> (String, Vec<Param<'v>>) {
    let SqlFilter { mut text, values } = filter;
    if !order.is_empty() {
        text += &format!(" ORDER BY {}", list(order, ""));
    }
    text += &format!(" LIMIT ${}", values.len() + 1);
    (text, values.into_iter().map(Param::of).chain([Param::Int(number(limit))]).collect())
}
