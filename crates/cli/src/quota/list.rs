use std::sync::Arc;

use clap::{Args, ValueEnum};
use windlass::{ConcurrencyLimit, Engine, Error, LimitKind, Tenant};

use crate::duration;
use crate::error::CliError;
use crate::output::{printable, say, say_json, say_pairs, say_table};
use crate::quota::options::Scope;
use crate::quota::told::{described, limits, noun, retry_at};
use crate::target::Target;

const PAGE: usize = 1_000;

#[derive(Debug, Args)]
pub(super) struct List {
    /// Only limits of this kind.
    #[arg(long)]
    kind: Option<Kind>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Concurrency,
    Session,
    Lane,
    Tenant,
}

impl From<Kind> for LimitKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Concurrency => LimitKind::Concurrency,
            Kind::Session => LimitKind::Session,
            Kind::Lane => LimitKind::Lane,
            Kind::Tenant => LimitKind::Tenant,
        }
    }
}

impl List {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let (kind, now) = (self.kind.map(Into::into), duration::now());
        let json = self.target.json;
        let show = |gates: &[Arc<ConcurrencyLimit>]| {
            if json {
                gates.iter().for_each(|gate| say_json(&described(gate, now)));
                return;
            }
            let rows = gates.iter().map(|gate| {
                [
                    gate.kind.as_str().to_owned(),
                    printable(&gate.name),
                    gate.running.to_string(),
                    gate.admitted.to_string(),
                    gate.waiting.to_string(),
                    retry_at(gate, now).unwrap_or_default(),
                    limits(gate.limit, gate.rate),
                ]
            });
            let header = ["kind", "name", "running", "admitted", "waiting", "retry_at", "limit"];
            say_table(header, rows.collect());
        };
        let found = show_all(&engine, &self.target.tenant, kind, show).await?;
        if !found && !json {
            say("There is no limit: see windlass quota set --help.");
        }
        Ok(engine.shutdown().await?)
    }
}

/// Passes all limits of a tenant, of one kind or of any, to `show`, one page at a time. Returns
/// whether any exist.
pub(crate) async fn show_all(
    engine: &Engine,
    tenant: &Tenant,
    kind: Option<LimitKind>,
    mut show: impl FnMut(&[Arc<ConcurrencyLimit>]),
) -> Result<bool, Error> {
    let mut last: Option<Arc<ConcurrencyLimit>> = None;
    loop {
        let page = engine.concurrency_limits(tenant, kind, last.as_deref(), PAGE).await?;
        let Some(end) = page.last() else { return Ok(last.is_some()) };
        show(&page);
        last = Some(end.clone());
    }
}

#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    target: Target,
}

impl Show {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (engine, scope) = (self.target.open().await?, self.scope.scope());
        let (kind, name) = (scope.kind(), scope.name());
        let gate = engine.concurrency_limit(&self.target.tenant, kind, name).await?;
        let missing = || CliError::NotFound { what: "limit of", name: told(kind, name) };
        let (gate, now) = (gate.ok_or_else(missing)?, duration::now());
        if self.target.json {
            say_json(&described(&gate, now));
        } else {
            let set = if gate.configured { "" } else { " (not set)" };
            let mut pairs = vec![
                (noun(kind), printable(name)),
                ("limit", format!("{}{set}", limits(gate.limit, gate.rate))),
                ("running", gate.running.to_string()),
                ("admitted", gate.admitted.to_string()),
                ("waiting", gate.waiting.to_string()),
            ];
            pairs.extend(gate.rate.map(|_| ("started", gate.started(now).to_string())));
            pairs.extend(retry_at(&gate, now).map(|at| ("retry at", at)));
            pairs.extend(gate.owner.as_ref().map(|owner| ("owner", owner.worker.to_string())));
            say_pairs(&pairs);
        }
        Ok(engine.shutdown().await?)
    }
}

fn told(kind: LimitKind, name: &str) -> String {
    match kind {
        LimitKind::Tenant => "the tenant".to_owned(),
        other => format!("{} {name}", noun(other)),
    }
}
