//! Runs all checks of a Postgres database.

use std::time::{Duration, SystemTime};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Row};
use windlass_store_postgres::{Options, connect, read_format};

use crate::doctor::finding::Finding;
use crate::doctor::{durability, indexes, pooler, records, server, tables, transactions};

/// The timeout of a query.
const PATIENCE: Duration = Duration::from_secs(10);

/// One query, and how its result is judged.
pub(super) struct Look {
    pub(super) check: &'static str,
    /// `{schema}` is the name of the schema, `{long}` how long a transaction may be open.
    pub(super) sql: &'static str,
    pub(super) judge: fn(&Seen<'_>) -> Result<Vec<Finding>, Error>,
}

/// A query result, with all that is needed to judge it.
pub(super) struct Seen<'a> {
    pub(super) rows: &'a [Row],
    pub(super) config: &'a Config,
    pub(super) options: &'a Options,
    pub(super) before: SystemTime,
    pub(super) after: SystemTime,
}

impl Seen<'_> {
    /// The only row of a result that always has one.
    pub(super) fn row(&self) -> &Row {
        &self.rows[0]
    }
}

/// Checks of any database.
const OF_SERVER: &[&[Look]] =
    &[server::LOOKS, durability::LOOKS, transactions::LOOKS, tables::LOOKS];

/// Checks that need the tables.
const OF_TABLES: &[&[Look]] = &[tables::LOOKS_INSIDE, indexes::LOOKS];

pub(super) async fn examine(url: &str, long: Duration) -> Vec<Finding> {
    let asked = tokio::time::timeout(PATIENCE, connect(url)).await;
    let unreachable = |why: String| {
        let advice = "check that the server runs, the URL is right and the role may log in";
        vec![Finding::problem("connection", why, advice)]
    };
    let (client, options) = match asked {
        Ok(Ok(connected)) => connected,
        Ok(Err(error)) => return unreachable(error.to_string()),
        Err(_) => return unreachable(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    let config = match Options::parse(url) {
        Ok((config, _)) => config,
        Err(error) => return unreachable(error.to_string()),
    };
    let patient = Patient { client, config, options, long };
    let mut findings = vec![Finding::ok("connection", "the server answers")];
    for look in OF_SERVER.iter().copied().flatten() {
        findings.extend(patient.take(look).await);
    }
    let format = read_format(&patient.client, &patient.options.schema).await;
    if let Some(finding) = tables::of_unreleased(&format) {
        findings.push(finding);
    } else if tables::are_there(&findings) {
        for look in OF_TABLES.iter().copied().flatten() {
            findings.extend(patient.take(look).await);
        }
        let schema = &patient.options.schema;
        findings.push(records::of_database(&patient.client, schema, PATIENCE).await);
    }
    let looked = tokio::time::timeout(PATIENCE, pooler::look(url, patient.options.prepare)).await;
    findings.push(looked.unwrap_or_else(|_| pooler::busy()));
    findings
}

/// The database that is checked.
struct Patient {
    client: Client,
    config: Config,
    options: Options,
    long: Duration,
}

impl Patient {
    /// A check that is not permitted, or that fails, is a finding too.
    async fn take(&self, look: &Look) -> Vec<Finding> {
        let long = format!("interval '{} milliseconds'", self.long.as_millis());
        let sql = look.sql.replace("{schema}", &self.options.schema).replace("{long}", &long);
        let before = SystemTime::now();
        let asked = tokio::time::timeout(PATIENCE, self.client.query_typed(&sql, &[])).await;
        let Ok(asked) = asked else {
            let found = format!("not checked: no answer within {} s", PATIENCE.as_secs());
            return vec![Finding::warning(look.check, found, "check again under less load")];
        };
        let judged = asked.and_then(|rows| {
            let (config, options, after) = (&self.config, &self.options, SystemTime::now());
            (look.judge)(&Seen { rows: &rows, config, options, before, after })
        });
        judged.unwrap_or_else(|error| vec![failed(look.check, &error)])
    }
}

fn failed(check: &'static str, error: &Error) -> Finding {
    let advice = match error.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => "check again as a role with that right",
        _ => "report this, with the version of the server",
    };
    let why = error.as_db_error().map_or(error.to_string(), |said| said.message().to_owned());
    Finding::warning(check, format!("not checked: {why}"), advice)
}
