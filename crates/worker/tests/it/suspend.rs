use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_core::command::{Create, NewTask, Replay};
use windlass_core::{OnTimeout, Payload, ResumeCause, SuspendReason, Token};
use windlass_engine::Error;
use windlass_store_test::{Call, Failure as Fault};
use windlass_worker::{Context, Failure, SettleRequest, WaitFor};

use crate::stage::{Stage, key};

const DAY: Duration = Duration::from_secs(86_400);

/// Where a handler leaves the token that it would send to an approver.
type Desk = Arc<Mutex<Option<Token>>>;

/// Asks for an approval, and returns the signal.
async fn approve(context: Context, desk: Desk) -> Result<String, Failure> {
    if context.resumption().is_none() {
        let waitpoint = context.waitpoint("approval", DAY).await?;
        *desk.lock().unwrap() = Some(waitpoint.token.clone());
        context.progress(50, "asked").await?;
        let until = WaitFor::waitpoint(waitpoint.id).reason(SuspendReason::Approval);
        context.suspend(until).await?;
    }
    let signals = context.resuming_signals().await?;
    let signal = signals.first().expect("the waitpoint is completed");
    let payload = signal.payload.as_ref().map_or(String::new(), text);
    let (name, source) = (&signal.message.name, &signal.message.source);
    Ok(format!("{name} by {source}: {payload}, attempt {}", context.attempt()))
}

fn text(payload: &Payload) -> String {
    String::from_utf8_lossy(&payload.bytes).into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_suspended_handler_resumes_when_its_waitpoint_is_completed() {
    let stage = Stage::new().await;
    let desk = Desk::default();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (on_desk, notes) = (desk.clone(), reported.clone());
    let worker = stage.worker().on_settled(move |report| {
        let requested = match report.request {
            Some(SettleRequest::Suspend) => "suspend",
            Some(SettleRequest::Complete(_)) => "complete",
            _ => "something else",
        };
        notes.lock().unwrap().push((requested, report.result.is_settled()));
    });
    let handler = move |context, (): ()| approve(context, on_desk.clone());
    let running = worker.handler("k", handler).start().unwrap();
    stage.create("t", "null").await;
    stage.until("t", "suspended").await;
    let token = desk.lock().unwrap().clone().unwrap();
    let signal = stage.other.complete_waitpoint(&token, "approve").source("ada").payload("fine");
    assert!(signal.await.unwrap().resumed);
    stage.until("t", "completed").await;
    let result = stage.result("t").await.unwrap();
    assert_eq!(result, "\"approve by ada: \\\"fine\\\", attempt 1\"");
    let expected = "created claimed waitpoint_created progressed suspended signalled resumed claimed \
                    completed";
    assert_eq!(stage.history("t"), expected);
    let task = stage.task("t").await;
    assert_eq!((task.claims, task.attempts), (2, 1), "it is one attempt");
    assert_eq!(task.progress.as_ref().map(|progress| progress.percent), Some(50));
    running.drain(DAY).await;
    assert_eq!(*reported.lock().unwrap(), [("suspend", true), ("complete", true)]);
}

#[tokio::test(start_paused = true)]
async fn a_suspend_on_messages_already_received_returns_at_once() {
    let stage = Stage::new().await;
    stage.create("t", "null").await;
    for name in ["first", "second"] {
        stage.other.signal("t", name).payload(name).await.unwrap();
    }
    let handler = async |context: Context, (): ()| {
        let mut heard = Vec::new();
        for name in ["first", "second"] {
            context.suspend(WaitFor::signal(name)).await?;
            let signals = context.resuming_signals().await?;
            heard.extend(signals.iter().map(|received| received.message.name.clone()));
            context.consume(&signals).await?;
        }
        Ok(heard.join(" "))
    };
    let running = stage.worker().handler("k", handler).start().unwrap();
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "\"first second\"");
    assert_eq!(stage.history("t"), "created signalled signalled claimed resumed resumed completed");
    assert!(stage.other.messages(&key("t"), 0, 10).await.unwrap().is_empty(), "they are consumed");
    running.drain(DAY).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspension_ends_by_its_timeout() {
    let stage = Stage::new().await;
    let handler = async |context: Context, (): ()| match context.resumption() {
        None => {
            Err(context.suspend(WaitFor::elapsed(Duration::from_secs(1_800))).await.unwrap_err())
        }
        Some(resumption) => {
            assert_eq!(resumption.cause, ResumeCause::Timeout);
            Ok(context.resuming_signals().await?[0].message.name.clone())
        }
    };
    let running = stage.worker().handler("k", handler).start().unwrap();
    stage.create("t", "null").await;
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "\"timeout\"");
    let task = stage.task("t").await;
    let took = task.created_at.ms_until(task.lifecycle.ended_at().unwrap());
    assert!(took >= 1_800_000, "{took}");
    running.drain(DAY).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspension_timeout_fails_the_attempt() {
    let stage = Stage::new().await;
    let handler = async |context: Context, (): ()| {
        let until = WaitFor::signal("go").timeout(Duration::from_secs(60), OnTimeout::Fail);
        context.suspend(until).await
    };
    let running = stage.worker().handler("k", handler).start().unwrap();
    stage.create("t", "null").await;
    stage.until("t", "failed").await;
    let task = stage.task("t").await;
    assert_eq!((task.attempts, task.claims), (2, 2), "its retry policy was followed");
    running.drain(DAY).await;
}

/// A suspend request whose response is lost is retried and gets the same response.
#[tokio::test(start_paused = true)]
async fn a_suspend_with_a_lost_response_takes_effect_once() {
    let stage = Stage::new().await;
    let faults = stage.faults.clone();
    let handler = move |context: Context, (): ()| {
        let faults = faults.clone();
        async move {
            if context.resumption().is_some() {
                return Ok(context.attempt());
            }
            faults.fail_times(Call::Commit, 1, Fault::Unavailable);
            context.suspend(WaitFor::signal("go")).await?;
            Ok(0)
        }
    };
    let running = stage.worker().handler("k", handler).start().unwrap();
    stage.create("t", "null").await;
    stage.until("t", "suspended").await;
    stage.other.signal("t", "go").await.unwrap();
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "1");
    running.drain(DAY).await;
}

