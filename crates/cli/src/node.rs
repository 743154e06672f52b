use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use windlass::{Engine, Error, Node, Timestamp};

use crate::duration;
use crate::error::CliError;
use crate::output::{printable, say, say_json, say_table, time};
use crate::target::Target;

const PAGE: usize = 1_000;

#[derive(Debug, Args)]
pub(crate) struct NodeCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the engines that share a database: where they run, and when they were last seen.
    #[command(visible_alias = "ls")]
    List(List),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    target: Target,
}

impl NodeCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::List(list) => list.run().await,
        }
    }
}

impl List {
    async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let nodes = all(&engine).await?;
        let now = duration::now();
        if self.target.json {
            nodes.iter().for_each(|node| say_json(&described(node, now)));
        } else if !nodes.is_empty() {
            let rows = nodes.iter().map(|node| row(node, now)).collect();
            say_table(["id", "name", "pid", "version", "format", "up since", "last seen"], rows);
        } else if engine.describe().await?.round_trips.is_some() {
            say("There is no node: no engine is running here.");
        } else {
            say("There is no node: an engine on a file registers none.");
        }
        Ok(engine.shutdown().await?)
    }
}

async fn all(engine: &Engine) -> Result<Vec<Arc<Node>>, Error> {
    let mut nodes: Vec<Arc<Node>> = Vec::new();
    loop {
        let page = engine.nodes(nodes.last().map(|node| &node.id), PAGE).await?;
        if page.is_empty() {
            return Ok(nodes);
        }
        nodes.extend(page);
    }
}

/// How long the next heartbeat has been overdue, by the clock of this machine.
fn overdue_ms(node: &Node, now: Timestamp) -> u64 {
    node.seen_at.plus_ms(node.heartbeat_interval_ms).ms_until(now)
}

fn described(node: &Node, now: Timestamp) -> Value {
    json!({
        "id": node.id,
        "name": node.name,
        "pid": node.pid,
        "version": node.version,
        "format": node.format,
        "started_at": time(node.started_at),
        "seen_at": time(node.seen_at),
        "overdue_ms": overdue_ms(node, now),
    })
}

fn row(node: &Node, now: Timestamp) -> [String; 7] {
    let overdue = match overdue_ms(node, now) {
        // A heartbeat may take up to a second.
        0..1_000 => String::new(),
        ms => format!(", {} overdue", duration::brief(ms)),
    };
    [
        node.id.to_string(),
        printable(&node.name),
        node.pid.to_string(),
        printable(&node.version),
        node.format.to_string(),
        duration::moment(node.started_at, now),
        format!("{}{overdue}", duration::distance(node.seen_at, now)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_late_a_node_is() {
        let at = Timestamp::from_millis;
        let node = Node {
            id: "n".into(),
            name: "host".into(),
            pid: 7,
            version: "1.0.0".into(),
            format: 2,
            started_at: at(0),
            seen_at: at(60_000),
            heartbeat_interval_ms: 5_000,
            due_at: at(77_500),
        };
        for (now_ms, late, last_seen) in [
            (59_000, 0, "in 1s"),
            (60_000, 0, "just now"),
            (65_500, 500, "5s ago"),
            (67_000, 2_000, "7s ago, 2s overdue"),
        ] {
            assert_eq!(described(&node, at(now_ms))["overdue_ms"], late, "{now_ms}");
            assert_eq!(row(&node, at(now_ms))[6], last_seen, "{now_ms}");
        }
    }
}
