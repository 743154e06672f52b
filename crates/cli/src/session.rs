use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use windlass::command::ReleaseSession;
use windlass::{ConcurrencyLimit, LimitKind, Outcome, Timestamp};

use crate::duration::{self, distance};
use crate::error::CliError;
use crate::output::{counted, printable, say, say_json, say_table};
use crate::quota::{described, show_all};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct SessionCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List sessions: their owners, and the numbers of running and blocked tasks.
    #[command(visible_alias = "ls")]
    List(List),
    /// Release a session from its worker: running tasks continue, later ones may run on any worker.
    Release(Release),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct Release {
    /// The name of the session, as `session list` shows it.
    session: String,
    #[command(flatten)]
    target: Target,
}

impl SessionCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::List(list) => list.run().await,
            Verb::Release(release) => release.run().await,
        }
    }
}

impl List {
    async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let (json, now) = (self.target.json, duration::now());
        let show = |sessions: &[Arc<ConcurrencyLimit>]| {
            if json {
                sessions.iter().for_each(|session| say_json(&described(session, now)));
                return;
            }
            let rows = sessions.iter().map(|session| {
                let (running, admitted) =
                    (session.running.to_string(), session.admitted.to_string());
                let (name, blocked) = (printable(&session.name), session.blocked.to_string());
                [name, running, admitted, blocked, owned(session, now)]
            });
            say_table(["session", "running", "admitted", "blocked", "owner"], rows.collect());
        };
        let (tenant, kind) = (&self.target.tenant, Some(LimitKind::Session));
        if !show_all(&engine, tenant, kind, show).await? && !json {
            say("There is no session: the first task of a session creates it.");
        }
        Ok(engine.shutdown().await?)
    }
}

/// The owner of a session, and for how long it stays so while idle.
fn owned(session: &ConcurrencyLimit, now: Timestamp) -> String {
    match &session.owner {
        None => "no worker".to_owned(),
        Some(owner) if session.running > 0 => owner.worker.to_string(),
        Some(owner) if owner.expires_at <= now => format!("{}, idle for too long", owner.worker),
        Some(owner) => format!("{}, free {}", owner.worker, distance(owner.expires_at, now)),
    }
}

impl Release {
    async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let name = printable(&self.session);
        let (tenant, session) = (self.target.tenant.clone(), self.session.clone());
        let there =
            engine.concurrency_limit(&tenant, LimitKind::Session, &session).await?.is_some();
        if !there {
            return Err(CliError::NotFound { what: "session", name });
        }
        let running =
            match engine.submit(ReleaseSession { tenant, session, affinity: false }).await? {
                Outcome::SessionReleased { running } => running,
                other => unreachable!("unexpected outcome of a release: {other:?}"),
            };
        if self.target.json {
            say_json(&json!({ "session": self.session, "running": running }));
        } else if running > 0 {
            let runs = counted(running.into(), "task");
            say(&format!("Session {name} is free once its running tasks have ended: {runs}."));
        } else {
            say(&format!("Session {name} is free."));
        }
        Ok(engine.shutdown().await?)
    }
}
