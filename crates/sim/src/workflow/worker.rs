use std::time::Duration;

use tokio::time::Instant;
use windlass_engine::Engine;
use windlass_worker::{Context, Failure, Worker};

use crate::watch::Watch;
use crate::workflow::interpreter::{ACTIVITY, definition};
use crate::workflow::plan::{ActivityBehavior, LANE, TENANT};

/// How often a hanging activity checks whether recovery has begun.
const LOOK: Duration = Duration::from_millis(250);

/// A worker that runs the turns of workflows and their activities.
pub(crate) fn worker(engine: Engine, name: &str, watch: &Watch) -> Worker {
    let seen = watch.clone();
    Worker::new(engine, name)
        .tenant(TENANT)
        .lanes([LANE])
        .workflow_definition(definition(Some(watch.clone()), false))
        .handler(ACTIVITY, move |context: Context, (number, behavior): (u64, ActivityBehavior)| {
            act(context, number, behavior, seen.clone())
        })
}

async fn act(
    context: Context,
    number: u64,
    behavior: ActivityBehavior,
    watch: Watch,
) -> Result<u64, Failure> {
    let attempt = context.attempt();
    watch.see().note(format_args!("activity {} runs attempt {attempt}", context.id()));
    match behavior {
        ActivityBehavior::Succeed => {}
        ActivityBehavior::Later(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        ActivityBehavior::Flaky(times) if attempt <= times => {
            return Err(Failure::transient("transient failure"));
        }
        ActivityBehavior::Flaky(_) => {}
        // Without the message that a panic prints: this one is intended.
        ActivityBehavior::Panicking if attempt == 1 => {
            std::panic::resume_unwind(Box::new("on purpose"))
        }
        ActivityBehavior::Panicking => {}
        ActivityBehavior::Never => return Err(Failure::permanent("permanent failure")),
        ActivityBehavior::Hang(ms) => {
            let end = Instant::now() + Duration::from_millis(ms);
            while Instant::now() < end && !watch.see().recovered {
                tokio::time::sleep(LOOK).await;
            }
        }
    }
    Ok(number * 10)
}
