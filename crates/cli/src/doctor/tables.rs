use tokio_postgres::Error;
use windlass_store::StoreError;
use windlass_store_postgres::{FORMAT, MIGRATIONS};

use crate::doctor::finding::{Finding, Level};
use crate::doctor::plan::Plan;
use crate::doctor::postgres::{QueryCheck, QueryResult};
use crate::duration::brief;

const TABLES: &str = "tables";

pub(super) const CHECKS: &[QueryCheck] = &[
    QueryCheck {
        check: "autovacuum",
        sql: "SELECT current_setting('autovacuum'), current_setting('track_counts')",
        judge: autovacuum,
    },
    QueryCheck {
        check: TABLES,
        sql: "SELECT c.relname::text FROM pg_class AS c \
              JOIN pg_namespace AS n ON n.oid = c.relnamespace \
              WHERE n.nspname = '{schema}' AND c.relkind IN ('r', 'p')",
        judge: tables,
    },
];

pub(super) const CHECKS_OF_CONTENTS: &[QueryCheck] = &[
    QueryCheck {
        check: "format",
        sql: "SELECT format, lowest_compatible FROM \"{schema}\".meta",
        judge: format,
    },
    QueryCheck {
        check: "rights",
        sql: "SELECT c.relname::text FROM pg_class AS c \
              JOIN pg_namespace AS n ON n.oid = c.relnamespace, \
              unnest(CASE c.relkind WHEN 'S' THEN ARRAY['SELECT', 'UPDATE'] \
                  ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END) AS right_to \
              WHERE n.nspname = '{schema}' AND c.relkind IN ('r', 'S') \
              GROUP BY c.relname HAVING NOT bool_and(CASE c.relkind \
                  WHEN 'S' THEN has_sequence_privilege(c.oid, right_to) \
                  ELSE has_table_privilege(c.oid, right_to) END) \
              ORDER BY 1",
        judge: rights,
    },
    QueryCheck {
        check: "vacuum",
        sql: "SELECT s.relname::text, s.n_live_tup, s.n_dead_tup, \
              extract(epoch FROM clock_timestamp() \
                  - greatest(s.last_vacuum, s.last_autovacuum))::float8, \
              coalesce(array_to_string(c.reloptions, ', '), ''), \
              coalesce(o.threshold, current_setting('autovacuum_vacuum_threshold')::float8) \
              + coalesce(o.scale, current_setting('autovacuum_vacuum_scale_factor')::float8) \
              * greatest(c.reltuples, s.n_live_tup)::float8, coalesce(o.enabled, true) \
              FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid, LATERAL ( \
                  SELECT max(option_value) FILTER (WHERE option_name = \
                      'autovacuum_vacuum_threshold')::float8 AS threshold, \
                  max(option_value) FILTER (WHERE option_name = \
                      'autovacuum_vacuum_scale_factor')::float8 AS scale, \
                  max(option_value) FILTER (WHERE option_name = 'autovacuum_enabled')::boolean \
                      AS enabled \
                  FROM pg_options_to_table(c.reloptions)) AS o \
              WHERE s.schemaname = '{schema}' ORDER BY s.relname",
        judge: vacuum,
    },
];

/// Whether tables were found that can be checked.
pub(super) fn are_there(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.check == TABLES && finding.level == Level::Ok)
}

fn autovacuum(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let (on, counts): (String, String) = (result.row().try_get(0)?, result.row().try_get(1)?);
    let found = format!("autovacuum {on}, track_counts {counts}");
    Ok(vec![if on == "on" && counts == "on" {
        Finding::ok("autovacuum", found)
    } else {
        let advice = "turn both on: without them dead rows slow down claims";
        Finding::problem("autovacuum", found, advice)
    }])
}

fn tables(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let mut there = Vec::new();
    for row in result.rows {
        there.push(row.try_get::<_, String>(0)?);
    }
    let schema = &result.options.schema;
    let planned = Plan::of(MIGRATIONS).tables;
    let missing: Vec<_> = planned.iter().filter(|table| !there.contains(table)).collect();
    Ok(vec![if missing.is_empty() {
        Finding::ok(TABLES, format!("all {} of them in schema {schema}", planned.len()))
    } else if missing.len() == planned.len() {
        let found = format!("none in schema {schema}");
        Finding::problem(TABLES, found, "create them: windlass migrate")
    } else if there.iter().any(|table| table == "meta") {
        let names: Vec<&str> = missing.iter().map(|name| name.as_str()).collect();
        let found = format!("schema {schema} lacks {}", names.join(", "));
        Finding::problem(TABLES, found, "windlass migrate; if that does not help, restore a backup")
    } else {
        let found = format!("schema {schema} has other tables");
        Finding::problem(TABLES, found, "name another one: schema=NAME in the URL")
    }])
}

fn format(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let (format, lowest): (i64, i64) = (result.row().try_get(0)?, result.row().try_get(1)?);
    Ok(vec![of_format(format, lowest, FORMAT)])
}

/// A store of an unreleased format; none for any other result of reading the format.
pub(super) fn of_unreleased(format: &Result<Option<i64>, StoreError>) -> Option<Finding> {
    let error = format.as_ref().err().filter(|error| error_is_unreleased(error))?;
    let advice = "no released version reads it: name another file or schema, or remove this one";
    Some(Finding::problem("format", error.to_string(), advice))
}

fn error_is_unreleased(error: &StoreError) -> bool {
    matches!(error, StoreError::Unreleased { .. })
}

/// Judges the format of any store.
pub(super) fn of_format(format: i64, lowest_compatible: i64, supported: i64) -> Finding {
    let lowest = lowest_compatible;
    let found = format!("{format}, usable by programs from {lowest} on; this one has {supported}");
    if lowest > supported {
        Finding::problem("format", found, "use a later version of this program")
    } else if format < supported {
        Finding::warning("format", found, "run windlass migrate; the next engine does it otherwise")
    } else {
        Finding::ok("format", found)
    }
}

fn rights(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let mut closed = Vec::new();
    for row in result.rows {
        closed.push(row.try_get::<_, String>(0)?);
    }
    Ok(vec![if closed.is_empty() {
        Finding::ok("rights", "this role may read and write every table")
    } else {
        let found = format!("this role may not read and write {}", closed.join(", "));
        let schema = &result.options.schema;
        let advice = format!("GRANT ALL ON ALL TABLES IN SCHEMA {schema}, and on its sequences");
        Finding::problem("rights", found, advice)
    }])
}

fn vacuum(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for row in result.rows {
        let (table, live): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        let (dead, age): (i64, Option<f64>) = (row.try_get(2)?, row.try_get(3)?);
        let (settings, due): (String, f64) = (row.try_get(4)?, row.try_get(5)?);
        let age = age.map_or("never vacuumed".to_owned(), |seconds| {
            format!("vacuumed {} ago", brief((seconds * 1_000.0) as u64))
        });
        let settings = if settings.is_empty() { settings } else { format!("; {settings}") };
        let found = format!("{table}: {live} live and {dead} dead rows, {age}{settings}");
        findings.push(if !row.try_get::<_, bool>(6)? {
            let schema = &result.options.schema;
            let advice = format!("ALTER TABLE {schema}.{table} RESET (autovacuum_enabled)");
            Finding::problem("vacuum", found, advice)
        } else if dead as f64 > 2.0 * due {
            let advice = "autovacuum does not keep up: end long transactions, give it more workers \
                or a lower autovacuum_vacuum_cost_delay";
            Finding::warning("vacuum", found, advice)
        } else {
            Finding::ok("vacuum", found)
        });
    }
    Ok(findings)
}
