use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apalis::prelude::{BoxDynError, Data, WorkerBuilder, WorkerBuilderExt, WorkerError};
use tokio::sync::watch;

use crate::Failure;
use crate::push::{Mail, Storage};
use crate::settings::Settings;

/// Counts handled jobs and signals the last one.
struct Tally {
    handled: AtomicU64,
    jobs: u64,
    last: watch::Sender<bool>,
}

async fn handle(_mail: Mail, tally: Data<Arc<Tally>>) -> Result<(), BoxDynError> {
    if tally.handled.fetch_add(1, Ordering::Relaxed) + 1 == tally.jobs {
        tally.last.send_replace(true);
    }
    Ok(())
}

/// Runs workers until every job was handled and its result is written.
pub(crate) async fn drain(storage: &Storage, settings: &Settings) -> Result<(), Failure> {
    let (last, all_handled) = watch::channel(false);
    let tally = Arc::new(Tally { handled: AtomicU64::new(0), jobs: settings.jobs, last });
    let workers: Vec<_> = (0..settings.workers)
        .map(|n| {
            let worker = WorkerBuilder::new(format!("worker-{n}"))
                .backend(storage.clone())
                .data(tally.clone())
                .concurrency(settings.concurrency)
                .build(handle);
            let mut all_handled = all_handled.clone();
            tokio::spawn(worker.run_until(async move {
                // It fails only if all senders are dropped.
                all_handled.wait_for(|last| *last).await.ok();
                Ok::<_, WorkerError>(())
            }))
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    Ok(())
}
