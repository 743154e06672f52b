//! A subscriber that reads the log through all faults.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use windlass_engine::{Engine, Error};

/// The delay before the log is read again from its cursor.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Reader {
    progress: Arc<Progress>,
    reading: JoinHandle<Result<Vec<Entry>, String>>,
}

/// A log event as it was read: its sequence number, and a digest of its content.
pub(crate) type Entry = (u64, u64);

#[derive(Debug, Default)]
struct Progress {
    entries: AtomicU64,
    completed: AtomicU64,
    restarts: AtomicU64,
}

impl Reader {
    pub(crate) fn start(engine: Engine) -> Self {
        let progress = Arc::new(Progress::default());
        let reading = tokio::spawn(read(engine, progress.clone()));
        Self { progress, reading }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.progress.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn completed(&self) -> u64 {
        self.progress.completed.load(Ordering::Relaxed)
    }

    /// How often it had to resume from its cursor after an error.
    pub(crate) fn restarts(&self) -> u64 {
        self.progress.restarts.load(Ordering::Relaxed)
    }

    /// The log events it has read, once its engine is shut down.
    pub(crate) async fn end(self) -> Result<Vec<Entry>, String> {
        self.reading.await.map_err(|error| error.to_string())?
    }
}

async fn read(engine: Engine, progress: Arc<Progress>) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut cursor = None;
    loop {
        let error = match engine.subscribe(cursor.clone()).await {
            Ok(mut log) => loop {
                match log.next().await {
                    Ok(events) => {
                        for event in &events {
                            let parts = [&event.name, &event.body];
                            entries.push((
                                event.seq,
                                digest(event.task.as_ref().map(|id| id.as_str()), parts),
                            ));
                            let completed = u64::from(event.name == "completed");
                            progress.completed.fetch_add(completed, Ordering::Relaxed);
                        }
                        progress.entries.store(entries.len() as u64, Ordering::Relaxed);
                        cursor = Some(log.cursor().clone());
                    }
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        match error {
            Error::Disconnected { cause, .. } if matches!(*cause, Error::ShuttingDown) => {
                return Ok(entries);
            }
            Error::Disconnected { .. } | Error::Store(_) => {
                progress.restarts.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
            other => return Err(format!("reading the log failed: {other}")),
        }
    }
}

pub(crate) fn digest(task: Option<&str>, parts: [&String; 2]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (task, parts).hash(&mut hasher);
    hasher.finish()
}
