use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::sync::oneshot;
use windlass::{Config, Context, Engine, Failure, StoreUrl};

use crate::demo::effects::Effects;
use crate::demo::error::DemoError;
use crate::demo::plan;

/// Short, so that the tasks of a killed worker are soon leased again.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
const CONCURRENCY: usize = 4;
const GRACE: Duration = Duration::from_secs(10);

/// A worker process of the demo. It exits when its stdin is closed, so that it never outlives the
/// demo.
#[derive(Debug, Args)]
pub(crate) struct DemoWorker {
    #[arg(long)]
    store: StoreUrl,
    #[arg(long)]
    name: String,
    #[arg(long)]
    effects: PathBuf,
}

impl DemoWorker {
    pub(crate) async fn run(self) -> Result<(), DemoError> {
        let effects = Effects::open(&self.effects)?;
        let engine = Engine::open_with(&self.store, Config::default()).await?;
        let mut worker = engine
            .worker(self.name)
            .lanes(["default", plan::INVOICES])
            .concurrency(CONCURRENCY)
            .lease(LEASE);
        let kinds = [plan::RESIZE, plan::RENDER, plan::EMAIL, plan::IMPORT, plan::SYNC];
        for kind in kinds.into_iter().chain([plan::INVOICE, plan::CHARGE, plan::REPORT]) {
            let effects = effects.clone();
            worker = worker.handler(kind, move |context: Context, input: Value| {
                let effects = effects.clone();
                async move { work(&context, &input, &effects).await }
            });
        }
        let running = worker.start()?;
        input_ended().await;
        running.drain(GRACE).await;
        Ok(engine.shutdown().await?)
    }
}

/// Sleeps; then fails, or appends its effect.
async fn work(context: &Context, input: &Value, effects: &Effects) -> Result<(), Failure> {
    let ms = input["ms"].as_u64().unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    match context.kind().as_str() {
        plan::EMAIL if context.attempt() == 1 => Err(Failure::transient("the server is down")),
        plan::SYNC => Err(Failure::transient("the server does not answer")),
        plan::IMPORT => Err(Failure::permanent("row 17 has no date")),
        _ => Ok(effects.append(&context.fence())?),
    }
}

async fn input_ended() {
    let (sender, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        // Nothing is ever written there; an error counts as the end.
        let _ = std::io::stdin().read(&mut [0]);
        drop(sender);
    });
    // The sender is only dropped.
    let _ = ended.await;
}
