use std::time::Duration;

use tokio::time::Instant;
use windlass_engine::Engine;
use windlass_worker::{Context, Failure, Worker};

use crate::watch::Watch;
use crate::workflow::interpreter::{ACTIVITY, definition};
use crate::workflow::plan::{Doing, LANE, TENANT};

/// How often a hanging activity checks whether recovery has begun.
const LOOK: Duration = Duration::from_millis(250);

/// A worker that runs the turns of workflows and their activities.
pub(crate) fn worker(engine: Engine, name: &str, watch: &Watch) -> Worker {
    let seen = watch.clone();
    Worker::new(engine, name)
        .tenant(TENANT)
        .lanes([LANE])
        .workflow_definition(definition(Some(watch.clone()), false))
        .handler(ACTIVITY, move |context: Context, (number, doing): (u64, Doing)| {
            act(context, number, doing, seen.clone())
        })
}

async fn act(context: Context, number: u64, doing: Doing, watch: Watch) -> Result<u64, Failure> {
    let attempt = context.attempt();
    watch.see().note(format_args!("activity {} runs attempt {attempt}", context.id()));
    match doing {
        Doing::Succeed => {}
        Doing::Later(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        Doing::Flaky(times) if attempt <= times => {
            return Err(Failure::transient("transient failure"));
        }
        Doing::Flaky(_) => {}
        // Without the message that a panic prints: this one is intended.
        Doing::Panicking if attempt == 1 => std::panic::resume_unwind(Box::new("on purpose")),
        Doing::Panicking => {}
        Doing::Never => return Err(Failure::permanent("permanent failure")),
        Doing::Hang(ms) => {
            let end = Instant::now() + Duration::from_millis(ms);
            while Instant::now() < end && !watch.see().recovered {
                tokio::time::sleep(LOOK).await;
            }
        }
    }
    Ok(number * 10)
}
