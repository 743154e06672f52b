use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;
use windlass::{LaneName, PublicState};

use crate::error::CliError;
use crate::log::LogView;
use crate::output::{say_json, say_pairs};
use crate::target::Target;

/// Show the number of tasks by state and lane, and facts about the store.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    target: Target,
}

impl Stats {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let tenant = &self.target.tenant;
        let counts = engine.count_by_state(tenant).await?;
        let ready = engine.count_ready(tenant).await?;
        let described = engine.describe().await?;
        let log = LogView::open(&engine).await?;
        let states = || {
            let count = |state: &PublicState| counts.get(state.as_str()).copied().unwrap_or(0);
            PublicState::ALL.iter().map(move |state| (state.as_str(), count(state)))
        };
        if self.target.json {
            say_json(&json!({
                "store": self.target.store.to_string(),
                "backend": described.backend,
                "durability": described.durability,
                "tenant": tenant,
                "tasks": states().collect::<BTreeMap<_, _>>(),
                "ready": ready,
                "log": {
                    "incarnation": log.incarnation(),
                    "first": log.floor() + 1,
                    "last": log.last(),
                },
            }));
        } else {
            let shown = states().zip(PublicState::ALL);
            let shown = shown.filter(|((_, count), state)| *count > 0 || is_usual(**state));
            let tasks: Vec<_> =
                shown.map(|((state, count), _)| format!("{count} {state}")).collect();
            say_pairs(&[
                ("store", self.target.store.to_string()),
                ("durability", described.durability),
                ("tasks", tasks.join(", ")),
                ("ready", by_lane(&ready)),
                ("log", span(&log)),
            ]);
        }
        Ok(engine.shutdown().await?)
    }
}

/// Whether the state is shown even without tasks.
fn is_usual(state: PublicState) -> bool {
    match state {
        PublicState::Waiting
        | PublicState::Delayed
        | PublicState::Active
        | PublicState::Completed
        | PublicState::Failed
        | PublicState::Cancelled
        | PublicState::Expired => true,
        PublicState::Resumable
        | PublicState::Blocked
        | PublicState::Suspended
        | PublicState::WaitingChildren => false,
    }
}

fn by_lane(ready: &BTreeMap<LaneName, u64>) -> String {
    if ready.is_empty() {
        return "none in any lane".to_owned();
    }
    let lanes: Vec<String> =
        ready.iter().map(|(lane, count)| format!("{count} in {lane}")).collect();
    lanes.join("\n")
}

fn span(log: &LogView<'_>) -> String {
    let incarnation = log.incarnation();
    if log.floor() == log.last() {
        return format!("empty, incarnation {incarnation}");
    }
    format!("{} to {}, incarnation {incarnation}", log.floor() + 1, log.last())
}
