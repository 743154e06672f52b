//! Goes through everything that there is to see of a database.

use std::time::{Duration, SystemTime};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Row};
use windlass_store_postgres::{Options, connect};

use crate::doctor::finding::Finding;
use crate::doctor::{durability, indexes, pooler, records, server, tables, transactions};

/// How long to wait for any one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One question to the database, and what its answer means.
pub(super) struct Look {
    pub(super) check: &'static str,
    /// `{schema}` is the name of the schema, `{long}` how long a transaction may be open.
    pub(super) sql: &'static str,
    pub(super) judge: fn(&Seen<'_>) -> Result<Vec<Finding>, Error>,
}

/// An answer, with all that may be needed to judge it.
pub(super) struct Seen<'a> {
    pub(super) rows: &'a [Row],
    pub(super) config: &'a Config,
    pub(super) options: &'a Options,
    pub(super) before: SystemTime,
    pub(super) after: SystemTime,
}

impl Seen<'_> {
    /// The only row of an answer that always has one.
    pub(super) fn row(&self) -> &Row {
        &self.rows[0]
    }
}

/// What can be seen of any database.
const OF_SERVER: &[&[Look]] =
    &[server::LOOKS, durability::LOOKS, transactions::LOOKS, tables::LOOKS];

/// What can be seen where there are tables.
const OF_TABLES: &[&[Look]] = &[tables::LOOKS_INSIDE, indexes::LOOKS];

pub(super) async fn examine(url: &str, long: Duration) -> Vec<Finding> {
    let asked = tokio::time::timeout(PATIENCE, connect(url)).await;
    let unreachable = |why: String| {
        let advice = "see that the server runs, that the URL is right and that the role may log in";
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
    if tables::are_there(&findings) {
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

/// A database that is looked at.
struct Patient {
    client: Client,
    config: Config,
    options: Options,
    long: Duration,
}

impl Patient {
    /// A look that is not allowed, or fails in another way, is a finding too.
    async fn take(&self, look: &Look) -> Vec<Finding> {
        let long = format!("interval '{} milliseconds'", self.long.as_millis());
        let sql = look.sql.replace("{schema}", &self.options.schema).replace("{long}", &long);
        let before = SystemTime::now();
        let asked = tokio::time::timeout(PATIENCE, self.client.query_typed(&sql, &[])).await;
        let Ok(asked) = asked else {
            let found = format!("not looked at: no answer within {} s", PATIENCE.as_secs());
            return vec![Finding::warning(look.check, found, "look again when less is going on")];
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
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => "look again as a role that may",
        _ => "report this, with the version of the server",
    };
    let why = error.as_db_error().map_or(error.to_string(), |said| said.message().to_owned());
    Finding::warning(check, format!("not looked at: {why}"), advice)
}
