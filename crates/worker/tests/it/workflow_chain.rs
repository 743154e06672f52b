//! A long workflow uses no more runtime tasks than one that has just started.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::{EVER, Stage};

static MOST: AtomicUsize = AtomicUsize::new(0);

async fn add(_: Context, n: u32) -> Result<u32, Failure> {
    MOST.fetch_max(Handle::current().metrics().num_alive_tasks(), Ordering::Relaxed);
    Ok(n + 1)
}

async fn local(_: u32) -> Result<u32, Failure> {
    Ok(1)
}

#[tokio::test(start_paused = true)]
async fn ended_attempts_leave_no_runtime_tasks_behind() {
    async fn climbs(ctx: Workflow, steps: u32) -> Result<u32, StepError> {
        let mut n = 0;
        for _ in 0..steps {
            let one = ctx.local_activity("one", || local(1)).await?;
            n = ctx.activity(add, &n).await? + one - 1;
        }
        Ok(n)
    }
    let stage = Stage::new().await;
    let worker = stage.worker().activity(add).concurrency(4);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("climbs", climbs)).start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("climbs", &500).id("c").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 500);
    let most = MOST.load(Ordering::Relaxed);
    assert!(most < 100, "{most} tasks at once");
    running.drain(EVER).await;
}
