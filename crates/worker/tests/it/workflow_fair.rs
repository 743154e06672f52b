//! A workflow that always has work does not starve other tasks.

use std::sync::atomic::{AtomicU32, Ordering};

use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::{EVER, Stage};

static STEPS: AtomicU32 = AtomicU32::new(0);

async fn add(_: Context, n: u32) -> Result<u32, Failure> {
    STEPS.fetch_add(1, Ordering::Relaxed);
    Ok(n + 1)
}

#[tokio::test(start_paused = true)]
async fn a_busy_workflow_does_not_starve_others() {
    async fn climbs(ctx: Workflow, steps: u32) -> Result<u32, StepError> {
        let mut n = 0;
        for _ in 0..steps {
            n = ctx.activity(add, &n).await?;
        }
        Ok(n)
    }
    let stage = Stage::new().await;
    let worker = stage.worker().activity(add);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("climbs", climbs)).start().unwrap();
    let long = stage.other.start_workflow_named::<u32>("climbs", &2_000).id("long").await.unwrap();
    while STEPS.load(Ordering::Relaxed) < 10 {
        tokio::task::yield_now().await;
    }
    let short = stage.other.start_workflow_named::<u32>("climbs", &1).id("short").await.unwrap();
    assert_eq!(short.result().await.unwrap(), 1);
    let steps = STEPS.load(Ordering::Relaxed);
    assert!(steps < 1_000, "{steps} steps of the other one ran before");
    assert_eq!(long.result().await.unwrap(), 2_000);
    running.drain(EVER).await;
}
