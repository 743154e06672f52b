use std::pin::Pin;
use std::time::Duration;

use windlass_core::RetryPolicy;
use windlass_worker::Failure;
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};

use crate::coverage::CoverageEvent;
use crate::watch::Watch;
use crate::workflow::plan::{ActivityBehavior, Op, Plan};

pub(crate) const PROGRAM: &str = "play";
pub(super) const ACTIVITY: &str = "act";

/// The results of steps without a value.
pub(super) const FAILED: &str = "failed";
pub(super) const TIMED_OUT: &str = "timed out";

/// The value that marks a workflow as cleaned up.
pub(crate) const CLEANED: &str = "cleaned";

/// More attempts than a run has crashes.
const ATTEMPTS: u32 = 200;
const BACKOFF_MS: u64 = 20;

/// The code of every workflow. With a watch, events are counted. The next version takes another
/// path, except for executions that have passed that place.
pub(crate) fn definition(watch: Option<Watch>, is_next: bool) -> WorkflowDefinition {
    WorkflowDefinition::named(PROGRAM, move |ctx: Workflow, plan: Plan| {
        let interpreter = Interpreter { ctx, watch: watch.clone(), is_next };
        async move { interpreter.play(plan).await }
    })
}

#[derive(Clone)]
struct Interpreter {
    ctx: Workflow,
    watch: Option<Watch>,
    is_next: bool,
}

type Played<'p> = Pin<Box<dyn Future<Output = Result<String, StepError>> + Send + 'p>>;

/// A cached instance of a workflow's code.
struct Alive(Option<(Watch, String)>);

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some((watch, id)) = &self.0 {
            watch.see().model.workflows.leaves_memory(id);
        }
    }
}

impl Interpreter {
    async fn play(&self, plan: Plan) -> Result<String, StepError> {
        let _alive = self.begins();
        match self.perform(&plan).await {
            Err(error) if error.is_cancelled() => {
                self.clean_up().await?;
                Err(error)
            }
            played => played,
        }
    }

    fn begins(&self) -> Alive {
        let Some(watch) = &self.watch else { return Alive(None) };
        let id = self.ctx.id().to_string();
        watch.see().workflow_begins(&id, self.ctx.is_replaying());
        Alive(Some((watch.clone(), id)))
    }

    fn met(&self, event: CoverageEvent) {
        if let Some(watch) = self.watch.as_ref().filter(|_| !self.ctx.is_replaying()) {
            watch.see().count(event);
        }
    }

    async fn perform(&self, plan: &Plan) -> Result<String, StepError> {
        let Some((ops, later)) = plan.acts.split_first() else { return Ok(plan.so_far.clone()) };
        let played = self.all(ops.clone(), plan.is_confluent).await?;
        let so_far = format!("{}/{played}", plan.so_far);
        if later.is_empty() {
            return Ok(so_far);
        }
        let next = Plan { acts: later.to_vec(), so_far, ..plan.clone() };
        self.ctx.continue_as_new(&next).await.map(|never| match never {})
    }

    /// Runs despite the cancellation of the workflow.
    async fn clean_up(&self) -> Result<(), StepError> {
        let ctx = self.ctx.shielded();
        ctx.activity_named::<u64>(ACTIVITY, &(9_u64, ActivityBehavior::Flaky(1)))
            .retry(retry())
            .await?;
        ctx.set_value(CLEANED, &true)?;
        self.met(CoverageEvent::CleanedUp);
        Ok(())
    }

