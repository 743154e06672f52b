use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use windlass::{Failure, StoreUrl, Worker};
use windlass_core::Tenant;
use windlass_engine::{Config, Engine};

use crate::bench::bench_store::KIND;
use crate::bench::options::BenchError;
use crate::output::say_json;

/// One of the processes that drain a backlog together.
///
/// It reports when it is ready, starts at the first line on its stdin, reports its progress, and
/// ends when its stdin is closed.
#[derive(Debug, Args)]
pub(crate) struct DrainShare {
    /// The store; from the environment, because the process list shows arguments and their
    /// passwords.
    #[arg(long, env = "WINDLASS_STORE", hide_env_values = true)]
    store: StoreUrl,
    #[arg(long)]
    tenant: Tenant,
    #[arg(long)]
    name: String,
    #[arg(long)]
    handlers: u32,
    #[arg(long)]
    unbatched: bool,
}

const REPORT_INTERVAL: Duration = Duration::from_millis(50);
const GRACE: Duration = Duration::from_secs(10);

/// The results of the settles of this process.
#[derive(Debug, Default)]
struct Settles {
    settled: AtomicU64,
    not_settled: AtomicU64,
}

impl DrainShare {
    pub(crate) async fn run(self) -> Result<(), BenchError> {
        let config = Config::default();
        let config = if self.unbatched { Config { batch_commands: 1, ..config } } else { config };
        let store = self.store.open().await?;
        let opened = store.clone();
        let engine = Engine::start_on_own_runtime(async { Ok(opened) }, config).await?;
        let settles = Arc::new(Settles::default());
        let counted = settles.clone();
        let worker = Worker::new(engine.clone(), self.name)
            .tenant(self.tenant)
            .concurrency(self.handlers as usize)
            .on_settled(move |settlement| {
                let settled = settlement.result.is_settled();
                let count = if settled { &counted.settled } else { &counted.not_settled };
                count.fetch_add(1, Ordering::Relaxed);
            })
            .raw_handler(KIND, |_| std::future::ready(Ok::<_, Failure>(None)));
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        say_json(&json!({ "ready": true }));
        lines.next_line().await.map_err(BenchError::Process)?;
        let running = worker.start()?;
        loop {
            tokio::select! {
                line = lines.next_line() => {
                    if line.map_err(BenchError::Process)?.is_none() {
                        break;
                    }
                }
                () = tokio::time::sleep(REPORT_INTERVAL) => {
                    say_json(&json!({ "settled": settles.settled.load(Ordering::Relaxed) }));
                }
            }
        }
        running.drain(GRACE).await;
        let stats = engine.stats();
        engine.shutdown().await?;
        say_json(&json!({
            "settled": settles.settled.load(Ordering::Relaxed),
            "not_settled": settles.not_settled.load(Ordering::Relaxed),
            "batches": stats.batches,
            "commands": stats.commands,
            "conflicts": stats.conflicts,
        }));
        Ok(())
    }
}
