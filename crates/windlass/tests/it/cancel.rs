//! An activity runs on one engine and is cancelled by another engine on the same database.

use std::time::Duration;

use tokio::sync::mpsc;
use windlass::workflow::{StepError, WorkflowDefinition};
use windlass::{Context, Engine, Workflow};
use windlass_store_test::postgres::Server;

/// So long that the first renewal is hours away.
const LEASE: Duration = Duration::from_secs(86_400);
/// Longer than anything that does not wait for it.
const NEVER: Duration = Duration::from_secs(120);

async fn waits(ctx: Workflow, (): ()) -> Result<(), StepError> {
    ctx.activity_named("listens", &()).await
}

async fn a_handler_is_notified(url: &str) {
    let (here, there) = (Engine::open(url).await.unwrap(), Engine::open(url).await.unwrap());
    let (sender, mut events) = mpsc::unbounded_channel();
    let listens = move |context: Context, (): ()| {
        let sender = sender.clone();
        async move {
            sender.send("started")?;
            context.cancelled().await;
            sender.send("cancelled")?;
            Ok(())
        }
    };
    let worker = here.worker("w").concurrency(2).lease(LEASE).handler("listens", listens);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("waits", waits)).start().unwrap();
    let handle = there.start_workflow_named::<()>("waits", &()).await.unwrap();
    let mut next = async || tokio::time::timeout(NEVER, events.recv()).await;
    assert_eq!(next().await, Ok(Some("started")));
    handle.cancel("enough").await.unwrap();
    assert_eq!(next().await, Ok(Some("cancelled")));
    running.drain(NEVER).await;
    for engine in [here, there] {
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_is_notified_of_a_cancellation_by_another_engine_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    a_handler_is_notified(&format!("sqlite://{}", folder.path().join("shared.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_is_notified_of_a_cancellation_by_another_node() {
    let server = Server::start();
    a_handler_is_notified(&server.url()).await;
}
