use clap::Args;
use serde_json::json;
use windlass::command::{QuotaScope, SetQuota};
use windlass::{Engine, Rate};

use crate::duration;
use crate::error::CliError;
use crate::output::{printable, say, say_json};
use crate::quota::format::limits;
use crate::quota::options::{Scope, subject};
use crate::target::Target;

const EXAMPLES: &str = "Examples:
  windlass quota set --concurrency-key customer-7 --limit 3
  windlass quota set --concurrency-key smtp.example.com --limit 10 --rate 100/1m
  windlass quota set --lane mail --rate 20/1s
  windlass quota set --all --limit 500

A rate is a sliding window: it holds for every interval of that length. Running tasks continue.";

/// The options of fields with another name.
const OPTIONS: &[(&str, &str)] = &[
    ("concurrency_key", "--concurrency-key"),
    ("session", "--session"),
    ("lane", "--lane"),
    ("limit", "--limit"),
    ("rate", "--rate"),
    ("window_ms", "the window of --rate"),
];

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Set {
    #[command(flatten)]
    scope: Scope,
    /// How many tasks may run at once; 0 blocks all [default: any number]
    #[arg(long, value_name = "N", required_unless_present = "rate", allow_negative_numbers = true)]
    limit: Option<u32>,
    /// How many tasks may start per time, as in 20/1s [default: any number]
    #[arg(long, value_name = "N/TIME", value_parser = rate)]
    rate: Option<Rate>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct Clear {
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    target: Target,
}

impl Set {
    pub(super) async fn run(self) -> Result<(), CliError> {
        change(&self.target, &self.scope, self.limit, self.rate).await
    }
}

impl Clear {
    pub(super) async fn run(self) -> Result<(), CliError> {
        change(&self.target, &self.scope, None, None).await
    }
}

async fn change(
    target: &Target,
    scope: &Scope,
    limit: Option<u32>,
    rate: Option<Rate>,
) -> Result<(), CliError> {
    let (engine, scope) = (target.open().await?, scope.scope());
    submit(&engine, target, &scope, limit, rate).await?;
    if target.json {
        let (kind, name) = (scope.kind(), scope.name());
        say_json(&json!({ "kind": kind, "name": name, "limit": limit, "rate": rate }));
    } else {
        let subject = subject(scope.kind(), &printable(scope.name()));
        let set = match (limit, rate, &scope) {
            (None, None, QuotaScope::Concurrency(_) | QuotaScope::Session(_)) => {
                "one at a time".to_owned()
            }
            (None, None, _) => "no limit".to_owned(),
            (limit, rate, _) => limits(limit, rate),
        };
        say(&format!("{subject}: {set}."));
    }
    Ok(engine.shutdown().await?)
}

async fn submit(
    engine: &Engine,
    target: &Target,
    scope: &QuotaScope,
    limit: Option<u32>,
    rate: Option<Rate>,
) -> Result<(), CliError> {
    let tenant = target.tenant.clone();
    let set = SetQuota { tenant, scope: scope.clone(), limit, rate };
    let changed = engine.submit(set).await.map(drop);
    changed.map_err(|error| CliError::for_object("lane", scope.name(), error).named(OPTIONS))
}

fn rate(text: &str) -> Result<Rate, String> {
    const FORM: &str = "a rate is a number and a time, as in 20/1s or 100/1m";
    let (limit, window) = text.split_once('/').ok_or(FORM)?;
    let limit = limit.parse().map_err(|_| FORM)?;
    let window = duration::parse(window).map_err(|bad| bad.to_string())?;
    let window_ms = u64::try_from(window.as_millis()).map_err(|_| FORM)?;
    Ok(Rate { limit, window_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        for (text, expected) in [
            ("20/1s", Some((20, 1_000))),
            ("1/1m30s", Some((1, 90_000))),
            ("20", None),
            ("/1s", None),
            ("20/", None),
            ("20/soon", None),
            ("-1/1s", None),
        ] {
            let expected = expected.map(|(limit, window_ms)| Rate { limit, window_ms });
            assert_eq!(rate(text).ok(), expected, "{text}");
        }
    }
}
