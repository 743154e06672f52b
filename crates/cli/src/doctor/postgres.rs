//! Runs all checks of a Postgres database.

use std::time::{Duration, SystemTime};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Row};
use windlass_store_postgres::{Options, connect, read_format};

use crate::doctor::finding::Finding;
use crate::doctor::{durability, indexes, pooler, records, server, tables, transactions};

/// The timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One query, and how its result is judged.
pub(super) struct QueryCheck {
    pub(super) check: &'static str,
    /// `{schema}` is the name of the schema, `{long}` how long a transaction may be open.
    pub(super) sql: &'static str,
    pub(super) judge: fn(&QueryResult<'_>) -> Result<Vec<Finding>, Error>,
}

/// A query result, with all that is needed to judge it.
pub(super) struct QueryResult<'a> {
    pub(super) rows: &'a [Row],
    pub(super) config: &'a Config,
    pub(super) options: &'a Options,
    pub(super) before: SystemTime,
    pub(super) after: SystemTime,
}

impl QueryResult<'_> {
    /// The only row of a result that always has one.
    pub(super) fn row(&self) -> &Row {
        &self.rows[0]
    }
}

/// Checks of any database.
const OF_SERVER: &[&[QueryCheck]] =
    &[server::CHECKS, durability::CHECKS, transactions::CHECKS, tables::CHECKS];

/// Checks that need the tables.
const OF_TABLES: &[&[QueryCheck]] = &[tables::CHECKS_OF_CONTENTS, indexes::CHECKS];

pub(super) async fn examine(url: &str, long: Duration) -> Vec<Finding> {
    let connected = tokio::time::timeout(TIMEOUT, connect(url)).await;
    let unreachable = |why: String| {
        let advice = "check that the server runs, the URL is right and the role may log in";
        vec![Finding::problem("connection", why, advice)]
    };
    let (client, options) = match connected {
        Ok(Ok(connected)) => connected,
        Ok(Err(error)) => return unreachable(error.to_string()),
        Err(_) => return unreachable(format!("no answer within {} s", TIMEOUT.as_secs())),
    };
    let config = match Options::parse(url) {
        Ok((config, _)) => config,
        Err(error) => return unreachable(error.to_string()),
    };
    let database = CheckedDatabase { client, config, options, long };
    let mut findings = vec![Finding::ok("connection", "the server answers")];
    for check in OF_SERVER.iter().copied().flatten() {
        findings.extend(database.run(check).await);
    }
    let format = read_format(&database.client, &database.options.schema).await;
    if let Some(finding) = tables::of_unreleased(&format) {
        findings.push(finding);
    } else if tables::are_there(&findings) {
        for check in OF_TABLES.iter().copied().flatten() {
            findings.extend(database.run(check).await);
        }
        let schema = &database.options.schema;
        findings.push(records::of_database(&database.client, schema, TIMEOUT).await);
    }
    let finding = tokio::time::timeout(TIMEOUT, pooler::check(url, database.options.prepare)).await;
    findings.push(finding.unwrap_or_else(|_| pooler::busy()));
    findings
}

/// The database that is checked.
struct CheckedDatabase {
    client: Client,
    config: Config,
    options: Options,
    long: Duration,
}

impl CheckedDatabase {
    /// A check that is not permitted, or that fails, is a finding too.
    async fn run(&self, check: &QueryCheck) -> Vec<Finding> {
        let long = format!("interval '{} milliseconds'", self.long.as_millis());
        let sql = check.sql.replace("{schema}", &self.options.schema).replace("{long}", &long);
        let before = SystemTime::now();
        let queried = tokio::time::timeout(TIMEOUT, self.client.query_typed(&sql, &[])).await;
        let Ok(queried) = queried else {
            let found = format!("not checked: no answer within {} s", TIMEOUT.as_secs());
            return vec![Finding::warning(check.check, found, "check again under less load")];
        };
        let judged = queried.and_then(|rows| {
            let (config, options, after) = (&self.config, &self.options, SystemTime::now());
            (check.judge)(&QueryResult { rows: &rows, config, options, before, after })
        });
        judged.unwrap_or_else(|error| vec![failed(check.check, &error)])
    }
}

fn failed(check: &'static str, error: &Error) -> Finding {
    let advice = match error.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => "check again as a role with that right",
        _ => "report this, with the version of the server",
    };
    let why = error.as_db_error().map_or(error.to_string(), |error| error.message().to_owned());
    Finding::warning(check, format!("not checked: {why}"), advice)
}
