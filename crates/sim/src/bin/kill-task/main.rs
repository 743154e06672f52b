//! A process that does real work on a SQLite file until it is killed.
//!
//! `kill-task FILE NAME SEED CREATORS STEP NTH` opens the file, repeats the commands that it reads
//! from its input up to a line `go`, creates tasks, and runs them with a worker and with direct
//! callers. It prints its commands and their answers. The nth time it reaches the step it stops,
//! with all that it holds, and waits to be killed. Without creators it closes once every task has
//! ended; a line `close` makes it close immediately.

mod caller;
mod line;
mod stage;
mod trace;
mod watched;

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use windlass_core::{PublicState, Tenant};
use windlass_engine::{Config, Engine, Error};
use windlass_store::Failpoints;
use windlass_store_sqlite::{Options, SqliteStore};
use windlass_worker::{Context, Failure, Worker, WorkerHandle};

use crate::caller::{Caller, KIND, LANES, LEASE};
use crate::line::{Act, How, Line, Plan, TaskSpec};
use crate::stage::Stage;
use crate::watched::Watched;

const CALLERS: usize = 2;
const SLOTS: usize = 4;
const THREADS: usize = 4;

const PLANS: [Plan; 7] = [
    Plan::Complete,
    Plan::CompleteSlowly,
    Plan::CompleteSecond,
    Plan::ReleaseFirst,
    Plan::FailAlways,
    Plan::NonRetryable,
    Plan::Stall,
];

/// The orders of this process.
struct Orders {
    file: String,
    name: String,
    seed: u64,
    creators: u64,
    step: String,
    nth: u64,
}

impl Orders {
    fn read() -> Option<Self> {
        let mut words = std::env::args().skip(1);
        Some(Self {
            file: words.next()?,
            name: words.next()?,
            seed: words.next()?.parse().ok()?,
            creators: words.next()?.parse().ok()?,
            step: words.next()?,
            nth: words.next()?.parse().ok()?,
        })
    }

    /// The nth task of one of the creators. Every third has a key that all of them use.
    fn spec(&self, creator: u64, nth: u64) -> TaskSpec {
        let Self { name, seed, .. } = self;
        let chance = (seed ^ nth).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let pick = |among: usize| usize::try_from(chance).unwrap_or(0) % among;
        TaskSpec {
            id: format!("{name}-{creator}-{nth}"),
            key: nth.is_multiple_of(3).then(|| format!("{name}-{nth}")),
            lane: LANES[pick(LANES.len())].to_owned(),
            plan: PLANS[pick(7 * PLANS.len()) / 7],
            max_attempts: 1 + u32::try_from(pick(5)).unwrap_or(0),
        }
    }
}

fn main() -> Result<(), Error> {
    let orders = Orders::read().expect("kill-task FILE NAME SEED CREATORS STEP NTH");
    let stage = Arc::new(Stage::new(orders.step.clone(), orders.nth));
    report_panics(stage.clone());
    let listener = trace::Listener(stage.clone());
    tracing::subscriber::set_global_default(listener).expect("no other subscriber is set");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).enable_time().build();
    runtime.expect("a runtime can be created").block_on(live(Arc::new(orders), stage))
}

/// Reports a panic anywhere to the parent, as a bug.
fn report_panics(stage: Arc<Stage>) {
    std::panic::set_hook(Box::new(move |panic| stage.fail(panic.to_string())));
}

/// The parent's commands. This process exits with its parent.
fn hear() -> mpsc::UnboundedReceiver<String> {
    let (said, heard) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            // The receiver is dropped once closing has begun.
            let _ = said.send(line);
        }
        std::process::exit(1);
    });
    heard
}

async fn live(orders: Arc<Orders>, stage: Arc<Stage>) -> Result<(), Error> {
    let mut heard = hear();
    let hook = stage.clone();
    let failpoints = Failpoints::new(move |step| hook.reach_in_store(step));
    let options = Options { failpoints, ..Options::default() };
    let store = match SqliteStore::open_with(&orders.file, options) {
        Ok(store) => store,
        Err(error) => stage.fail(format!("opening the file failed: {error}")),
    };
    let watched = Watched { store, stage: stage.clone() };
    let engine = Engine::with_store(watched, Config::default()).await?;
    stage.say(&Line::Ready);
    let caller = Caller { engine: engine.clone(), stage: stage.clone() };
    ask_again(&caller, &mut heard).await;
    for creator in 0..orders.creators {
        tokio::spawn(create(caller.clone(), orders.clone(), creator));
    }
    for _ in 0..CALLERS {
        tokio::spawn(caller.clone().work());
    }
    let running = work(&caller)?;
    if orders.creators == 0 {
        everything_ended(&engine).await?;
    } else {
        while heard.recv().await.is_some_and(|line| line != "close") {}
    }
    running.drain(Duration::ZERO).await;
    engine.shutdown().await?;
    stage.say(&Line::Closed);
    Ok(())
}

/// Repeats unanswered commands, until the parent sends `go`.
async fn ask_again(caller: &Caller, heard: &mut mpsc::UnboundedReceiver<String>) {
    while let Some(line) = heard.recv().await.filter(|line| line != "go") {
        match serde_json::from_str(&line) {
            Ok(Line::CreateRequested(spec)) => caller.create(spec).await,
            Ok(Line::SettleRequested(act)) => caller.settle(&act).await,
            other => caller.stage.fail(format!("{line} cannot be repeated: {other:?}")),
        }
    }
}

async fn create(caller: Caller, orders: Arc<Orders>, creator: u64) {
    for nth in 0.. {
        caller.stage.room().await;
        caller.create(orders.spec(creator, nth)).await;
    }
}

fn work(caller: &Caller) -> Result<WorkerHandle, Error> {
    let stage = caller.stage.clone();
    Worker::new(caller.engine.clone(), "worker")
        .lanes([LANES[1]])
        .concurrency(SLOTS)
        .lease(LEASE)
        .handler(KIND, move |context, plan| handle(stage.clone(), context, plan))
        .start()
}

async fn handle(stage: Arc<Stage>, context: Context, plan: Plan) -> Result<String, Failure> {
    stage.reach("handler.called");
    let (id, epoch, attempt) = (context.id().to_string(), context.fence().epoch, context.attempt());
    stage.say(&Line::Began { id: id.clone(), epoch, attempt });
    stage.reach("handler.began");
    if plan == Plan::CompleteSlowly {
        tokio::time::sleep(LEASE).await;
    }
    let act = Act { id, epoch, how: caller::end(plan, attempt) };
    stage.returns(&act);
    stage.say(&Line::SettleRequested(act.clone()));
    if act.ends() {
        stage.make_room();
    }
    stage.reach("handler.done");
    match act.how {
        How::Complete => Ok(act.mark()),
        How::NonRetryable => Err(Failure::non_retryable(act.mark())),
        How::Fail | How::Release => Err(Failure::transient(act.mark())),
    }
}

async fn everything_ended(engine: &Engine) -> Result<(), Error> {
    let mut log = engine.subscribe(None).await?;
    while !all_ended(engine).await? {
        log.next().await?;
    }
    Ok(())
}

async fn all_ended(engine: &Engine) -> Result<bool, Error> {
    let open = [PublicState::Waiting, PublicState::Delayed, PublicState::Active];
    let states = engine.count_by_state(&Tenant::default()).await?;
    Ok(open.iter().all(|state| !states.contains_key(state.as_str())))
}
