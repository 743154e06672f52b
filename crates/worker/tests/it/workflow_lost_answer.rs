//! A commit that is done and whose answer is lost: whoever asks again goes on at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass_store_test::{Call, CrashPoint, Failure as Fault, FaultStore};
use windlass_worker::workflow::{Program, Workflow};
use windlass_worker::{Context, Failure};

use crate::stage::{EVER, Stage, key};

/// Which commit it is whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// Of the turn that makes the first activity.
    First,
    /// Of the turn that is made of the end of the first activity.
    Second,
}

/// The next commit is done, and nobody learns of that.
fn lose(faults: &FaultStore) {
    faults.crash(1, CrashPoint::AfterCommit);
    faults.fail_times(Call::Outcome, 8, Fault::Unavailable);
}

/// Runs a workflow of two steps, with mail for it where that is wished. No lease may run out.
async fn check(lost: Lost, mail: bool) {
    let stage = Stage::new().await;
    let (faults, other) = (stage.faults.clone(), stage.other.clone());
    let ready = move || {
        let (faults, other) = (faults.clone(), other.clone());
        async move {
            if mail {
                other.workflow(key("t")).signal("go", &()).await.unwrap();
            }
            // Word of the mail is told by then, by a commit of its own or without one.
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
            ctx.local("arm", arm).await?;
            let n: u32 = ctx.activity_named("step", &0).await?;
            if mail {
                ctx.event::<()>("go").await?;
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
    let worker = stage.worker().handler("step", step).program(Program::named("two", two));
    let running = worker.start().unwrap();
    let handle = stage.other.start_workflow::<u32>("two", &()).id("t").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
    for id in ["t", "t/1", "t/2", "t/3"] {
        let history = stage.history(id);
        assert!(!history.contains("lease_expired"), "{id}: {history}");
    }
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_first_turn_has_leased_runs() {
    check(Lost::First, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_goes_on_goes_on() {
    check(Lost::First, true).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_ahead_has_leased_runs() {
    check(Lost::Second, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_ahead_that_goes_on_goes_on() {
    check(Lost::Second, true).await;
}

/// The store is away until the lease of the turn is so near its end that no other turn is
/// begun. What the commit has leased runs all the same.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_is_heard() {
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
            ctx.local("arm", arm).await?;
            ctx.activity_named::<u32>("step", &1).await
        }
    };
    let step = async |_: Context, n: u32| Ok::<u32, Failure>(n + 1);
    let worker = stage.worker().lease(Duration::from_secs(7)).handler("step", step);
    let running = worker.program(Program::named("one", one)).start().unwrap();
    let handle = stage.other.start_workflow::<u32>("one", &()).id("t").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
    assert_eq!(stage.history("t/1"), "claimed completed", "its first lease is put to use");
    running.drain(EVER).await;
}
