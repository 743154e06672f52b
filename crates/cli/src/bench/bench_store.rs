use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use windlass_core::command::{Create, NewTask};
use windlass_core::{Payload, Tenant};
use windlass_engine::{Config, Engine, Error};
use windlass_store::Store;

use crate::bench::options::BenchError;
use crate::bench::report::Progress;
use windlass::StoreUrl;

/// The kind of all tasks of a benchmark.
pub(crate) const KIND: &str = "bench";

const PAYLOAD: &str = r#"{"to":"customer@example.com","subject":"hello","template":"welcome"}"#;

/// How many tasks are created at a time.
pub(crate) const BULK: u64 = 500;

/// The store of a benchmark: a named one, or a temporary one.
#[derive(Debug)]
pub(crate) struct BenchStore {
    url: StoreUrl,
    /// Deleted with all its contents at the end.
    temporary: Option<TempDir>,
    /// Whether the tasks that are left have no deadline.
    leave: bool,
}

impl BenchStore {
    pub(crate) fn of(url: Option<StoreUrl>, leave: bool) -> Result<Self, BenchError> {
        match url {
            Some(url) => Ok(Self { url, temporary: None, leave }),
            None => {
                let folder = tempfile::tempdir().map_err(BenchError::Temporary)?;
                let url = StoreUrl::Sqlite(folder.path().join("bench.db"));
                Ok(Self { url, temporary: Some(folder), leave })
            }
        }
    }

    /// The deadline of tasks that a benchmark leaves in a named store.
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        const DAY_MS: u64 = 24 * 3_600 * 1_000;
        (self.temporary.is_none() && !self.leave).then_some(2 * DAY_MS)
    }

    /// Whether engines of several processes can open it.
    pub(crate) fn is_shared(&self) -> bool {
        self.url != StoreUrl::Memory
    }

    pub(crate) fn has_server(&self) -> bool {
        matches!(self.url, StoreUrl::Postgres(_))
    }

    pub(crate) fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The same store with one more setting.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        Self { url: self.url.with(name, value), ..self }
    }

    /// The size of the files of the store; none if it has no file.
    pub(crate) fn file_bytes(&self) -> Option<f64> {
        let StoreUrl::Sqlite(path) = &self.url else { return None };
        let log = path.with_file_name(format!("{}-wal", path.file_name()?.to_string_lossy()));
        let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |found| found.len());
        Some((size(path) + size(&log)) as f64)
    }

    /// The maximum number of connections of a handle; none without a server.
    pub(crate) fn connections(&self) -> Option<usize> {
        if !self.has_server() {
            return None;
        }
        let options = windlass_store_postgres::Options::parse(&self.url.expose_secret());
        options.ok().map(|(_, options)| options.connections)
    }

    pub(crate) async fn start(
        &self,
        config: Config,
    ) -> Result<(Engine, Arc<dyn Store>), BenchError> {
        let store = self.url.open().await?;
        let opened = store.clone();
        Ok((Engine::start_on_own_runtime(async { Ok(opened) }, config).await?, store))
    }
}

/// A new tenant: a benchmark touches only its own tasks.
pub(crate) fn own_tenant() -> Tenant {
    let id = Engine::new_id();
    // The last digits are random. The name is as long as real ones: every key contains it.
    Tenant::new(format!("bench-{}", &id.as_str()[id.as_str().len() - 8..]))
}

/// A typical task with a new id.
pub(crate) fn some_task() -> NewTask {
    let mut task = NewTask::new(Engine::new_id(), KIND);
    task.payload = Some(Payload::json(PAYLOAD));
    task
}

/// Creates `count` tasks in bulk, with a producer on each engine; `shape` adapts each task.
pub(crate) async fn fill(
    engines: &[Engine],
    tenant: &Tenant,
    count: u64,
    json: bool,
    shape: impl Fn(u64, &mut NewTask) + Clone + Send + 'static,
) -> Result<(), BenchError> {
    let progress = Arc::new(Progress::new("filling", count, json));
    let next_task = Arc::new(AtomicU64::new(0));
    let mut fillers = Vec::new();
    for engine in engines {
        let (engine, tenant, shape) = (engine.clone(), tenant.clone(), shape.clone());
        let (next_task, progress) = (next_task.clone(), progress.clone());
        fillers.push(tokio::spawn(async move {
            loop {
                let first = next_task.fetch_add(BULK, Ordering::Relaxed);
                if first >= count {
                    return Ok::<_, Error>(());
                }
                let next = (first + BULK).min(count);
                let tasks = (first..next).map(|n| {
                    let mut task = some_task();
                    shape(n, &mut task);
                    task
                });
                let create = Create { tenant: tenant.clone(), tasks: tasks.collect() };
                engine.submit(create).await?;
                progress.add(next - first);
            }
        }));
    }
    for filler in fillers {
        filler.await??;
    }
    Ok(())
}

/// Creates `count` tasks one by one, with `callers` concurrent callers.
pub(crate) async fn fill_one_by_one(
    engine: &Engine,
    tenant: &Tenant,
    count: u64,
    callers: u32,
    json: bool,
    expiry_ms: Option<u64>,
) -> Result<(), BenchError> {
    let progress = Arc::new(Progress::new("filling", count, json));
    let next_task = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let (engine, tenant) = (engine.clone(), tenant.clone());
            let (next_task, progress) = (next_task.clone(), progress.clone());
            tokio::spawn(async move {
                while next_task.fetch_add(1, Ordering::Relaxed) < count {
                    let task = NewTask { deadline_ms: expiry_ms, ..some_task() };
                    engine.submit(Create { tenant: tenant.clone(), tasks: vec![task] }).await?;
                    progress.add(1);
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}
