use clap::Args;
use serde_json::json;
use windlass::command::{LimitLane, SetLaneState};
use windlass::{LaneName, LaneState};

use crate::error::CliError;
use crate::output::{say, say_json};
use crate::target::Target;

/// The name of a lane.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// The name of the lane, as `lane list` shows it.
    lane: LaneName,
    #[command(flatten)]
    target: Target,
}

impl Named {
    pub(super) async fn set(self, state: LaneState) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let (tenant, lane) = (self.target.tenant, self.lane.clone());
        let changed = engine.submit(SetLaneState { tenant, lane, state }).await;
        changed.map_err(|error| CliError::for_object("lane", &self.lane, error))?;
        if self.target.json {
            say_json(&json!({ "lane": self.lane, "state": state }));
        } else {
            say(&format!("Lane {} is {}: {}.", self.lane, state.as_str(), meaning(state)));
        }
        Ok(engine.shutdown().await?)
    }
}

fn meaning(state: LaneState) -> &'static str {
    match state {
        LaneState::Active => "it accepts tasks and leases them",
        LaneState::Paused => "it accepts tasks and leases none; running tasks continue",
        LaneState::Draining => "it accepts no tasks and leases those it has",
        LaneState::Disabled => "it accepts no tasks and leases none; running tasks continue",
    }
}

#[derive(Debug, Args)]
pub(super) struct Limit {
    /// The name of the lane, as `lane list` shows it.
    lane: LaneName,
    /// The maximum number of running tasks, or none.
    #[arg(value_name = "N|none", value_parser = limit, allow_negative_numbers = true)]
    limit: LimitArg,
    #[command(flatten)]
    target: Target,
}

/// A concurrency limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LimitArg(Option<u32>);

fn limit(text: &str) -> Result<LimitArg, String> {
    match text {
        "none" => Ok(LimitArg(None)),
        number => match number.parse() {
            Ok(number) if number > 0 => Ok(LimitArg(Some(number))),
            _ => Err("a limit is a number from 1 on, or none; to run nothing, pause it".to_owned()),
        },
    }
}

impl Limit {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let (tenant, lane, LimitArg(limit)) = (self.target.tenant, self.lane.clone(), self.limit);
        let changed = engine.submit(LimitLane { tenant, lane, limit }).await;
        changed.map_err(|error| CliError::for_object("lane", &self.lane, error))?;
        if self.target.json {
            say_json(&json!({ "lane": self.lane, "limit": limit }));
        } else {
            match limit {
                Some(limit) => say(&format!("Lane {} runs at most {limit} at once.", self.lane)),
                None => say(&format!("Lane {} has no limit.", self.lane)),
            }
        }
        Ok(engine.shutdown().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        for (text, expected) in [
            ("5", Some(LimitArg(Some(5)))),
            ("none", Some(LimitArg(None))),
            ("0", None),
            ("-1", None),
            ("many", None),
        ] {
            assert_eq!(limit(text).ok(), expected, "{text}");
        }
    }
}
