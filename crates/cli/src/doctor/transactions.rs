//! Checks of what prevents the removal of dead rows.

use tokio_postgres::Error;

use crate::doctor::finding::Finding;
use crate::doctor::postgres::{QueryCheck, QueryResult};
use crate::duration::brief;
use crate::output::one_line;

/// Transactions older than this are a problem.
const HARMFUL_SECONDS: f64 = 3_600.0;

pub(super) const CHECKS: &[QueryCheck] = &[
    QueryCheck {
        check: "rights to look",
        sql: "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), current_user::text",
        judge: visibility,
    },
    QueryCheck {
        check: "long transactions",
        sql: "SELECT pid::bigint, coalesce(usename::text, ''), coalesce(state, ''), \
              extract(epoch FROM clock_timestamp() - xact_start)::float8, coalesce(query, '') \
              FROM pg_stat_activity WHERE datname = current_database() \
              AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
              AND xact_start < clock_timestamp() - {long} ORDER BY xact_start",
        judge: long,
    },
    QueryCheck {
        check: "prepared transactions",
        sql: "SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8 \
              FROM pg_prepared_xacts WHERE database = current_database() \
              AND prepared < clock_timestamp() - {long} ORDER BY prepared",
        judge: prepared,
    },
    QueryCheck {
        check: "replication slots",
        sql: "SELECT slot_name::text, coalesce(pg_size_pretty(pg_wal_lsn_diff(CASE \
              WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() \
              ELSE pg_current_wal_lsn() END, restart_lsn)), 'nothing'), \
              xmin IS NOT NULL OR catalog_xmin IS NOT NULL \
              FROM pg_replication_slots WHERE NOT active ORDER BY slot_name",
        judge: slots,
    },
];

fn visibility(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    let (sees_all, role): (bool, String) = (result.row().try_get(0)?, result.row().try_get(1)?);
    Ok(vec![if sees_all {
        Finding::ok("rights to look", format!("{role} sees the sessions of all roles"))
    } else {
        let found = format!("{role} sees only its own sessions: long ones may be hidden");
        let advice = format!("GRANT pg_read_all_stats TO {role}, or check again as another role");
        Finding::warning("rights to look", found, advice)
    }])
}

fn long(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    const CHECK: &str = "long transactions";
    let mut findings = Vec::new();
    for row in result.rows {
        let (pid, user): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        let (state, seconds): (String, f64) = (row.try_get(2)?, row.try_get(3)?);
        let query: String = row.try_get(4)?;
        let (age, query) = (age_text(seconds), one_line(&query));
        let found = format!("process {pid} of {user}, {state} for {age}: {query}");
        let advice = format!(
            "end it, it retains dead rows: SELECT \
            pg_terminate_backend({pid})"
        );
        findings.push(if seconds >= HARMFUL_SECONDS {
            Finding::problem(CHECK, found, advice)
        } else {
            Finding::warning(CHECK, found, advice)
        });
    }
    Ok(or_none(findings, CHECK, "none that is long"))
}

fn prepared(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    const CHECK: &str = "prepared transactions";
    let mut findings = Vec::new();
    for row in result.rows {
        let (name, seconds): (String, f64) = (row.try_get(0)?, row.try_get(1)?);
        let found = format!("{} since {}", one_line(&name), age_text(seconds));
        let advice = "let its program end it, or ROLLBACK PREPARED: it retains dead rows";
        findings.push(if seconds >= HARMFUL_SECONDS {
            Finding::problem(CHECK, found, advice)
        } else {
            Finding::warning(CHECK, found, advice)
        });
    }
    Ok(or_none(findings, CHECK, "none that is long"))
}

fn slots(result: &QueryResult<'_>) -> Result<Vec<Finding>, Error> {
    const CHECK: &str = "replication slots";
    let mut findings = Vec::new();
    for row in result.rows {
        let (name, retained): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let holds = if row.try_get(2)? { " and dead rows" } else { "" };
        let found = format!("{name} has no reader: it retains {retained} of WAL{holds}");
        let advice = format!("start its reader, or SELECT pg_drop_replication_slot('{name}')");
        findings.push(Finding::warning(CHECK, found, advice));
    }
    Ok(or_none(findings, CHECK, "none without a reader"))
}

fn age_text(seconds: f64) -> String {
    brief((seconds * 1_000.0) as u64)
}

fn or_none(findings: Vec<Finding>, check: &'static str, none: &str) -> Vec<Finding> {
    if findings.is_empty() { vec![Finding::ok(check, none)] } else { findings }
}
