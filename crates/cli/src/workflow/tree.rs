use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use windlass::{Engine, Task, TaskId};

use crate::duration::now;
use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;
use crate::task::{attempts, since};

/// The maximum depth shown.
const DEEPEST: usize = 32;

#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// The id of the workflow, as `workflow list` shows it.
    id: TaskId,
    /// How many children of each workflow to show.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

/// A task with its children.
struct Node {
    task: Arc<Task>,
    children: Vec<Node>,
    /// Whether more children exist than are shown.
    more: bool,
}

impl Tree {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let task = self.target.workflow(&engine, &self.id).await?;
        let root = grow(&engine, task, self.limit as usize, DEEPEST).await?;
        if self.target.json {
            say_json(&root.json());
        } else {
            let mut lines = Vec::new();
            root.draw("", "", &mut lines);
            lines.iter().for_each(|line| say(line));
        }
        Ok(engine.shutdown().await?)
    }
}

async fn grow(
    engine: &Engine,
    task: Arc<Task>,
    limit: usize,
    depth: usize,
) -> Result<Node, CliError> {
    if depth == 0 || !task.has_children {
        return Ok(Node { more: task.has_children, task, children: Vec::new() });
    }
    let mut found = engine.children(&task.task_key(), None, limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    // By step, then by id for children that are not steps.
    found.sort_by_key(|child| child.step);
    let mut children = Vec::with_capacity(found.len());
    for child in found {
        children.push(Box::pin(grow(engine, child, limit, depth - 1)).await?);
    }
    Ok(Node { task, children, more })
}

impl Node {
    fn json(&self) -> Value {
        let children: Vec<Value> = self.children.iter().map(Node::json).collect();
        json!({
            "id": self.task.id,
            "kind": self.task.kind,
            "state": self.task.lifecycle.public(),
            "is_workflow": self.task.workflow.is_some(),
            "step": self.task.step,
            "attempts": self.task.attempts,
            "children": children,
            "more": self.more,
        })
    }

    fn draw(&self, own: &str, below: &str, lines: &mut Vec<String>) {
        lines.push(format!("{own}{}", self.line()));
        let last = self.children.len().saturating_sub(1);
        for (nth, child) in self.children.iter().enumerate() {
            let is_last = nth == last && !self.more;
            let (branch, rest) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            child.draw(&format!("{below}{branch}"), &format!("{below}{rest}"), lines);
        }
        if self.more {
            let id = &self.task.id;
            lines.push(format!("{below}└─ ... windlass task list --parent {id}"));
        }
    }

    fn line(&self) -> String {
        let task = &self.task;
        let (id, kind, state) = (&task.id, &task.kind, task.lifecycle.public());
        let since = since(task, now());
        match task.workflow.as_deref() {
            Some(workflow) => {
                let turns = workflow.turns;
                format!("{id}  {kind}, workflow, {state} ({since}), turns {turns}")
            }
            None => format!("{id}  {kind}, {state} ({since}), attempts {}", attempts(task)),
        }
    }
}
