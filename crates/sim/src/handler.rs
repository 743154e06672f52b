use std::time::Duration;

use tokio::time::Instant;
use windlass_core::command::SuspendTimeout;
use windlass_core::{Command, FailureClass};
use windlass_engine::Engine;
use windlass_worker::{Context, Failure, WaitFor, Worker};

use crate::coverage::CoverageEvent;
use crate::messages::until;
use crate::model::Fenced;
use crate::requests;
use crate::script::{Behavior, KINDS};
use crate::watch::Watch;

/// How often a hanging handler checks whether recovery has begun.
const LOOK: Duration = Duration::from_millis(250);

/// A worker whose handlers do what the task spec says.
pub(crate) fn worker(engine: Engine, name: &str, watch: &Watch) -> Worker {
    let mut worker = Worker::new(engine, name);
    for kind in KINDS {
        let (watch, name) = (watch.clone(), name.to_owned());
        worker = worker.handler(kind, move |context: Context, input: Option<String>| {
            let (watch, name) = (watch.clone(), name.clone());
            async move { attempt(context, input, watch, name).await }
        });
    }
    worker
}

async fn attempt(
    context: Context,
    input: Option<String>,
    watch: Watch,
    worker: String,
) -> Result<String, Failure> {
    let fenced = (context.id().clone(), context.fence().epoch);
    let _running = Running { watch: watch.clone(), fenced: fenced.clone() };
    let behavior = start(&context, input.as_deref(), &watch, &worker);
    let handled = act(behavior, &context, &watch).await;
    let mut seen = watch.see();
    seen.note(format_args!("handler of {fenced:?} ends: {handled:?}"));
    match handled {
        Ok(()) => {
            let result = format!("{}/{}", fenced.0, fenced.1);
            seen.model.result_submitted(fenced, Some(format!("\"{result}\"").into_bytes()));
            Ok(result)
        }
        Err(failure) if failure.is_suspended() => Err(failure),
        Err(failure) if failure.waiting_for_children() => {
            seen.model.may_start_again(&fenced);
            Err(failure)
        }
        Err(failure) => {
            seen.model.failure_submitted(fenced, failure.reason(), failure.retry());
            Err(failure)
        }
    }
}

/// A running handler; removed from the set on drop.
struct Running {
    watch: Watch,
    fenced: Fenced,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.watch.see().running.remove(&self.fenced);
    }
}

fn start(context: &Context, input: Option<&str>, watch: &Watch, worker: &str) -> Behavior {
    let fenced = (context.id().clone(), context.fence().epoch);
    let attempt = context.attempt();
    let mut seen = watch.see();
    seen.note(format_args!("handler of {fenced:?} starts in {worker}: attempt {attempt}"));
    seen.count(CoverageEvent::HandlerStarted);
    let judged = seen.model.started(&fenced, worker, attempt);
    seen.judge(judged);
    let left = context.lease_deadline().saturating_duration_since(Instant::now());
    let judged = seen.model.lease_left(&fenced, worker, left);
    seen.judge(judged);
    seen.running.insert(fenced.clone());
    let judged = seen.model.input_shown(&fenced, input);
    seen.judge(judged);
    seen.leases.push(context.fence());
    if seen.recovered {
        return Behavior::Succeed;
    }
    let behaviors = &seen.model.spec(context.id()).behaviors;
    behaviors[(attempt.saturating_sub(1) as usize) % behaviors.len()]
}

async fn act(behavior: Behavior, context: &Context, watch: &Watch) -> Result<(), Failure> {
    match behavior {
        Behavior::Succeed => Ok(()),
        Behavior::SucceedLater { ms } => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(())
        }
        Behavior::Fail => Err(Failure::transient("transient failure")),
        Behavior::FailForGood => Err(Failure::permanent("permanent failure")),
        Behavior::NonRetryable => Err(Failure::non_retryable("non-retryable failure")),
        Behavior::RetryAfter { ms } => {
            Err(Failure::retry_after("not yet", Duration::from_millis(ms)))
        }
        Behavior::Wait { .. } if context.resumption().is_some() => Ok(()),
        Behavior::Wait { condition, timeout } => {
            let suspend = until(context.fence(), condition, timeout);
            watch.see().model.submitted(&Command::Suspend(suspend.clone()));
            let mut wait = WaitFor::from(suspend.condition);
            if let Some(SuspendTimeout { after_ms, action }) = suspend.timeout {
                wait = wait.timeout(Duration::from_millis(after_ms), action);
            }
            context.suspend(wait).await
        }
        Behavior::Gather => {
            // A child that cannot be created, for example by a conflict, is not waited for.
            let children = watch.see().model.children_to_be(context.id());
            for create in children {
                drop(context.engine().submit(create).await);
            }
            context.wait_children().await.map(drop)
        }
        Behavior::Call { name, idempotent_provider } => {
            let called = requests::call_for_task(context, watch, name, idempotent_provider).await;
            called.map_err(Failure::transient)
        }
        // Without the message that a panic prints: this one is intended.
        Behavior::Panic => std::panic::resume_unwind(Box::new("on purpose")),
        Behavior::Hang { ms } => {
            let end = Instant::now() + Duration::from_millis(ms);
            // A handler that must stop hangs until it is dropped.
            let has_to_stop =
                || context.is_cancelled() || Instant::now() >= context.lease_deadline();
            while has_to_stop() || Instant::now() < end && !watch.see().recovered {
                tokio::time::sleep(LOOK).await;
            }
            let failure = Failure::transient("it hung");
            debug_assert_eq!(failure.class(), FailureClass::Transient);
            Err(failure)
        }
    }
}
