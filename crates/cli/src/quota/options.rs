use clap::{Args, Subcommand};
use windlass::command::QuotaScope;
use windlass::{LaneName, LimitKind};

use crate::error::CliError;
use crate::quota::list::{List, Show};
use crate::quota::set::{Clear, Set};

#[derive(Debug, Args)]
pub(crate) struct QuotaCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List limits with their settings and the numbers of running and blocked tasks.
    #[command(visible_alias = "ls")]
    List(List),
    /// Show one limit, and when it next admits a task.
    Show(Show),
    /// Set how many tasks may run at once, how many may start per time, or both.
    Set(Set),
    /// Clear a limit: a concurrency key or a session then runs one task at a time, a lane or a
    /// tenant any number.
    Clear(Clear),
}

impl QuotaCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::List(list) => list.run().await,
            Verb::Show(show) => show.run().await,
            Verb::Set(set) => set.run().await,
            Verb::Clear(clear) => clear.run().await,
        }
    }
}

/// The scope of a limit: one of these.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Scope {
    /// Tasks with this concurrency key.
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// Tasks of this session.
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// All tasks of this lane.
    #[arg(long, value_name = "LANE")]
    lane: Option<LaneName>,
    /// All tasks of the tenant.
    #[arg(long)]
    all: bool,
}

impl Scope {
    pub(super) fn scope(&self) -> QuotaScope {
        match (&self.concurrency_key, &self.session, &self.lane) {
            (Some(key), ..) => QuotaScope::Concurrency(key.clone()),
            (_, Some(session), _) => QuotaScope::Session(session.clone()),
            (.., Some(lane)) => QuotaScope::Lane(lane.clone()),
            (None, None, None) => QuotaScope::Tenant,
        }
    }
}

/// `Concurrency key customer-7`, `Lane mail`, `The tenant`.
pub(super) fn subject(kind: LimitKind, name: &str) -> String {
    match kind {
        LimitKind::Concurrency => format!("Concurrency key {name}"),
        LimitKind::Session => format!("Session {name}"),
        LimitKind::Affinity => format!("Affinity {name}"),
        LimitKind::Lane => format!("Lane {name}"),
        LimitKind::Tenant => "The tenant".to_owned(),
    }
}
