use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_core::command::{Cancel, Create, NewTask};
use windlass_core::{Change, LogEvent, Payload, RetryPolicy};
use windlass_worker::{Context, Failure, Worker};

use crate::stage::{EVER, Stage, key, new_task};

#[derive(Deserialize)]
struct Email {
    to: String,
}

#[derive(Serialize)]
struct Receipt {
    to: String,
    attempt: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("the mail server is busy")]
struct Busy;

#[tokio::test(start_paused = true)]
async fn a_typed_task_from_its_payload_to_its_result() {
    let stage = Stage::new().await;
    let worker = stage.worker().lanes(["emails"]).capabilities(["smtp"]).handler(
        "email",
        async |context: Context, mail: Email| {
            assert_eq!(context.id().as_str(), "t");
            assert_eq!(context.kind().as_str(), "email");
            assert_eq!(context.labels()["customer"], "7");
            assert_eq!(context.payload().unwrap().bytes[..], *b"{\"to\":\"ada\"}");
            assert!(!context.is_cancelled());
            Ok(Receipt { to: mail.to, attempt: context.attempt() })
        },
    );
    let running = worker.start().unwrap();
    let mut new = NewTask { kind: "email".into(), ..new_task("t", "{\"to\":\"ada\"}") };
    new.lane = "emails".into();
    new.capabilities = ["smtp".to_owned()].into();
    new.labels = [("customer".to_owned(), "7".to_owned())].into();
    stage.other.submit(Create::one(new)).await.unwrap();
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "{\"to\":\"ada\",\"attempt\":1}");
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_without_payload_completes_without_result() {
    let stage = Stage::new().await;
    stage.other.submit(Create::one(NewTask::new("t", "k"))).await.unwrap();
    let worker = stage.worker().handler("k", async |_: Context, (): ()| Ok(()));
    let running = worker.start().unwrap();
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await, None);
    running.drain(EVER).await;
}

/// Does in its first attempt what its payload orders, and succeeds in the second.
fn obedient(worker: Worker) -> Worker {
    worker.handler("k", async |context: Context, order: String| {
        match order.as_str() {
            _ if context.attempt() > 1 => {}
            "transient" => return Err(Failure::transient("no")),
            "permanent" => return Err(Failure::permanent("no")),
            "later" => return Err(Failure::retry_after("no", Duration::from_secs(5))),
            "give up" => return Err(Failure::non_retryable("no")),
            "question mark" => Err(Busy)?,
            "panic" => panic!("no {}", 7),
            "plain panic" => panic!("no"),
            "long reason" => return Err(Failure::transient("\0x".repeat(10_000))),
            "too large" => return Ok("x".repeat(5 * 1_024 * 1_024)),
            other => unreachable!("{other}"),
        }
        Ok("done".to_owned())
    })
}

/// The reason of the only failure of a task, and the backoff before the next attempt.
fn failure(stage: &Stage) -> (String, Option<u64>) {
    let failure = |entry: LogEvent| match serde_json::from_str(&entry.body).unwrap() {
        Change::Failed { reason, .. } => Some((reason, None)),
        Change::RetryScheduled { reason, at, .. } => Some((reason, Some(entry.at.ms_until(at)))),
        _ => None,
    };
    stage.events("t").into_iter().find_map(failure).unwrap()
}

