use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use windlass_core::command::{Beat, Leave};
use windlass_core::{Command, NodeId, Outcome, limits};
use windlass_store::{Clock, Store, StoreError};

use crate::answer::{Answer, Reply};
use crate::config::Config;
use crate::error::Error;
use crate::inbox::{Inbox, Job};

/// How soon to try again what failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Tells the other nodes of a store that this one is there. Where no nodes share it, it does not
/// beat: an engine alone on its store is idle.
#[derive(Debug)]
pub(crate) struct Heart {
    store: Arc<dyn Store>,
    inbox: Arc<Inbox>,
    clock: Arc<dyn Clock>,
    /// When it was made, by the steady time of the clock.
    made_at: Duration,
    id: NodeId,
    name: String,
    every: Duration,
    /// Whether it has begun to.
    beats: AtomicBool,
}

impl Heart {
    pub(crate) fn new(store: Arc<dyn Store>, inbox: Arc<Inbox>, config: &Config) -> Self {
        Self {
            store,
            inbox,
            clock: config.clock.clone(),
            made_at: config.clock.steady(),
            id: uuid::Uuid::now_v7().to_string().into(),
            name: config.node_name.clone().unwrap_or_else(host_name),
            every: config.beat_every,
            beats: AtomicBool::new(false),
        }
    }

    /// Beats for as long as the engine lasts.
    pub(crate) async fn run(self: Arc<Self>) {
        let Some(format) = self.format_if_shared().await else { return };
        self.beats.store(true, Ordering::Relaxed);
        loop {
            let pause = match self.beat(format).await {
                Ok(outcome) => {
                    self.note(&outcome);
                    self.every
                }
                Err(Error::ShuttingDown) => return,
                Err(Error::Rejected(rejection)) => {
                    tracing::error!(name = self.name, %rejection, "this node cannot register");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "a beat failed");
                    self.every.min(AGAIN)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// The highest format that this program knows of its store; none where no nodes share it.
    async fn format_if_shared(&self) -> Option<i64> {
        loop {
            match self.store.describe().await {
                Ok(described) => return described.traffic.map(|_| described.format),
                Err(StoreError::Closed) => return None,
                Err(error) => tracing::warn!(%error, "the store does not say what it is"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn beat(&self, format: i64) -> Answer {
        let up = self.clock.steady().saturating_sub(self.made_at);
        let beat = Beat {
            id: self.id.clone(),
            name: self.name.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            format,
            up_ms: millis(up),
            every_ms: millis(self.every),
        };
        let (sender, receiver) = oneshot::channel();
        self.inbox.push_own(job(beat.into(), Reply::Plain(sender)))?;
        let mut answers = receiver.await.map_err(|_| self.inbox.no_answer())?.take();
        answers.each.pop().expect("one command, one answer")
    }

    fn note(&self, outcome: &Outcome) {
        if let Outcome::Registered { joined: true, nodes, format } = outcome {
            tracing::info!(node = %self.id, name = self.name, nodes, format, "registered");
        }
    }

    /// The last thing to decide for an engine that others know of.
    pub(crate) fn farewell(&self) -> Option<Job> {
        let leave = Leave { id: self.id.clone() };
        self.beats.load(Ordering::Relaxed).then(|| job(leave.into(), Reply::Nobody))
    }
}

fn job(command: Command, reply: Reply) -> Job {
    Job::new(vec![command], reply)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The name of the host, if it has one that can be kept.
fn host_name() -> String {
    let name = host().filter(|name| limits::NODE_NAME.check(name).is_ok());
    name.unwrap_or_else(|| "unnamed".to_owned())
}

#[cfg(unix)]
fn host() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

#[cfg(not(unix))]
fn host() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}
