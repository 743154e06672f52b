//! Several versions of the code of a workflow.

use std::time::Duration;

use windlass_core::PublicState;
use windlass_engine::{Engine, WorkflowBuilder};
use windlass_worker::Worker;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};

use crate::stage::Stage;

mod one {
    use super::*;

    pub(super) async fn order(ctx: Workflow, n: u32) -> Result<String, StepError> {
        ctx.wait_signal::<()>("go").await?;
        Ok(format!("one {n}"))
    }
}

mod two {
    use super::*;

    pub(super) async fn order(ctx: Workflow, n: u32) -> Result<String, StepError> {
        ctx.sleep(Duration::from_secs(1)).await?;
        Ok(format!("two {n} {}", ctx.info().version.unwrap_or_default()))
    }
}

fn start<'e>(engine: &'e Engine, id: &str) -> WorkflowBuilder<'e, String> {
    engine.start_workflow_named("order", &7).id(id)
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_the_version_does_not_claim() {
    let stage = Stage::new().await;
    let other = stage.worker().workflow_version("2.0.0", two::order).start().unwrap();
    let plain = Worker::new(stage.engine.clone(), "plain").workflow(two::order).start().unwrap();
    let handle = start(&stage.other, "pinned").version("1.0.0").await.unwrap();
    handle.signal("go", &()).await.unwrap();
    // Both workers have had the opportunity to claim it.
    let after = start(&stage.other, "after").version("2.0.0").await.unwrap();
    assert_eq!(after.result().await.unwrap(), "two 7 2.0.0");
    let info = handle.task().await.unwrap();
    assert_eq!((info.lifecycle.public(), info.claims), (PublicState::Waiting, 0));
    let has_it = Worker::new(stage.engine.clone(), "late");
    let late = has_it.workflow_version("1.0.0", one::order).start().unwrap();
    assert_eq!(handle.result().await.unwrap(), "one 7");
    for running in [other, plain, late] {
        running.drain(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_worker_runs_two_versions() {
    let stage = Stage::new().await;
    let worker = stage.worker().capabilities(["gpu"]).workflow_cache_size(0);
    let worker = worker.workflow_version("1.0.0", one::order).workflow_version("2.0.0", two::order);
    let running = worker.capabilities(["cuda"]).start().unwrap();
    let first = start(&stage.other, "first").version("1.0.0").await.unwrap();
    let second = start(&stage.other, "second").version("2.0.0").await.unwrap();
    let unpinned = start(&stage.other, "unpinned").await.unwrap();
    first.signal("go", &()).await.unwrap();
    assert_eq!(first.result().await.unwrap(), "one 7");
    assert_eq!(second.result().await.unwrap(), "two 7 2.0.0");
    assert_eq!(unpinned.result().await.unwrap(), "two 7 ", "it gets the latest");
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_continues_as_another_version() {
    async fn old(ctx: Workflow, n: u32) -> Result<String, StepError> {
        match ctx.continue_as_new_version("2.0.0", &(n + 1)).await? {}
    }
    async fn parent(ctx: Workflow, n: u32) -> Result<String, StepError> {
        let wrong = ctx.child_named::<String>("order", &n).version("two").await.unwrap_err();
        assert!(wrong.to_string().contains("is not a version"), "{wrong}");
        let wrong = ctx.continue_as_new_version("two", &n).await.unwrap_err();
        assert!(wrong.to_string().contains("is not a version"), "{wrong}");
        ctx.child_named("order", &n).version("1.0.0").await
    }
    let stage = Stage::new().await;
    let worker = stage
        .worker()
        .concurrency(2)
        .workflow_definition(WorkflowDefinition::named("parent", parent));
    let first = worker
        .workflow_definition(WorkflowDefinition::named("order", old).at_version("1.0.0"))
        .start()
        .unwrap();
    let second = Worker::new(stage.engine.clone(), "v").workflow_version("2.0.0", two::order);
    let second = second.start().unwrap();
    let handle =
        stage.other.start_workflow_named::<String>("parent", &1).id("parent").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), "two 2 2.0.0");
    for running in [first, second] {
        running.drain(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_version_is_rejected() {
    let stage = Stage::new().await;
    for text in ["1.2", "", "v1.2.0", "1.2.0 "] {
        let rejected = start(&stage.other, "order").version(text).await.unwrap_err();
        assert_eq!(rejected.code(), "invalid", "{text}");
        let rejected = stage.worker().workflow_version(text, one::order).start().unwrap_err();
        assert_eq!(rejected.code(), "invalid", "{text}");
    }
    assert_eq!(stage.memory.snapshot().rows().count(), 0);
}
