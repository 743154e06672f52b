use std::sync::Arc;

use clap::{Args, ValueEnum};
use windlass::{ConcurrencyLimit, Engine, Error, LimitKind, Tenant};

use crate::duration;
use crate::error::CliError;
use crate::output::{printable, say, say_json, say_pairs, say_table};
use crate::quota::format::{described, limits, noun, retry_at};
use crate::quota::options::Scope;
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
        let show = |page: &[Arc<ConcurrencyLimit>]| {
            if json {
                page.iter().for_each(|limit| say_json(&described(limit, now)));
                return;
            }
            let rows = page.iter().map(|limit| {
                [
                    limit.kind.as_str().to_owned(),
                    printable(&limit.name),
                    limit.running.to_string(),
                    limit.admitted.to_string(),
                    limit.blocked.to_string(),
                    retry_at(limit, now).unwrap_or_default(),
                    limits(limit.limit, limit.rate),
                ]
            });
            let header = ["kind", "name", "running", "admitted", "blocked", "retry_at", "limit"];
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
        let limit = engine.concurrency_limit(&self.target.tenant, kind, name).await?;
        let missing = || CliError::NotFound { what: "limit of", name: scope_name(kind, name) };
        let (limit, now) = (limit.ok_or_else(missing)?, duration::now());
        if self.target.json {
            say_json(&described(&limit, now));
        } else {
            let set = if limit.configured { "" } else { " (not set)" };
            let mut pairs = vec![
                (noun(kind), printable(name)),
                ("limit", format!("{}{set}", limits(limit.limit, limit.rate))),
                ("running", limit.running.to_string()),
                ("admitted", limit.admitted.to_string()),
                ("blocked", limit.blocked.to_string()),
            ];
            pairs.extend(limit.rate.map(|_| ("started", limit.started(now).to_string())));
            pairs.extend(retry_at(&limit, now).map(|at| ("retry at", at)));
            pairs.extend(limit.owner.as_ref().map(|owner| ("owner", owner.worker.to_string())));
            say_pairs(&pairs);
        }
        Ok(engine.shutdown().await?)
    }
}

fn scope_name(kind: LimitKind, name: &str) -> String {
    match kind {
        LimitKind::Tenant => "the tenant".to_owned(),
        other => format!("{} {name}", noun(other)),
    }
}