async fn check(order: &str, retried: bool, expected: &str, pause_ms: Option<u64>) {
    let stage = Stage::new().await;
    let mut new = new_task("t", order);
    new.policy.retry = retried.then(|| RetryPolicy::fixed(2, 60_000));
    stage.other.submit(Create::one(new)).await.unwrap();
    let running = obedient(stage.worker()).start().unwrap();
    let (history, end) = match pause_ms {
        None => ("created claimed failed", "failed"),
        Some(_) => ("created claimed retry_scheduled promoted claimed completed", "completed"),
    };
    stage.until("t", end).await;
    assert_eq!(stage.history("t"), history, "{order}");
    let (reason, pause) = failure(&stage);
    assert!(reason.starts_with(expected), "{order}: {reason}");
    assert_eq!(pause, pause_ms, "{order}");
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn failures() {
    for (order, retried, reason, pause_ms) in [
        ("\"transient\"", true, "no", Some(60_000)),
        ("\"transient\"", false, "no", None),
        ("\"permanent\"", true, "no", None),
        ("\"later\"", true, "no", Some(5_000)),
        ("\"later\"", false, "no", Some(5_000)),
        ("\"give up\"", true, "no", None),
        ("\"question mark\"", true, "the mail server is busy", Some(60_000)),
        ("\"panic\"", true, "the handler panicked: no 7", Some(60_000)),
        ("\"plain panic\"", false, "the handler panicked: no", None),
        ("\"long reason\"", true, "xxxx", Some(60_000)),
        ("\"too large\"", true, "a result of 5242882 bytes: ", None),
        ("7", true, "the payload does not decode: invalid type: integer `7`", None),
        ("{", true, "the payload does not decode: ", None),
    ] {
        check(order, retried, reason, pause_ms).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_handler_is_left_to_another_worker() {
    let stage = Stage::new().await;
    stage.create("t", "1").await;
    let ignorant = stage.worker().handler("other", async |_: Context, (): ()| Ok(()));
    let ignorant = ignorant.start().unwrap();
    stage.until("t", "snoozed").await;
    assert_eq!(stage.task("t").await.attempts, 0);
    ignorant.drain(EVER).await;
    let worker = stage.worker().handler("k", async |_: Context, _: u32| Ok(()));
    let running = worker.start().unwrap();
    stage.until("t", "completed").await;
    assert_eq!(stage.history("t"), "created claimed snoozed promoted claimed completed");
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn a_raw_handler_gets_and_gives_bytes() {
    let stage = Stage::new().await;
    let bytes = Payload::new("image/png", vec![0, 159, 146, 150]);
    let payload = Some(bytes.clone());
    let worker = stage.worker().raw_handler("k", async |context: Context| {
        Ok(context.payload().map(|payload| {
            let reversed: Vec<u8> = payload.bytes.iter().rev().copied().collect();
            Payload::new(payload.content_type.clone(), reversed)
        }))
    });
    stage.other.submit(Create::one(NewTask { payload, ..NewTask::new("t", "k") })).await.unwrap();
    let running = worker.start().unwrap();
    stage.until("t", "completed").await;
    let reversed = Payload::new("image/png", vec![150, 146, 159, 0]);
    assert_eq!(stage.other.result(&key("t")).await.unwrap(), Some(reversed));
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn progress_is_seen_while_a_handler_runs() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    let worker = stage.worker().handler("k", async |context: Context, (): ()| {
        context.progress(50, "half way").await?;
        assert_eq!(context.progress(101, "").await.unwrap_err().code(), "invalid");
        context.cancelled().await;
        assert_eq!(context.progress(90, "late").await.unwrap_err().code(), "already_terminal");
        Ok(())
    });
    let running = worker.start().unwrap();
    stage.until("t", "progressed").await;
    let progress = stage.task("t").await.progress.clone().unwrap();
    assert_eq!((progress.percent, progress.message.as_str()), (50, "half way"));
    stage.other.submit(Cancel { task: key("t"), reason: "stop".into() }).await.unwrap();
    running.drain(EVER).await;
    assert_eq!(stage.task("t").await.progress.as_ref().unwrap().percent, 50);
}

#[tokio::test]
async fn an_invalid_worker_does_not_start() {
    let stage = Stage::new().await;
    assert_eq!(stage.worker().start().unwrap_err().to_string(), "handlers is empty");
    for worker in [
        stage.worker().lanes(Vec::<&str>::new()),
        stage.worker().lanes([""]),
        stage.worker().tenant("a\0b"),
        stage.worker().capabilities(["no spaces"]),
        stage.worker().raw_handler("", async |_: Context| Ok(None)),
        stage.worker().raw_handler("k".repeat(256), async |_: Context| Ok(None)),
        Worker::new(stage.engine, ""),
    ] {
        // With a valid handler, it is the other setting that is rejected.
        let worker = worker.raw_handler("good", async |_: Context| Ok(None));
        assert_eq!(worker.start().unwrap_err().code(), "invalid");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_does_not_affect_other_tasks() {
    let stage = Stage::new().await;
    let running = obedient(stage.worker().concurrency(2)).start().unwrap();
    for n in 0..5 {
        stage.create(&format!("{n}"), "\"panic\"").await;
    }
    for n in 0..5 {
        stage.until(&format!("{n}"), "completed").await;
    }
    running.drain(EVER).await;
}
