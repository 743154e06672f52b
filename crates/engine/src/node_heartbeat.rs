use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use windlass_core::command::{DeregisterNode, HeartbeatNode};
use windlass_core::{Command, NodeId, Outcome, limits};
use windlass_store::{Clock, Store, StoreError};

use crate::command_queue::{CommandQueue, Submission};
use crate::config::Config;
use crate::error::Error;
use crate::reply::{CommandResult, Reply};

/// Delay before a failed heartbeat is retried.
const AGAIN: Duration = Duration::from_secs(1);

/// Sends node heartbeats in a shared store. In an embedded store it sends none, so that an idle
/// engine does no work.
#[derive(Debug)]
pub(crate) struct NodeHeartbeat {
    store: Arc<dyn Store>,
    queue: Arc<CommandQueue>,
    clock: Arc<dyn Clock>,
    /// Creation time, on the clock's monotonic time.
    made_at: Duration,
    id: NodeId,
    name: String,
    every: Duration,
    /// Whether heartbeats have started.
    beats: AtomicBool,
}

impl NodeHeartbeat {
    pub(crate) fn new(store: Arc<dyn Store>, queue: Arc<CommandQueue>, config: &Config) -> Self {
        Self {
            store,
            queue,
            clock: config.clock.clone(),
            made_at: config.clock.steady(),
            id: uuid::Uuid::now_v7().to_string().into(),
            name: config.node_name.clone().unwrap_or_else(host_name),
            every: config.heartbeat_interval,
            beats: AtomicBool::new(false),
        }
    }

    /// Sends heartbeats until the engine shuts down.
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
                    tracing::error!(name = self.name, %rejection, "node registration rejected");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "node heartbeat failed");
                    self.every.min(AGAIN)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// The highest store format this program supports; none if the store is not shared.
    async fn format_if_shared(&self) -> Option<i64> {
        loop {
            match self.store.describe().await {
                Ok(described) => return described.round_trips.map(|_| described.format),
                Err(StoreError::Closed) => return None,
                Err(error) => tracing::warn!(%error, "store describe failed"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn beat(&self, format: i64) -> CommandResult {
        let up = self.clock.steady().saturating_sub(self.made_at);
        let beat = HeartbeatNode {
            id: self.id.clone(),
            name: self.name.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            format,
            up_ms: millis(up),
            heartbeat_interval_ms: millis(self.every),
        };
        let (sender, receiver) = oneshot::channel();
        self.queue.push_internal(job(beat.into(), Reply::Plain(sender)))?;
        let mut results = receiver.await.map_err(|_| self.queue.no_reply())?.take();
        results.results.pop().expect("one command, one result")
    }

    fn note(&self, outcome: &Outcome) {
        if let Outcome::NodeRegistered { joined: true, nodes, format } = outcome {
            tracing::info!(node = %self.id, name = self.name, nodes, format, "node registered");
        }
    }

    /// The last command of a registered node: its deregistration.
    pub(crate) fn deregister_job(&self) -> Option<Submission> {
        let leave = DeregisterNode { id: self.id.clone() };
        self.beats.load(Ordering::Relaxed).then(|| job(leave.into(), Reply::Discard))
    }
}

fn job(command: Command, reply: Reply) -> Submission {
    Submission::new(vec![command], reply)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The host name, if it is valid as a node name.
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
