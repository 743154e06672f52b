//! A process is stopped in each phase of its batch while others run: it blocks them no longer than
//! its lock timeout and its lease expiry. When it resumes, it detects the loss.
//!
//! The same for a connection that goes silent: it is closed after a timeout.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_engine::{Config, Engine};
use windlass_store_test::postgres::{Server, url};

use crate::caller::Caller;
use crate::judge::{Case, broken};
use crate::line::Line;
use crate::log_state::LogState;
use crate::node::{Orders, open, work};
use crate::process::Process;
use crate::process_log::{self, ProcessLog};
use crate::proxy::{Cut, Proxy};
use crate::reader::Reader;
use crate::run::{limit_lanes, until_all_seen};
use crate::task_spec::{LANES, Plan, TaskSpec};
use crate::view::View;
use crate::watched::Watched;

/// When a process is stopped.
#[derive(Clone, Copy, Debug)]
enum Moment {
    At(Cut),
    /// It is not stopped: traffic to or from its server does not arrive.
    Silent(Cut),
    /// It is idle, and waits for notifications.
    Idle,
    /// Its handlers run.
    Working,
}

const PHASES: &[(&str, Moment)] = &[
    ("before BEGIN", Moment::At(Cut::Before("BEGIN"))),
    ("after BEGIN", Moment::At(Cut::Response("pg_current_xact_id"))),
    ("after the load, with locked lanes", Moment::At(Cut::Response(r#""contended" IS NOT NULL"#))),
    ("after the load, with rows taken", Moment::At(Cut::Response("SKIP LOCKED"))),
    ("in the commit, before the log's lock", Moment::At(Cut::Before("pg_advisory_xact_lock"))),
    ("in the commit, with the log's lock", Moment::At(Cut::After("pg_advisory_xact_lock"))),
    ("in the commit, before COMMIT", Moment::At(Cut::Before("COMMIT"))),
    ("after COMMIT was sent", Moment::At(Cut::Response("COMMIT"))),
    ("while it listens", Moment::Idle),
    ("while its handlers run", Moment::Working),
    ("silence before BEGIN", Moment::Silent(Cut::Before("BEGIN"))),
    ("silence after the load", Moment::Silent(Cut::Response("SKIP LOCKED"))),
    ("silence after COMMIT", Moment::Silent(Cut::Response("COMMIT"))),
    ("silence while it reads", Moment::Silent(Cut::Response("payload"))),
    ("silence while it listens", Moment::Silent(Cut::Response("LISTEN"))),
];

/// Tasks that exist when the process starts, that are created while it is stopped, and that are
/// created for it alone after it resumes.
const PER_STEP: u64 = 8;
const TASKS: u64 = 3 * PER_STEP;
const WORKERS: usize = 4;
const PARENT: usize = 0;
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long the other workers took while one process was stopped.
struct Took {
    /// To their first commit.
    first: Duration,
    /// To all tasks, including those that the stopped process leased.
    all: Duration,
}

/// Plays every phase. Returns a table, and the violations.
pub(crate) async fn run() -> Result<(String, Vec<String>), String> {
    let server = Server::start();
    let mut table = format!("{:38}{:>14}{:>14}\n", "stopped", "first commit", "all done");
    let mut found = Vec::new();
    for (nth, (name, moment)) in PHASES.iter().enumerate() {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let stage = Stage { server: &server, folder: folder.path(), nth, moment: *moment };
        match stage.play().await {
            Ok((took, broken)) => {
                let (first, all) = (took.first.as_millis(), took.all.as_millis());
                // Writing to a string does not fail.
                let _ = writeln!(table, "{name:38}{first:>11} ms{all:>11} ms");
                found.extend(broken.into_iter().map(|what| format!("{name}: {what}")));
            }
            Err(problem) => found.push(format!("{name}: {problem}")),
        }
        eprintln!("{name}: {} broken so far", found.len());
    }
    Ok((table, found))
}

struct Stage<'s> {
    server: &'s Server,
    folder: &'s Path,
    nth: usize,
    moment: Moment,
}

impl Stage<'_> {
    fn schema(&self) -> String {
        format!("phase_{}", self.nth)
    }

    /// The task with this number. The first of each lane are slow where handlers must be running.
    fn spec(&self, nth: u64) -> TaskSpec {
        let lane = LANES[usize::try_from(nth).unwrap_or(0) % LANES.len()];
        let slow = matches!(self.moment, Moment::Working) && nth < LANES.len() as u64;
        let plan = if slow { Plan::Slowly } else { Plan::Complete };
        TaskSpec { nth, lane, plan, keyed: nth.is_multiple_of(3) }
    }

    async fn create(&self, caller: &Caller, step: u64) {
        for nth in step * PER_STEP..(step + 1) * PER_STEP {
            caller.create(&self.spec(nth)).await;
        }
    }

    async fn play(&self) -> Result<(Took, Vec<String>), String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let cut = match self.moment {
            Moment::At(cut) | Moment::Silent(cut) => cut,
            Moment::Idle | Moment::Working => Cut::Nowhere,
        };
        let proxy = Proxy::to(self.server.socket(), cut).map_err(|error| failed(&error))?;
        let caller = self.other_node().await?;
        let reader = Reader::start(caller.engine.clone());
        self.create(&caller, 0).await;
        limit_lanes(&caller.engine).await?;
        let mut process = Process::start(self.orders(&proxy))?;
        within("the phase", self.reached(&proxy, &reader)).await?;
        let stops = !matches!(self.moment, Moment::Silent(_));
        if stops {
            process.stop()?;
        }
        let took = self.others_complete(&caller, &reader).await?;
        if stops {
            proxy.open();
            process.resume()?;
        }
        // From here on it is the only worker.
        within("tasks for it alone", self.create(&caller, 2)).await?;
        within("the stopped one's work", until(|| reader.completed() >= TASKS)).await?;
        tokio::task::block_in_place(|| process.close())?;
        let view = tokio::task::block_in_place(|| View::read(self.server, &self.schema()))?;
        until_all_seen(view.events.len() as u64, &reader).await;
        caller.engine.shutdown().await.map_err(|error| failed(&error))?;
        let logs = [process_log::read(self.folder, PARENT)?, process_log::read(self.folder, 1)?];
        let log_state = LogState::of(&view.events);
        let (logs, seen) = (logs.into(), reader.end().await?);
        Ok((took, broken(&Case { tasks: TASKS, logs, view, seen, log_state })))
    }

    /// An engine in this process, connected directly to the server.
    async fn other_node(&self) -> Result<Caller, String> {
        let log = ProcessLog::create(self.folder, PARENT, 0).map_err(|error| error.to_string())?;
        let log = Arc::new(log);
        let url = format!("{}&schema={}", self.server.url(), self.schema());
        let store = Watched { store: open(&url).await, log: log.clone() };
        let engine = Engine::with_store(store, Config::default()).await;
        let engine = engine.map_err(|error| error.to_string())?;
        Ok(Caller { engine, log, name: "parent".into() })
    }

    fn orders(&self, proxy: &Proxy) -> Orders {
        Orders {
            url: format!("{}&schema={}", url(proxy.socket()), self.schema()),
            folder: self.folder.to_owned(),
            process: 1,
            processes: 1,
            life: 0,
            creators: 0,
            workers: WORKERS,
            tasks: TASKS,
            seed: 0,
            began_ms: 0,
            span_ms: 0,
        }
    }

    async fn reached(&self, proxy: &Proxy, reader: &Reader) {
        match self.moment {
            Moment::At(_) | Moment::Silent(_) => proxy.reached().await,
            Moment::Idle => until(|| reader.completed() >= PER_STEP).await,
            Moment::Working => {
                let claimed = |line: &Line| matches!(line, Line::Claimed { .. });
                let read = || process_log::read(self.folder, 1).unwrap_or_default();
                until(|| read().iter().filter(|line| claimed(line)).count() >= WORKERS).await;
            }
        }
    }

    /// All tasks complete while one process is stopped.
    async fn others_complete(&self, caller: &Caller, reader: &Reader) -> Result<Took, String> {
        let stopped = Instant::now();
        within("a commit", caller.create(&self.spec(PER_STEP))).await?;
        let first = stopped.elapsed();
        let running = work(caller, WORKERS).map_err(|error| error.to_string())?;
        let by_hand = tokio::spawn(caller.clone().work());
        let done = within("what others do", async {
            self.create(caller, 1).await;
            until(|| reader.completed() >= 2 * PER_STEP).await;
        });
        let done = done.await;
        let all = stopped.elapsed();
        running.drain(Duration::ZERO).await;
        by_hand.abort();
        done.map(|()| Took { first, all })
    }
}

async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn within(what: &str, waiting: impl Future<Output = ()>) -> Result<(), String> {
    let waited = tokio::time::timeout(GIVE_UP_AFTER, waiting).await;
    waited.map_err(|_| format!("timeout while waiting for {what}"))
}
