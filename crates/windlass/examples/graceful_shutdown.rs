//! A worker that shuts down gracefully: short tasks finish, long ones are released uncounted.
//!
//! Run it with `cargo run --example graceful_shutdown`, and stop it with Ctrl-C or with SIGTERM, as
//! systemd and Kubernetes do; it stops after two seconds anyway.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use windlass::{Context, Engine, Tenant};

/// Works for `ms` milliseconds, and stops early when it is cancelled.
async fn work(context: Context, ms: u64) -> Result<(), windlass::Failure> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(ms)) => {
            println!("  {ms} ms of work completed");
            Ok(())
        }
        () = context.cancelled() => {
            println!("  {ms} ms of work released");
            Err(windlass::Failure::transient("cancelled by shutdown"))
        }
    }
}

/// Waits for Ctrl-C or SIGTERM.
#[cfg(unix)]
async fn stop_requested() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped,
        _ = terminate.recv() => Ok(()),
    }
}

#[cfg(not(unix))]
async fn stop_requested() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open("memory:").await?;
    let worker = engine.worker("worker").concurrency(4).handler("work", work).start()?;
    for ms in [100, 2_500, 60_000] {
        engine.create("work").payload(&ms).await?;
    }

    tokio::select! {
        stopped = stop_requested() => stopped?,
        () = tokio::time::sleep(Duration::from_secs(2)) => {}
    }
    println!("stopping: no more claims, handlers have one second to finish");
    worker.drain(Duration::from_secs(1)).await;

    for (state, tasks) in engine.count_by_state(&Tenant::default()).await? {
        println!("{tasks} {state}");
    }
    engine.shutdown().await?;
    Ok(())
}
