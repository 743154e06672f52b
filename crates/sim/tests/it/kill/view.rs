//! The content of a file, read without any code of the store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, Result, Row};
use windlass_core::{Change, Task, read_row};

#[derive(Debug, Default)]
pub(crate) struct View {
    /// SQLite's integrity check of the file.
    pub(crate) integrity: String,
    pub(crate) tasks: BTreeMap<String, Arc<Task>>,
    pub(crate) results: BTreeMap<String, String>,
    pub(crate) last_seq: i64,
    pub(crate) seqs: Vec<i64>,
    /// The log, task by task.
    pub(crate) histories: BTreeMap<String, Vec<(i64, Change)>>,
}

impl View {
    /// Reads everything in one transaction: other processes may be writing.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let mut conn = Connection::open(file)?;
        conn.busy_timeout(std::time::Duration::from_secs(10))?;
        let tx = conn.transaction()?;
        let integrity = tx.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
        if tx.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0)) == Ok(0) {
            // The process that was to create the tables was killed before.
            return Ok(Self { integrity, ..Self::default() });
        }
        let mut view = Self {
            integrity,
            tasks: rows(&tx, "SELECT id, schema, body FROM task", task)?.into_iter().collect(),
            results: rows(&tx, RESULTS, |row| row.try_into())?.into_iter().collect(),
            last_seq: tx.query_row("SELECT last_seq FROM meta", (), |row| row.get(0))?,
            seqs: Vec::new(),
            histories: BTreeMap::new(),
        };
        for (seq, task, change) in
            rows(&tx, "SELECT seq, task, body FROM event ORDER BY seq", entry)?
        {
            view.seqs.push(seq);
            view.histories.entry(task).or_default().push((seq, change));
        }
        Ok(view)
    }

    /// The number of such changes in the log.
    pub(crate) fn count(&self, such: fn(&Change) -> bool) -> usize {
        self.histories.values().flatten().filter(|(_, change)| such(change)).count()
    }

    pub(crate) fn history(&self, id: &str) -> &[(i64, Change)] {
        self.histories.get(id).map_or(&[], Vec::as_slice)
    }
}

const RESULTS: &str = "SELECT task, CAST(bytes AS TEXT) FROM payload WHERE slot = 'result'";

fn rows<T>(conn: &Connection, sql: &str, read: fn(&Row<'_>) -> Result<T>) -> Result<Vec<T>> {
    conn.prepare(sql)?.query_map((), read)?.collect()
}

fn task(row: &Row<'_>) -> Result<(String, Arc<Task>)> {
    let (id, schema, body): (String, _, String) = row.try_into()?;
    let task = read_row::<Task>(schema, &body).expect("a task that was written can be read");
    Ok((id, task))
}

fn entry(row: &Row<'_>) -> Result<(i64, String, Change)> {
    let (seq, task, body): (i64, Option<String>, String) = row.try_into()?;
    let change = serde_json::from_str(&body).expect("an entry that was written can be read");
    Ok((seq, task.unwrap_or_default(), change))
}
