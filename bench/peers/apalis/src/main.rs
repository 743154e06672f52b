//! Jobs that do nothing, pushed and drained through apalis on a SQLite file.

mod drain;
mod pool;
mod push;
mod settings;

use std::time::{Duration, Instant};

use apalis_sqlite::Config;
use clap::Parser;
use serde_json::{Value, json};

use crate::pool::Pool;
use crate::push::Storage;
use crate::settings::{Push, Settings};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many jobs are run before the measurement.
const WARM_UP: u64 = 1_000;

#[derive(Debug, Parser)]
#[command(about = "Jobs that do nothing, pushed and drained through apalis on a SQLite file.")]
struct Program {
    #[command(flatten)]
    settings: Settings,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let settings = Program::parse().settings;
    if settings.file.exists() {
        return Err(format!("{} already exists", settings.file.display()).into());
    }
    let report = run(&settings).await?;
    if settings.json {
        println!("{report}");
    } else {
        println!("{report:#}");
    }
    Ok(())
}

async fn run(settings: &Settings) -> Result<Value, Failure> {
    let pool = Pool::open(settings).await?;
    let durability = pool.durability().await?;
    let storage = Storage::new(&pool.pool).with_config(config(settings));
    warm_up(&pool, &storage, settings).await?;
    let started = Instant::now();
    let mut latencies = push::push(&storage, settings).await?;
    let pushed = started.elapsed();
    if !settings.without_statistics {
        pool.analyze().await?;
    }
    drain::drain(&storage, settings).await?;
    let drained = started.elapsed();
    let done = pool.done().await?;
    if done != settings.jobs + WARM_UP {
        return Err(format!("{done} jobs of {} are done", settings.jobs + WARM_UP).into());
    }
    let after = pool.durability().await?;
    if after != durability || pool.opened() != settings.connections {
        let opened = pool.opened();
        return Err(format!("{opened} connections opened: {durability}, then {after}").into());
    }
    let per_s = |took: Duration| (settings.jobs as f64 / took.as_secs_f64()).round();
    Ok(json!({
        "peer": "apalis",
        "version": dependency("apalis-sqlite"),
        "sqlite": pool.sqlite_version().await?,
        "tasks": settings.jobs,
        "push": if settings.push == Push::Bulk { "bulk" } else { "one-by-one" },
        "fill_per_s": per_s(pushed),
        "tasks_per_s": per_s(drained - pushed),
        "end_to_end_per_s": per_s(drained),
        "push_p50_ms": percentile(&mut latencies, 50),
        "push_p99_ms": percentile(&mut latencies, 99),
        "durability": durability,
        "connections": settings.connections,
        "batching": settings.batching(),
    }))
}

/// Fills the tables with jobs of the same workers. Otherwise the statistics make SQLite choose an
/// index over workers, which is very slow.
async fn warm_up(pool: &Pool, storage: &Storage, settings: &Settings) -> Result<(), Failure> {
    let settings = Settings { jobs: WARM_UP, push: Push::Bulk, ..settings.clone() };
    push::push(storage, &settings).await?;
    drain::drain(storage, &settings).await?;
    pool.forget_heartbeats().await
}

fn config(settings: &Settings) -> Config {
    Config::default().queue("mail").batch_size(settings.batch).lock_tasks(settings.lock)
}

fn percentile(latencies: &mut [Duration], percent: usize) -> f64 {
    latencies.sort_unstable();
    let at = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
    latencies.get(at).copied().unwrap_or_default().as_secs_f64() * 1_000.0
}

/// The version of a dependency, from the lock file this program was built with.
fn dependency(name: &str) -> Option<&'static str> {
    let lock = include_str!("../Cargo.lock");
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    rest.split('"').next()
}
