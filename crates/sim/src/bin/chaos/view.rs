//! The content of the database, read with SQL alone.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use windlass_store_test::postgres::Server;

/// The number of rows of a page.
const PAGE: u64 = 50_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) tasks: BTreeMap<String, Row>,
    /// The log, in sequence order.
    pub(crate) events: Vec<Event>,
    pub(crate) lanes: BTreeMap<String, Lane>,
    /// The results of tasks, as their handlers wrote them.
    pub(crate) results: BTreeMap<String, String>,
}

/// A task as its row has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Row {
    #[serde(skip)]
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) epoch: u64,
    #[serde(default)]
    pub(crate) claims: u32,
    #[serde(default)]
    pub(crate) attempts: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) seq: u64,
    pub(crate) at: i64,
    pub(crate) lane: String,
    /// Empty for events of a lane.
    pub(crate) task: String,
    pub(crate) name: String,
    pub(crate) body: String,
    pub(crate) said: Said,
}

/// The fields of a log event that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Said {
    pub(crate) epoch: Option<u64>,
    pub(crate) attempt: Option<u32>,
    pub(crate) worker: Option<String>,
    pub(crate) limit: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Lane {
    pub(crate) concurrency: Option<LaneLimit>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LaneLimit {
    pub(crate) running: u32,
}

impl View {
    pub(crate) fn read(server: &Server, schema: &str) -> Result<Self, String> {
        Ok(Self {
            tasks: tasks(server, schema)?,
            events: events(server, schema)?,
            lanes: lanes(server, schema)?,
            results: results(server, schema)?,
        })
    }
}

fn tasks(server: &Server, schema: &str) -> Result<BTreeMap<String, Row>, String> {
    let mut tasks = BTreeMap::new();
    loop {
        let last = tasks.last_key_value().map_or("", |(id, _): (&String, _)| id.as_str());
        let text = server.sql(&format!(
            "SELECT id, state, body FROM {schema}.task WHERE id > '{last}' ORDER BY id LIMIT {PAGE}"
        ));
        if text.is_empty() {
            return Ok(tasks);
        }
        for line in text.lines() {
            let [id, state, body] = split(line)?;
            tasks.insert(id.to_owned(), Row { state: state.to_owned(), ..parsed(body)? });
        }
    }
}

fn events(server: &Server, schema: &str) -> Result<Vec<Event>, String> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let last = events.last().map_or(0, |event| event.seq);
        let text = server.sql(&format!(
            "SELECT seq, at, lane, task, name, body FROM {schema}.event WHERE seq > {last} \
             ORDER BY seq LIMIT {PAGE}"
        ));
        if text.is_empty() {
            return Ok(events);
        }
        for line in text.lines() {
            let [seq, at, lane, task, name, body] = split(line)?;
            events.push(Event {
                seq: parsed(seq)?,
                at: parsed(at)?,
                lane: lane.to_owned(),
                task: task.to_owned(),
                name: name.to_owned(),
                body: body.to_owned(),
                said: parsed(body)?,
            });
        }
    }
}

fn lanes(server: &Server, schema: &str) -> Result<BTreeMap<String, Lane>, String> {
    let text = server.sql(&format!("SELECT name, body FROM {schema}.lane"));
    let lane = |line| split(line).and_then(|[name, body]| Ok((name.to_owned(), parsed(body)?)));
    text.lines().map(lane).collect()
}

fn results(server: &Server, schema: &str) -> Result<BTreeMap<String, String>, String> {
    let text = server.sql(&format!(
        "SELECT task, convert_from(bytes, 'UTF8') FROM {schema}.payload WHERE slot = 'result'"
    ));
    let result = |line| split(line).and_then(|[task, body]| Ok((task.to_owned(), parsed(body)?)));
    text.lines().map(result).collect()
}

/// The columns of a row. Only the last may contain the separator.
fn split<const N: usize>(line: &str) -> Result<[&str; N], String> {
    let columns: Vec<&str> = line.splitn(N, '|').collect();
    columns.try_into().map_err(|_| format!("{line:?} does not have {N} columns"))
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{text}: {error}"))
}
