use std::sync::Arc;

use tempfile::TempDir;
use windlass_core::command::{Create, NewTask};
use windlass_core::{Payload, Tenant};
use windlass_engine::{Config, Engine};
use windlass_store::Store;

use crate::bench::options::BenchError;
use crate::bench::report::Progress;
use crate::store_url::StoreUrl;

const PAYLOAD: &str = r#"{"to":"somebody@example.com","subject":"hello","template":"welcome"}"#;

/// Where a benchmark runs: a store that was named, or a temporary one.
#[derive(Debug)]
pub(crate) struct Place {
    url: StoreUrl,
    /// Removed with everything in it at the end.
    _temporary: Option<TempDir>,
}

impl Place {
    pub(crate) fn of(url: Option<StoreUrl>) -> Result<Self, BenchError> {
        match url {
            Some(url) => Ok(Self { url, _temporary: None }),
            None => {
                let folder = tempfile::tempdir().map_err(BenchError::Temporary)?;
                let url = StoreUrl::Sqlite(folder.path().join("bench.db"));
                Ok(Self { url, _temporary: Some(folder) })
            }
        }
    }

    pub(crate) async fn start(
        &self,
        config: Config,
    ) -> Result<(Engine, Arc<dyn Store>), BenchError> {
        let store = self.url.open()?;
        Ok((Engine::start_shared(store.clone(), config).await?, store))
    }
}

/// A tenant that nobody has: a benchmark touches no task but its own.
pub(crate) fn own_tenant() -> Tenant {
    Tenant::new(format!("bench-{}", Engine::new_id()))
}

/// A task like those people queue, under a fresh id. In a store that is kept, it goes by itself.
pub(crate) fn some_task() -> NewTask {
    const HOUR_MS: u64 = 3_600_000;
    let mut task = NewTask::new(Engine::new_id(), "bench");
    task.payload = Some(Payload::json(PAYLOAD));
    task.policy.retention_ms = HOUR_MS;
    task.deadline_ms = Some(48 * HOUR_MS);
    task
}

/// Creates `count` tasks in bulk; `shape` makes each what it should be.
pub(crate) async fn fill(
    engine: &Engine,
    tenant: &Tenant,
    count: u64,
    json: bool,
    shape: impl Fn(u64, &mut NewTask),
) -> Result<(), BenchError> {
    const BULK: u64 = 500;
    let progress = Progress::new("filling", count, json);
    let mut made = 0;
    while made < count {
        let next = (made + BULK).min(count);
        let tasks = (made..next).map(|n| {
            let mut task = some_task();
            shape(n, &mut task);
            task
        });
        let create = Create { tenant: tenant.clone(), tasks: tasks.collect() };
        engine.submit(create).await?;
        progress.add(next - made);
        made = next;
    }
    Ok(())
}