    fn all(&self, ops: Vec<Op>, is_confluent: bool) -> Played<'_> {
        Box::pin(async move {
            let mut each = Vec::new();
            for op in ops {
                if self.is_next && self.ctx.patched("more") {
                    self.ctx
                        .activity_named::<u64>(ACTIVITY, &(7_u64, ActivityBehavior::Succeed))
                        .await?;
                }
                each.push(self.one(op, is_confluent).await?);
            }
            Ok(each.join(" "))
        })
    }

    async fn one(&self, op: Op, is_confluent: bool) -> Result<String, StepError> {
        let ctx = &self.ctx;
        Ok(match op {
            Op::Activity(..) | Op::Started(..) | Op::Dropped(..) | Op::Hurried(..) => {
                return self.work(op, is_confluent).await;
            }
            Op::Local(number) => {
                let local = async move || Ok::<_, Failure>(number * 2);
                ctx.local_activity("local", local).await?.to_string()
            }
            Op::Sleep(ms) => {
                ctx.sleep(Duration::from_millis(ms)).await?;
                "slept".to_owned()
            }
            Op::WaitSignal(..) | Op::SignalStream(..) | Op::Echo(_) => {
                return self.hear(op, is_confluent).await;
            }
            Op::Child(ops) => {
                let child = ctx.child_named::<String>(PROGRAM, &Plan::one(ops, is_confluent));
                format!("({})", shown(child.await.map(child_result))?)
            }
            Op::Detached(ops) => {
                ctx.start_detached_named(PROGRAM, &Plan::one(ops, is_confluent)).await?;
                "detached".to_owned()
            }
            Op::Keep(number) => {
                ctx.set_value(&number.to_string(), &number)?;
                format!("kept {number}")
            }
            Op::Recall(number) => format!("{:?}", ctx.get_value::<u64>(&number.to_string())?),
            Op::Status(number) => {
                ctx.set_status(number.to_string())?;
                "said".to_owned()
            }
            Op::Chance => format!("{} {}", ctx.random(), ctx.uuid()),
            Op::Fail => {
                let (name, reason) = ("fail".to_owned(), "intended".to_owned());
                return Err(StepError::Rejected { name, reason });
            }
            together => self.together(together, is_confluent).await?,
        })
    }

    async fn work(&self, op: Op, is_confluent: bool) -> Result<String, StepError> {
        let activity = |number: u64, behavior: ActivityBehavior| {
            self.ctx.activity_named::<u64>(ACTIVITY, &(number, behavior)).retry(retry())
        };
        match op {
            Op::Activity(number, behavior) => shown(activity(number, behavior).await),
            Op::Started(number, behavior, between) => {
                let started = activity(number, behavior).start();
                let between = self.all(between, is_confluent).await?;
                Ok(format!("{between} then {}", shown(started.await)?))
            }
            Op::Dropped(number, behavior) => {
                drop(activity(number, behavior).start());
                Ok("dropped".to_owned())
            }
            Op::Hurried(number, ms) => {
                let hurried = activity(number, ActivityBehavior::Later(ms / 2));
                shown(hurried.total_timeout(Duration::from_millis(ms)).await)
            }
            other => unreachable!("{other:?} is not an activity"),
        }
    }

    async fn hear(&self, op: Op, is_confluent: bool) -> Result<String, StepError> {
        let ctx = &self.ctx;
        match op {
            Op::WaitSignal(name, wait_ms) => {
                let mut event = ctx.wait_signal::<u64>(&format!("m{name}"));
                if let Some(ms) = wait_ms {
                    event = event.timeout(Duration::from_millis(ms));
                }
                match event.await {
                    Ok(_) if is_confluent => Ok(format!("m{name}")),
                    heard => shown(heard),
                }
            }
            Op::SignalStream(name, count) => {
                let queue = ctx.signals::<u64>(&format!("m{name}"));
                let mut sum = 0;
                for _ in 0..count {
                    sum = sum * 7 + queue.next().await?;
                }
                let sum = if is_confluent { String::new() } else { sum.to_string() };
                Ok(format!("q{name}x{count}{sum}"))
            }
            Op::Echo(number) => {
                ctx.signal(ctx.id().clone(), "echo", &number)?;
                ctx.wait_signal::<u64>("echo").await?;
                Ok("echo".to_owned())
            }
            other => unreachable!("{other:?} receives no message"),
        }
    }

    async fn together(&self, op: Op, is_confluent: bool) -> Result<String, StepError> {
        let ctx = &self.ctx;
        let each = |branches: Vec<Vec<Op>>| -> Vec<Played<'_>> {
            branches.into_iter().map(|ops| self.all(ops, is_confluent)).collect()
        };
        match op {
            Op::Join(branches) => {
                let all: Result<Vec<String>, StepError> =
                    ctx.join(each(branches)).await.into_iter().collect();
                Ok(format!("[{}]", all?.join("|")))
            }
            Op::Select(branches) => {
                let (place, played) = ctx.select(each(branches)).await;
                self.met(CoverageEvent::SelectLost);
                Ok(format!("{place}:{}", played?))
            }
            Op::Timeout(ms, ops) => {
                let limit = Duration::from_millis(ms);
                match ctx.timeout(limit, self.all(ops, is_confluent)).await {
                    Ok(played) => played,
                    Err(error) => shown::<u64>(Err(error)),
                }
            }
            Op::Shielded(ops) => {
                let interpreter = Self { ctx: ctx.shielded(), ..self.clone() };
                interpreter.all(ops, is_confluent).await
            }
            other => unreachable!("{other:?} is not a group"),
        }
    }
}

fn retry() -> RetryPolicy {
    RetryPolicy::fixed(ATTEMPTS, BACKOFF_MS)
}

/// Removes the separator: a child has no earlier executions.
fn child_result(text: String) -> String {
    text.strip_prefix('/').unwrap_or(&text).to_owned()
}

/// A failure is a result like any other, except for a cancellation.
fn shown<T: std::fmt::Display>(result: Result<T, StepError>) -> Result<String, StepError> {
    match result {
        Ok(value) => Ok(value.to_string()),
        Err(error) if error.is_cancelled() => Err(error),
        Err(StepError::Failed { .. }) => Ok(FAILED.to_owned()),
        Err(StepError::TimedOut) => Ok(TIMED_OUT.to_owned()),
        Err(error) => Ok(error.to_string()),
    }
}
