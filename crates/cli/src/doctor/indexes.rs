use std::collections::BTreeMap;

use tokio_postgres::Error;
use windlass_store_postgres::MIGRATIONS;

use crate::doctor::finding::Finding;
use crate::doctor::plan::{Plan, columns};
use crate::doctor::postgres::{QueryCheck, QueryResult};

const CHECK: &str = "indexes";

pub(super) const CHECKS: &[QueryCheck] = &[QueryCheck {
    check: CHECK,
    sql: "SELECT i.relname::text, t.relname::text, x.indisvalid AND x.indisready, \
          x.indisprimary, pg_get_indexdef(i.oid), coalesce(s.idx_scan, 0), \
          pg_size_pretty(pg_relation_size(i.oid)) FROM pg_index AS x \
          JOIN pg_class AS i ON i.oid = x.indexrelid JOIN pg_class AS t ON t.oid = x.indrelid \
          JOIN pg_namespace AS n ON n.oid = t.relnamespace \
          LEFT JOIN pg_stat_user_indexes AS s ON s.indexrelid = i.oid \
          WHERE n.nspname = '{schema}' AND t.relkind = 'r' ORDER BY 1",
    judge: indexes,
}];

/// An index as it exists in the database.
struct Index {
    table: String,
    is_valid: bool,
    is_primary: bool,
    definition: String,
    scans: i64,
    size: String,
}

fn indexes(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let mut there = BTreeMap::new();
    for row in result.rows {
        let index = Index {
            table: row.try_get(1)?,
            is_valid: row.try_get(2)?,
            is_primary: row.try_get(3)?,
            definition: row.try_get(4)?,
            scans: row.try_get(5)?,
            size: row.try_get(6)?,
        };
        there.insert(row.try_get::<_, String>(0)?, index);
    }
    let plan = Plan::of(MIGRATIONS);
    let mut findings = missing(&plan, &there, &result.options.schema);
    for (name, index) in &there {
        findings.extend(judge(&plan, name, index, &result.options.schema));
    }
    if findings.is_empty() {
        let unused: Vec<&str> =
            there.iter().filter(|(_, it)| it.scans == 0).map(|(name, _)| name.as_str()).collect();
        let unused = if unused.is_empty() { "none".to_owned() } else { unused.join(", ") };
        let found = format!("{} as expected; not used so far: {unused}", there.len());
        findings.push(Finding::ok(CHECK, found));
    }
    Ok(findings)
}

fn missing(plan: &Plan, there: &BTreeMap<String, Index>, schema: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in &plan.tables {
        if !there.values().any(|index| index.is_primary && index.table == *table) {
            let advice = "restore it from a backup: rows may be duplicated";
            findings.push(Finding::problem(CHECK, format!("{table} has no primary key"), advice));
        }
    }
    for (name, statement) in &plan.indexes {
        if !there.contains_key(name) {
            let advice = format!("create it again: SET search_path = {schema}; {statement}");
            findings.push(Finding::problem(CHECK, format!("{name} is missing"), advice));
        }
    }
    findings
}

fn judge(plan: &Plan, name: &str, index: &Index, schema: &str) -> Option<Finding> {
    let planned = plan.indexes.get(name);
    if !index.is_valid {
        let advice = format!("REINDEX INDEX CONCURRENTLY {schema}.{name}");
        return Some(Finding::problem(CHECK, format!("{name} is not valid"), advice));
    }
    if let Some(statement) = planned {
        let found = columns(&index.definition);
        let advice = format!("drop it, then: SET search_path = {schema}; {statement}");
        let found = (found != columns(statement)).then(|| format!("{name} has columns {found}"));
        return found.map(|found| Finding::problem(CHECK, found, advice));
    }
    if index.is_primary {
        return None;
    }
    let (table, scans, size) = (&index.table, index.scans, &index.size);
    let found = format!("{name} on {table} is not from Windlass: {size}, used {scans} times");
    let advice = format!("DROP INDEX {schema}.{name}, unless you need it: every write pays for it");
    Some(Finding::warning(CHECK, found, advice))
}
