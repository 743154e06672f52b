use std::sync::Arc;
use std::time::Duration;

use windlass_store::{Clock, SystemClock};

use crate::requests::RequestPolicy;

/// Settings of an engine. Durability is a setting of the store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of commands at which a batch accepts no further job; 1 disables batching.
    pub batch_commands: usize,
    /// Number of concurrent batches. By default 1 for an embedded store, which has one writer, and
    /// 2 for a store with a server, so that one batch computes while the other waits.
    pub max_concurrent_batches: Option<usize>,
    /// Payload bytes beyond which a batch accepts no further job.
    pub batch_bytes: usize,
    /// Limits of the command queue. Calls that exceed them fail with `overloaded`.
    pub queue_commands: usize,
    pub queue_rows: usize,
    pub queue_bytes: usize,
    /// Maximum payload bytes returned inline by one claim; workers fetch the others one by one.
    pub claim_bytes: u64,
    /// Number of due records of each kind that one sweep processes.
    pub sweep_page: u32,
    /// How long log events are retained.
    pub event_retention: Duration,
    /// Runs the sweep, log trimming and node heartbeats in the background. Without it, call
    /// [`crate::Engine::sweep`] and [`crate::Engine::trim_log`]; no node is registered.
    pub background: bool,
    /// Name of this node in a shared store; the host name by default.
    pub node_name: Option<String>,
    /// Interval of node heartbeats in a shared store. A node is declared dead after 3.5 intervals
    /// without one. An embedded store has no heartbeats.
    pub heartbeat_interval: Duration,
    /// Policy for idempotent requests; see [`crate::Engine::admit`].
    pub requests: RequestPolicy,
    /// Clock of this engine's timers. The time of a batch comes from the store.
    pub clock: Arc<dyn Clock>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            batch_commands: 1_024,
            max_concurrent_batches: None,
            batch_bytes: 8 * 1_024 * 1_024,
            queue_commands: 20_000,
            queue_rows: 200_000,
            queue_bytes: 256 * 1_024 * 1_024,
            claim_bytes: 4 * 1_024 * 1_024,
            sweep_page: 256,
            event_retention: Duration::from_secs(7 * 24 * 3_600),
            background: true,
            node_name: None,
            heartbeat_interval: Duration::from_secs(5),
            requests: RequestPolicy::default(),
            clock: Arc::new(SystemClock),
        }
    }
}
