//! A process that runs the orchestrations of a store until it is killed: `runner postgres://...`.
//!
//! Each orchestration adds one five times, in sequential activities.

use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};
use windlass_duroxide::WindlassProvider;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: runner postgres://...")?;
    let store = Arc::new(WindlassProvider::open(&url).await?);
    let add = |_: ActivityContext, number: String| async move {
        let number: u64 = number.parse().map_err(|_| "not a number".to_owned())?;
        Ok((number + 1).to_string())
    };
    let five = |ctx: OrchestrationContext, mut number: String| async move {
        for _ in 0..5 {
            number = ctx.schedule_activity("add", number).await?;
        }
        Ok(number)
    };
    let activities = ActivityRegistry::builder().register("add", add).build();
    let orchestrations = OrchestrationRegistry::builder().register("five", five).build();
    let options = RuntimeOptions {
        orchestration_concurrency: 16,
        worker_concurrency: 32,
        // Short, so that other processes soon take over the work of a killed one.
        orchestrator_lock_timeout: Duration::from_secs(3),
        orchestrator_lock_renewal_buffer: Duration::from_secs(2),
        worker_lock_timeout: Duration::from_secs(5),
        worker_lock_renewal_buffer: Duration::from_secs(3),
        ..RuntimeOptions::default()
    };
    let _runtime = Runtime::start_with_options(store, activities, orchestrations, options).await;
    std::future::pending::<()>().await;
    Ok(())
}
