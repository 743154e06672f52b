use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use apalis::prelude::TaskSink;
use apalis_sqlite::SqliteStorage;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::settings::{Push, Settings};

/// The payload of the Windlass benchmarks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mail {
    to: String,
    subject: String,
    template: String,
}

pub(crate) type Storage = SqliteStorage<Mail>;

fn mail() -> Mail {
    Mail { to: "customer@example.com".into(), subject: "hello".into(), template: "welcome".into() }
}

/// Pushes all jobs and returns the latency of each call.
pub(crate) async fn push(storage: &Storage, settings: &Settings) -> Result<Vec<Duration>, Failure> {
    match settings.push {
        Push::OneByOne => one_by_one(storage, settings).await,
        Push::Bulk => in_bulk(storage.clone(), settings).await,
    }
}

async fn one_by_one(storage: &Storage, settings: &Settings) -> Result<Vec<Duration>, Failure> {
    let (pushed, jobs) = (Arc::new(AtomicU64::new(0)), settings.jobs);
    let producers: Vec<_> = (0..settings.concurrency)
        .map(|_| {
            let (mut storage, pushed) = (storage.clone(), pushed.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while pushed.fetch_add(1, Ordering::Relaxed) < jobs {
                    let started = Instant::now();
                    storage.push(mail()).await?;
                    latencies.push(started.elapsed());
                }
                Ok::<_, Failure>(latencies)
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for producer in producers {
        latencies.extend(producer.await??);
    }
    Ok(latencies)
}

async fn in_bulk(mut storage: Storage, settings: &Settings) -> Result<Vec<Duration>, Failure> {
    let mut latencies = Vec::new();
    let mut left = usize::try_from(settings.jobs)?;
    while left > 0 {
        let count = left.min(settings.bulk);
        let started = Instant::now();
        storage.push_bulk(vec![mail(); count]).await?;
        latencies.push(started.elapsed());
        left -= count;
    }
    Ok(latencies)
}
