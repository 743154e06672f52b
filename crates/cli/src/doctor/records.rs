//! Records that this program cannot decode: quarantined until an operator repairs them.

use std::time::Duration;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use tokio::time::timeout;
use tokio_postgres::Client;
use windlass_core::{Table, is_readable};

use crate::doctor::finding::Finding;
use crate::output::{counted, printable};

const CHECK: &str = "records";
/// How many are named; the others are only counted.
const NAMED: usize = 20;
/// How many rows one page has.
const PAGE: usize = 1_000;

/// The numbers of readable and unreadable records.
#[derive(Debug, Default)]
struct Census {
    readable: u64,
    unreadable: u64,
    /// Table and key of the first unreadable records.
    named: Vec<String>,
}

impl Census {
    /// Counts a row. `None` is a schema that is not a number, or a body that is not text.
    fn count(&mut self, table: Table, key: &[String], schema: Option<i64>, body: Option<&str>) {
        let schema = schema.and_then(|schema| u16::try_from(schema).ok());
        let is_readable = |(schema, body)| is_readable(table, key, schema, body);
        if schema.zip(body).is_some_and(is_readable) {
            self.readable += 1;
            return;
        }
        self.unreadable += 1;
        if self.named.len() < NAMED {
            let spec = table.spec();
            let of = |(column, value): (&&str, &String)| format!("{column}={}", printable(value));
            let key: Vec<String> = spec.key.iter().zip(key).map(of).collect();
            self.named.push(format!("{} {}", spec.name, key.join(", ")));
        }
    }

    fn finding(self) -> Finding {
        if self.unreadable == 0 {
            return Finding::ok(CHECK, format!("all {} can be read", self.readable));
        }
        let mut found = format!("{} cannot be read", counted(self.unreadable, "record"));
        for name in &self.named {
            found.push('\n');
            found.push_str(name);
        }
        let more = self.unreadable - self.named.len() as u64;
        if more > 0 {
            found.push_str(&format!("\nand {more} more"));
        }
        let advice =
            "use the version of the program that wrote them, or restore them from a backup";
        Finding::problem(CHECK, found, advice)
    }
}

/// All records of a file, of the tables that exist.
pub(super) fn of_file(conn: &Connection) -> rusqlite::Result<Finding> {
    let mut census = Census::default();
    for table in Table::ALL {
        let spec = table.spec();
        if !conn.table_exists(None, spec.name)? {
            continue;
        }
        let columns = spec.key.join(", ");
        let sql = format!("SELECT schema, body, {columns} FROM {}", spec.name);
        let mut statement = conn.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let key = (0..spec.key.len()).map(|at| row.get_ref(at + 2).map(shown));
            let key = key.collect::<rusqlite::Result<Vec<String>>>()?;
            census.count(
                *table,
                &key,
                row.get_ref(0)?.as_i64().ok(),
                row.get_ref(1)?.as_str().ok(),
            );
        }
    }
    Ok(census.finding())
}

fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}

/// All records of a schema, page by page; `page_timeout` is the timeout of one page.
pub(super) async fn of_database(client: &Client, schema: &str, page_timeout: Duration) -> Finding {
    let mut census = Census::default();
    for table in Table::ALL {
        if let Err(why) = of_table(client, schema, *table, page_timeout, &mut census).await {
            // Nothing was written; the rollback only frees the connection for later checks.
            let _ = timeout(page_timeout, client.batch_execute("ROLLBACK")).await;
            let found = format!("not checked: {}: {why}", table.spec().name);
            let advice = "check again as a role that may read every table, or under less load";
            return Finding::warning(CHECK, found, advice);
        }
    }
    census.finding()
}

async fn of_table(
    client: &Client,
    schema: &str,
    table: Table,
    page_timeout: Duration,
    census: &mut Census,
) -> Result<(), String> {
    let spec = table.spec();
    let key: Vec<String> = spec.key.iter().map(|column| format!("{column}::text")).collect();
    // A cursor, so that neither side holds more than one page in memory.
    let open = format!(
        "BEGIN READ ONLY; DECLARE records NO SCROLL CURSOR FOR \
         SELECT schema::bigint, body::text, ARRAY[{}] FROM \"{schema}\".{}",
        key.join(", "),
        spec.name,
    );
    let error_text = |error: tokio_postgres::Error| {
        error.as_db_error().map_or(error.to_string(), |error| error.message().to_owned())
    };
    let late = |_| format!("no answer within {} s", page_timeout.as_secs());
    timeout(page_timeout, client.batch_execute(&open)).await.map_err(late)?.map_err(error_text)?;
    let fetch = format!("FETCH {PAGE} FROM records");
    loop {
        let page = timeout(page_timeout, client.query_typed(&fetch, &[])).await;
        let page = page.map_err(late)?.map_err(error_text)?;
        for row in &page {
            let key: Vec<String> = row.try_get(2).map_err(error_text)?;
            let body: &str = row.try_get(1).map_err(error_text)?;
            census.count(table, &key, Some(row.try_get(0).map_err(error_text)?), Some(body));
        }
        if page.len() < PAGE {
            let end = timeout(page_timeout, client.batch_execute("COMMIT")).await;
            return end.map_err(late)?.map_err(error_text);
        }
    }
}