#[tokio::test(start_paused = true)]
async fn a_waitpoint_belongs_to_one_task_across_its_attempts() {
    let stage = Stage::new().await;
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let seen = tokens.clone();
    let handler = move |context: Context, (): ()| {
        let seen = seen.clone();
        async move {
            let waitpoint = context.waitpoint("approval", DAY).await?;
            seen.lock().unwrap().push(waitpoint.token.expose_secret().to_owned());
            if context.attempt() == 1 {
                return Err(Failure::transient("again"));
            }
            Ok(())
        }
    };
    let running = stage.worker().concurrency(1).handler("k", handler).start().unwrap();
    stage.create("t", "null").await;
    stage.until("t", "completed").await;
    stage.create("u", "null").await;
    stage.until("u", "completed").await;
    let seen_tokens = tokens;
    let tokens = seen_tokens.lock().unwrap().clone();
    assert_eq!(tokens.len(), 4);
    assert!(tokens[0] == tokens[1] && tokens[2] == tokens[3] && tokens[0] != tokens[2]);
    let replay = Replay { task: key("t"), execution: 0 };
    stage.other.submit(replay).await.unwrap();
    while seen_tokens.lock().unwrap().len() < 6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let afresh = seen_tokens.lock().unwrap()[4..].to_vec();
    assert_eq!(afresh[0], afresh[1]);
    assert!(!tokens.contains(&afresh[0]), "a replayed task asks again");
    running.drain(DAY).await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_suspend_is_an_ordinary_failure() {
    let stage = Stage::new().await;
    let handler = async |context: Context, (): ()| {
        let rejected = context.waitpoint("not a word", DAY).await.unwrap_err();
        assert!(matches!(rejected, Error::Rejected(_)));
        context.suspend(WaitFor::waitpoint("missing")).await
    };
    let running = stage.worker().handler("k", handler).start().unwrap();
    stage.other.submit(Create::one(NewTask::new("t", "k"))).await.unwrap();
    stage.until("t", "failed").await;
    running.drain(DAY).await;
}

#[tokio::test(start_paused = true)]
async fn approvals_in_sequence_may_arrive_at_any_time() {
    let stage = Stage::new().await;
    let (mail, mut inbox) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |context: Context, (): ()| {
        let mail = mail.clone();
        async move {
            let mut said = Vec::new();
            for who in ["manager", "bank"] {
                let waitpoint = context.waitpoint(who, DAY).await?;
                mail.send((who, waitpoint.token))?;
                context.suspend(WaitFor::waitpoint(waitpoint.id)).await?;
                said.push(context.resuming_signals().await?[0].message.name.clone());
            }
            Ok::<_, Failure>(said.join(" "))
        }
    };
    let running = stage.worker().handler("k", handler).start().unwrap();
    stage.create("t", "null").await;
    for (who, response) in [("manager", "yes"), ("bank", "paid")] {
        // A run that starts over sends the tokens of completed waitpoints again.
        let token = loop {
            let (recipient, token) = inbox.recv().await.unwrap();
            if recipient == who {
                break token;
            }
        };
        stage.other.complete_waitpoint(&token, response).await.unwrap();
    }
    stage.until("t", "completed").await;
    assert_eq!(stage.result("t").await.unwrap(), "\"yes paid\"");
    assert_eq!(stage.task("t").await.attempts, 1);
    running.drain(DAY).await;
}
