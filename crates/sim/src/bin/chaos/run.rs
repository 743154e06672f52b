//! One run, from an empty database to the verdict.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_core::Tenant;
use windlass_core::command::LimitLane;
use windlass_engine::{Config, Engine};
use windlass_store_test::postgres::Server;

use crate::caller::Caller;
use crate::fault::{Fault, Kind, plan};
use crate::judge::{Case, broken};
use crate::log_state::LogState;
use crate::node::{Orders, open, unix_ms};
use crate::options::Options;
use crate::process::Process;
use crate::process_log::{self, ProcessLog};
use crate::reader::Reader;
use crate::report::Figures;
use crate::task_spec::{LANES, LIMITS, TaskSpec};
use crate::view::View;
use crate::watched::Watched;

/// The parent's number among the logs. The processes count from one.
const PARENT: usize = 0;
/// The schema of a URL that names none.
const SCHEMA: &str = "windlass";
/// How long no task may complete before the run is declared stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// The number of creators in each process.
const CREATORS: u64 = 8;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The result of a run.
pub(crate) struct Verdict {
    pub(crate) figures: Figures,
    pub(crate) broken: Vec<String>,
}

pub(crate) async fn run(options: &Options, folder: &Path) -> Result<Verdict, String> {
    let begun = Instant::now();
    let server = Server::start();
    let engine = prepare(options, folder, &server.url()).await?;
    let reader = Reader::start(engine.clone());
    let faults = plan(options.seed, options.faults, options.processes);
    let span = options.span(faults.iter().map(Fault::length).sum());
    let mut processes = start(options, folder, &server.url(), span)?;
    let mut count = BTreeMap::<Kind, u64>::new();
    for (nth, fault) in faults.iter().enumerate() {
        tokio::time::sleep(fault.pause).await;
        eprintln!(
            "{:7.1} s  fault {:3}  {:26}  process {}  {} of {} completed",
            begun.elapsed().as_secs_f64(),
            nth + 1,
            fault.kind.name(),
            fault.process + 1,
            reader.completed(),
            options.tasks,
        );
        tokio::task::block_in_place(|| fault.inject(&server, &mut processes))?;
        *count.entry(fault.kind).or_default() += 1;
    }
    let ended = until_all_completed(options.tasks, &reader, &mut processes).await;
    let lives = processes.iter().map(Process::lives).sum();
    if ended.is_ok() {
        for process in processes {
            tokio::task::block_in_place(|| process.close())?;
        }
    }
    let view = tokio::task::block_in_place(|| View::read(&server, SCHEMA))?;
    until_all_seen(view.events.len() as u64, &reader).await;
    let restarts = reader.restarts();
    engine.shutdown().await.map_err(|error| error.to_string())?;
    let logs = (PARENT..=options.processes).map(|process| process_log::read(folder, process));
    let case = Case {
        tasks: options.tasks,
        logs: logs.collect::<Result<_, _>>()?,
        log_state: LogState::of(&view.events),
        seen: reader.end().await?,
        view,
    };
    let figures = Figures::of(&case, &count, lives, restarts, begun.elapsed());
    let broken = ended.err().into_iter().chain(broken(&case)).collect();
    if let Err(error) = std::fs::copy(server.log(), folder.join("postgres.log")) {
        eprintln!("copying the server log failed: {error}");
    }
    Ok(Verdict { figures, broken })
}

/// Creates every lane, with its limit, before any claim.
async fn prepare(options: &Options, folder: &Path, url: &str) -> Result<Engine, String> {
    let log = ProcessLog::create(folder, PARENT, 0).map_err(|error| error.to_string())?;
    let log = Arc::new(log);
    let store = Watched { store: open(url).await, log: log.clone() };
    // It only reads: background work is left to the processes.
    let config = Config { background: false, ..Config::default() };
    let engine = Engine::with_store(store, config).await.map_err(|error| error.to_string())?;
    let caller = Caller { engine: engine.clone(), log, name: "parent".into() };
    for nth in options.tasks - LANES.len() as u64..options.tasks {
        caller.create(&TaskSpec::new(options.seed, nth, options.tasks)).await;
    }
    limit_lanes(&engine).await?;
    Ok(engine)
}

/// Sets the limits of existing lanes.
pub(crate) async fn limit_lanes(engine: &Engine) -> Result<(), String> {
    for (lane, limit) in LIMITS {
        let limit = Some(limit);
        let limit = LimitLane { tenant: Tenant::default(), lane: lane.into(), limit };
        engine.submit(limit).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn start(
    options: &Options,
    folder: &Path,
    url: &str,
    span: Duration,
) -> Result<Vec<Process>, String> {
    let Options { tasks, seed, processes, .. } = *options;
    let orders = |nth: usize| Orders {
        url: url.to_owned(),
        folder: folder.to_owned(),
        process: nth + 1,
        processes,
        life: 0,
        creators: CREATORS,
        workers: options.share(nth),
        tasks,
        seed,
        began_ms: unix_ms(),
        span_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
    };
    (0..processes).map(|nth| Process::start(orders(nth))).collect()
}

/// Waits until the subscriber has read as many completions as there are tasks.
async fn until_all_completed(
    tasks: u64,
    reader: &Reader,
    processes: &mut [Process],
) -> Result<(), String> {
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let completed = reader.completed();
        if completed >= tasks {
            return Ok(());
        }
        if completed > last {
            (last, moved) = (completed, Instant::now());
        }
        if moved.elapsed() > STUCK_AFTER {
            return Err(format!("stuck: {completed} of {tasks} completed, no progress"));
        }
        processes.iter_mut().try_for_each(Process::must_run)?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits for the subscriber, which may lag a little; missing log events are judged later.
pub(crate) async fn until_all_seen(entries: u64, reader: &Reader) {
    let give_up_at = Instant::now() + STUCK_AFTER;
    while reader.entries() < entries && Instant::now() < give_up_at {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
