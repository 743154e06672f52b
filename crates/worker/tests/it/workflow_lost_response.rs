//! A commit takes effect and its response is lost: the retry continues at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass_store_test::{Call, CrashPoint, Failure as Fault, FaultStore};
use windlass_worker::workflow::{Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::{EVER, Stage, key};

/// The commit whose response is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// Of the turn that schedules the first activity.
    First,
    /// Of the speculative turn after the first activity.
    Second,
}

/// The next commit takes effect, and its outcome stays unknown.
fn lose(faults: &FaultStore) {
    faults.crash(1, CrashPoint::AfterCommit);
    faults.fail_times(Call::Outcome, 8, Fault::Unavailable);
}

/// Runs a workflow of two steps, optionally with a message for it. No lease may expire.
async fn check(lost: Lost, mail: bool) {
    let stage = Stage::new().await;
    let (faults, other) = (stage.faults.clone(), stage.other.clone());
    let ready = move || {
        let (faults, other) = (faults.clone(), other.clone());
        async move {
            if mail {
                other.workflow(key("t")).signal("go", &()).await.unwrap();
            }
            // The workflow is woken for the message by then, by a separate commit or without one.
            tokio::time::sleep(Duration::from_secs(1)).await;
            lose(&faults);
        }
    };
    let at_first = ready.clone();
    let two = move |ctx: Workflow, (): ()| {
        let ready = at_first.clone();
        async move {
            let arm = move || async move {
                if lost == Lost::First {
                    ready().await;
                }
                Ok::<(), Failure>(())
            };
            ctx.local_activity("arm", arm).await?;
            let n: u32 = ctx.activity_named("step", &0).await?;
            if mail {
                ctx.wait_signal::<()>("go").await?;
            }
            ctx.activity_named::<u32>("step", &n).await
        }
    };
    let runs = Arc::new(AtomicBool::new(false));
    let step = move |_: Context, n: u32| {
        let (ready, runs) = (ready.clone(), runs.clone());
        async move {
            assert!(!runs.swap(true, Ordering::SeqCst), "a lease has one holder");
            if n == 0 && lost == Lost::Second {
                ready().await;
            }
            runs.store(false, Ordering::SeqCst);
            Ok::<u32, Failure>(n + 1)
        }
    };
    let worker = stage
        .worker()
        .handler("step", step)
        .workflow_definition(WorkflowDefinition::named("two", two));
    let running = worker.start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("two", &()).id("t").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
    for id in ["t", "t/1", "t/2", "t/3"] {
        let history = stage.history(id);
        assert!(!history.contains("lease_lost"), "{id}: {history}");
    }
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn eager_activities_of_a_turn_run_after_a_lost_response() {
    check(Lost::First, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_lease_continues_survives_a_lost_response() {
    check(Lost::First, true).await;
}

#[tokio::test(start_paused = true)]
async fn eager_activities_of_a_speculative_turn_run_after_a_lost_response() {
    check(Lost::Second, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_speculative_turn_with_a_lease_survives_a_lost_response() {
    check(Lost::Second, true).await;
}

/// The store is unavailable until the lease of the turn is so near expiry that no other turn
/// starts. The activities that the commit has leased run all the same.
#[tokio::test(start_paused = true)]
async fn a_late_response_to_a_commit_is_used() {
    let stage = Stage::new().await;
    let faults = stage.faults.clone();
    let one = move |ctx: Workflow, (): ()| {
        let faults = faults.clone();
        async move {
            let arm = move || async move {
                lose(&faults);
                let before = faults.commits();
                tokio::spawn(async move {
                    while faults.commits() == before {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    faults.outage(Fault::Unavailable);
                    tokio::time::sleep(Duration::from_millis(6_200)).await;
                    faults.calm();
                });
                Ok::<(), Failure>(())
            };
            ctx.local_activity("arm", arm).await?;
            ctx.activity_named::<u32>("step", &1).await
        }
    };
    let step = async |_: Context, n: u32| Ok::<u32, Failure>(n + 1);
    let worker = stage.worker().lease(Duration::from_secs(7)).handler("step", step);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("one", one)).start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("one", &()).id("t").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
    assert_eq!(stage.history("t/1"), "claimed completed", "its first lease is used");
    running.drain(EVER).await;
}
