use std::sync::Arc;
use std::time::Duration;

use windlass_store::{Clock, SystemClock};

use crate::requests::RequestPolicy;

/// How an engine behaves. Durability is not among it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most commands decided in one transaction; 1 switches batching off.
    pub batch_commands: usize,
    /// How many batches are under way at once. Left open it is one in a store of this machine,
    /// which has one writer, and two in a store with a server: one waits while the other computes.
    pub batches_at_once: Option<usize>,
    /// The most payload bytes taken into one transaction, beyond its first command.
    pub batch_bytes: usize,
    /// What may wait to be decided before callers are told that it is too much.
    pub queue_commands: usize,
    pub queue_rows: usize,
    pub queue_bytes: usize,
    /// The most payload bytes that come with one claim; what is beyond is fetched one by one.
    pub claim_bytes: u64,
    /// How many due records of each kind one sweep looks at.
    pub sweep_page: u32,
    /// How long log entries are kept.
    pub event_retention: Duration,
    /// Do by itself what happens by itself. Without it, [`crate::Engine::sweep`] and
    /// [`crate::Engine::trim_log`] wait to be called, and no node is registered.
    pub background: bool,
    /// What this engine is called among the nodes of a store that nodes share; by the name of its
    /// host if this does not say.
    pub node_name: Option<String>,
    /// How often it tells them that it is there. After three beats that did not come it is taken
    /// for gone. On a store of its own it never does.
    pub beat_every: Duration,
    /// How requests are answered once; see [`crate::Engine::admit`].
    pub requests: RequestPolicy,
    /// What the timers of this engine go by. The time of a batch comes from its store.
    pub clock: Arc<dyn Clock>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            batch_commands: 1_024,
            batches_at_once: None,
            batch_bytes: 8 * 1_024 * 1_024,
            queue_commands: 20_000,
            queue_rows: 200_000,
            queue_bytes: 256 * 1_024 * 1_024,
            claim_bytes: 4 * 1_024 * 1_024,
            sweep_page: 256,
            event_retention: Duration::from_secs(7 * 24 * 3_600),
            background: true,
            node_name: None,
            beat_every: Duration::from_secs(5),
            requests: RequestPolicy::default(),
            clock: Arc::new(SystemClock),
        }
    }
}
