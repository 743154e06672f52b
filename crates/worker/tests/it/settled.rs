use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use windlass_core::Fence;
use windlass_core::command::{Cancel, Create};
use windlass_store_test::{Call, Failure as Fault};
use windlass_worker::{AttemptReport, Context, Failure, SettleRequest, SettleResult, Worker};

use crate::stage::{EVER, Stage, key, new_task, signal};

const LEASE: Duration = Duration::from_secs(30);

/// Describes a report.
fn words(report: &AttemptReport) -> String {
    let requested = match &report.request {
        None => "nothing".to_owned(),
        Some(SettleRequest::Complete(result)) => {
            format!("complete {}", result.as_ref().map_or(0, |result| result.bytes.len()))
        }
        Some(SettleRequest::Fail(failure)) => format!("fail {}", failure.reason()),
        Some(SettleRequest::Release) => "release".to_owned(),
        Some(SettleRequest::WaitChildren) => "wait".to_owned(),
        Some(SettleRequest::Suspend) => "suspend".to_owned(),
        Some(SettleRequest::Snooze { delay, reason }) => {
            format!("delay {} {reason}", delay.as_secs())
        }
    };
    let outcome = match &report.result {
        SettleResult::Lost(_) => "lost",
        SettleResult::Rejected(_) => "rejected",
        SettleResult::LeaseExpired | SettleResult::Settled => "",
    };
    let code = report.result.code().unwrap_or("settled");
    let (id, kind, attempt) = (&report.fence.task.id, &report.kind, report.attempt);
    format!("{id} {kind} {attempt}: {requested}, {outcome} {code}")
}

type Reports = mpsc::UnboundedReceiver<(String, Fence)>;

fn listened(worker: Worker) -> (Worker, Reports) {
    let (said, reports) = mpsc::unbounded_channel();
    let worker = worker.lease(LEASE).on_settled(move |report| {
        said.send((words(report), report.fence.clone())).unwrap();
    });
    (worker, reports)
}

fn all(mut reports: Reports) -> Vec<String> {
    std::iter::from_fn(|| reports.try_recv().ok()).map(|(words, _)| words).collect()
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_reported_with_its_outcome() {
    let stage = Stage::new().await;
    let (worker, reports) = listened(stage.worker());
    let handler = async |context: Context, what: String| match &*what {
        "done" => Ok(7),
        "failed" => Err(context.non_retryable("no")),
        "away" => Err(Failure::snooze("the printer is offline", Duration::from_secs(600))),
        other => panic!("{other}"),
    };
    let mut stranger = new_task("a", "null");
    (stranger.kind, stranger.priority) = ("unknown".into(), 1);
    stage.other.submit(Create::one(stranger)).await.unwrap();
    for (id, what) in [("b", "done"), ("c", "failed"), ("d", "away"), ("e", "hm")] {
        stage.create(id, &format!("{what:?}")).await;
    }
    let mut running = worker.handler("k", handler).max_tasks(4).start().unwrap();
    running.wait().await;
    let expected = [
        "a unknown 1: delay 10 this worker has no handler for unknown,  settled",
        "b k 1: complete 1,  settled",
        "c k 1: fail no,  settled",
        "d k 1: delay 600 the printer is offline,  settled",
        "e k 1: fail the handler panicked: hm,  settled",
    ];
    assert_eq!(all(reports), expected);
    assert_eq!(stage.history("d"), "created claimed snoozed");
    assert_eq!(stage.task("d").await.attempts, 0, "the attempt is not counted");
}

#[tokio::test(start_paused = true)]
async fn rejected_lost_and_released_attempts_are_reported() {
    for (cancelled, works, drained, expected) in [
        (true, LEASE / 6, EVER, "t k 1: complete 6, rejected already_terminal"),
        (true, EVER, EVER, "t k 1: nothing, lost already_terminal"),
        (false, EVER, Duration::ZERO, "t k 1: release,  settled"),
    ] {
        let stage = Stage::new().await;
        stage.create("t", "null").await;
        let (worker, reports) = listened(stage.worker());
        let (said, mut hear) = signal();
        let handler = move |_: Context, (): ()| {
            let said = said.clone();
            async move {
                said.send(Instant::now())?;
                sleep(works).await;
                Ok("late")
            }
        };
        let running = worker.handler("k", handler).start().unwrap();
        hear.next().await.unwrap();
        if cancelled {
            // The worker that misses the notification runs until it settles or renews.
            stage.faults.fail(Call::Query, 1, Fault::Unavailable);
            stage.other.submit(Cancel { task: key("t"), reason: "no".into() }).await.unwrap();
        }
        running.drain(drained).await;
        assert_eq!(all(reports), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_outlasts_its_lease_is_reported() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let (worker, mut reports) = listened(stage.worker());
    let faults = stage.faults.clone();
    let handler = move |_: Context, (): ()| {
        faults.outage(Fault::Unavailable);
        std::future::ready(Ok("done"))
    };
    let mut running = worker.handler("k", handler).max_tasks(1).start().unwrap();
    running.wait().await;
    let (words, fence) = reports.recv().await.unwrap();
    assert_eq!(words, "t k 1: complete 6,  lease_expired");
    assert_eq!(fence, stage.task("t").await.fence());
    assert!(reports.recv().await.is_none(), "it is reported once");
    assert!(!stage.history("t").contains("completed"));
}
