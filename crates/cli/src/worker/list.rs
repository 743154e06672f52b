use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use windlass::{Engine, Error, RegisteredWorker, TagFilter, Tenant, Timestamp};

use crate::duration;
use crate::error::CliError;
use crate::output::{printable, say, say_json, say_table, time};
use crate::target::Target;

const PAGE: usize = 1_000;

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
}

impl List {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let workers = all(&engine, &self.target.tenant).await?;
        let now = duration::now();
        if self.target.json {
            workers.iter().for_each(|worker| say_json(&described(worker, now)));
        } else if workers.is_empty() {
            say("There is no worker: none is registered.");
        } else {
            let rows = workers.iter().map(|worker| row(worker, now)).collect();
            say_table(["worker", "lanes", "capabilities", "since", "last seen"], rows);
        }
        Ok(engine.shutdown().await?)
    }
}

async fn all(engine: &Engine, tenant: &Tenant) -> Result<Vec<Arc<RegisteredWorker>>, Error> {
    let mut workers: Vec<Arc<RegisteredWorker>> = Vec::new();
    loop {
        let last = workers.last().map(|worker| worker.id.clone());
        let page = engine.workers(tenant, last.as_ref(), PAGE).await?;
        if page.is_empty() {
            return Ok(workers);
        }
        workers.extend(page);
    }
}

/// How long the next heartbeat has been overdue, by the clock of this machine.
fn overdue_ms(worker: &RegisteredWorker, now: Timestamp) -> u64 {
    worker.seen_at.plus_ms(worker.heartbeat_interval_ms).ms_until(now)
}

fn described(worker: &RegisteredWorker, now: Timestamp) -> Value {
    json!({
        "worker": worker.id,
        "lanes": worker.lanes,
        "capabilities": worker.capabilities.names,
        "tags": tags(&worker.capabilities.tags),
        "registered_at": time(worker.registered_at),
        "seen_at": time(worker.seen_at),
        "heartbeat_interval_ms": worker.heartbeat_interval_ms,
        "overdue_ms": overdue_ms(worker, now),
        "suspect_at": time(worker.suspect_at),
    })
}

/// The tags it accepts, as text.
fn tags(filter: &TagFilter) -> String {
    let joined = |tags: &std::collections::BTreeSet<String>| {
        tags.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    match filter {
        TagFilter::Untagged => "untagged".to_owned(),
        TagFilter::Only(tags) => joined(tags),
        TagFilter::UntaggedAnd(tags) => format!("untagged, {}", joined(tags)),
        TagFilter::Any => "any".to_owned(),
        TagFilter::None => "none".to_owned(),
    }
}

fn row(worker: &RegisteredWorker, now: Timestamp) -> [String; 5] {
    let overdue = match overdue_ms(worker, now) {
        // A heartbeat may take up to a second.
        0..1_000 => String::new(),
        ms => format!(", {} overdue", duration::brief(ms)),
    };
    let suspect = if worker.suspect_at.is_some() { ", suspect" } else { "" };
    let lanes: Vec<String> = worker.lanes.iter().map(|lane| printable(lane.as_str())).collect();
    let mut offers: Vec<&str> = worker.capabilities.names.iter().map(String::as_str).collect();
    let tags = format!("tags: {}", tags(&worker.capabilities.tags));
    if worker.capabilities.tags != TagFilter::Untagged {
        offers.push(&tags);
    }
    [
        printable(worker.id.as_str()),
        lanes.join(", "),
        printable(&offers.join(", ")),
        duration::moment(worker.registered_at, now),
        format!("{}{overdue}{suspect}", duration::distance(worker.seen_at, now)),
    ]
}

#[cfg(test)]
mod tests {
    use windlass::WorkerCapabilities;

    use super::*;

    #[test]
    fn a_row_shows_tags_and_late_heartbeats() {
        let at = Timestamp::from_millis;
        let capabilities = |tags| WorkerCapabilities {
            names: ["gpu".to_owned()].into(),
            tags,
            ..WorkerCapabilities::default()
        };
        let worker = |tags, suspect_at| RegisteredWorker {
            tenant: Tenant::default(),
            id: "w".into(),
            lanes: ["mail".into(), "bulk".into()].into(),
            capabilities: capabilities(tags),
            registered_at: at(0),
            seen_at: at(60_000),
            heartbeat_interval_ms: 10_000,
            suspect_at,
            due_at: at(95_000),
        };
        for (tags, suspect_at, now_ms, offers, last_seen) in [
            (TagFilter::Untagged, None, 60_000, "gpu", "just now"),
            (TagFilter::Any, None, 70_500, "gpu, tags: any", "10s ago"),
            (TagFilter::None, None, 72_000, "gpu, tags: none", "12s ago, 2s overdue"),
            (
                TagFilter::UntaggedAnd(["a".to_owned(), "b".to_owned()].into()),
                Some(at(95_000)),
                95_000,
                "gpu, tags: untagged, a, b",
                "35s ago, 25s overdue, suspect",
            ),
        ] {
            let worker = worker(tags, suspect_at);
            let found = row(&worker, at(now_ms));
            let expected = ["w", "bulk, mail", offers, &found[3], last_seen];
            assert_eq!(found, expected);
            assert_eq!(
                described(&worker, at(now_ms))["overdue_ms"],
                overdue_ms(&worker, at(now_ms))
            );
        }
    }
}
