use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::Args;
use windlass::{Config, Context, Engine, Kind, LaneName, TagFilter, WorkerHandle};

use crate::duration;
use crate::error::CliError;
use crate::output::{self, reader_closed};
use crate::signals::Signals;
use crate::target::Target;
use crate::worker::outage::Outage;
use crate::worker::program::Program;
use crate::worker::report_writer::{ReportSender, ReportWriter, complaint};
use crate::worker::verdict::{HELP, line, object, verdict};

/// Run a program for every task of a kind: payload on stdin, result on stdout, outcome by exit
/// code.
///
/// Every settled task is reported by a line on stderr, or by a JSON object on stdout with --json.
/// Tasks of other kinds in these lanes are snoozed for ten seconds: give them another lane.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, after_help = "More about exit codes and environment: --help")]
pub(crate) struct Exec {
    #[command(flatten)]
    target: Target,
    /// The kind of task that CMD handles; may be given several times.
    #[arg(long = "kind", value_name = "KIND", required = true, value_parser = kind)]
    kinds: Vec<Kind>,
    /// A lane to claim tasks from; may be given several times [default: default]
    #[arg(long = "lane", value_name = "LANE")]
    lanes: Vec<LaneName>,
    /// How many programs may run at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// How long a lease lasts without a heartbeat of this worker.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = lease)]
    lease: Duration,
    /// The name of this worker in the log [default: exec-PID]
    #[arg(long)]
    name: Option<String>,
    /// A capability of this worker; may be given several times.
    #[arg(long = "capability", value_name = "CAPABILITY")]
    capabilities: Vec<String>,
    /// Claim tasks of sessions too: a session runs on one worker, which owns it until it has run no
    /// task of it for this long; 1m without a value.
    #[arg(long, value_name = "IDLE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "60s", value_parser = idle)]
    sessions: Option<Duration>,
    /// Claim tasks granted to this worker by `windlass task grant`; --sessions does so too.
    #[arg(long)]
    accept_grants: bool,
    /// Claim tasks with this tag, and none without; may be given several times [default: untagged]
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "any_tag")]
    tags: Vec<String>,
    /// Claim tasks with any tag, and untagged ones.
    #[arg(long)]
    any_tag: bool,
    /// How long programs may keep running when this worker shuts down.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    grace: Duration,
    /// Exit after one task.
    #[arg(long, conflicts_with = "exit_when_idle")]
    once: bool,
    /// Exit when no task ran and none was ready for this long; 1s without a value.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1s", value_parser = duration::parse)]
    exit_when_idle: Option<Duration>,
    /// The program and its arguments, without a shell.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn kind(text: &str) -> Result<Kind, String> {
    windlass::limits::KIND.check(text).map_err(|bad| bad.to_string())?;
    Ok(Kind::new(text))
}

fn idle(text: &str) -> Result<Duration, String> {
    let idle = duration::parse(text).map_err(|bad| bad.to_string())?;
    let limit = windlass::limits::SESSION_IDLE_MS;
    limit.check(idle.as_millis()).map_err(|_| "it must be between 100ms and 1d".to_owned())?;
    Ok(idle)
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration::parse(text).map_err(|bad| bad.to_string())?;
    let limit = windlass::limits::LEASE_MS;
    limit.check(lease.as_millis()).map_err(|_| "a lease is between 100ms and 1d".to_owned())?;
    Ok(lease)
}

impl Exec {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let program = Program::find(self.command.clone(), self.target.store.clone())?;
        let mut signals = Signals::listen()?;
        let engine = Engine::open_with(&self.target.store, Config::default()).await?;
        let mut writer = ReportWriter::start(self.target.json)?;
        let running = self.start(&engine, &program, writer.sender())?;
        let outcome = self.until_ended(running, &mut signals, &program, &mut writer).await;
        if matches!(outcome, Err(CliError::Interrupted)) {
            return outcome;
        }
        engine.shutdown().await?;
        tokio::select! {
            written = writer.end() => outcome.and(written),
            () = signals.next() => Err(CliError::Interrupted),
        }
    }

    fn start(
        &self,
        engine: &Engine,
        program: &Program,
        reports: ReportSender,
    ) -> Result<WorkerHandle, CliError> {
        let name = self.name.clone().unwrap_or_else(|| format!("exec-{}", std::process::id()));
        let started = format!("{name} claims tasks from {}; Ctrl-C stops it", self.target.store);
        self.note(&reports, started);
        let json = self.target.json;
        let (outage, complaints, warnings) = (Outage::default(), reports.clone(), reports.clone());
        let mut worker = engine
            .worker(name)
            .tenant(self.target.tenant.clone())
            .capabilities(self.capabilities.clone())
            .tags(self.tags())
            .concurrency(self.concurrency as usize)
            .lease(self.lease)
            .on_settled(move |report| {
                reports.report(if json { object(report).to_string() } else { line(report) });
            })
            .on_heartbeat_failed(move |error| {
                if let Some(text) = outage.report(error, Instant::now()) {
                    complaints.complain(output::complaint(error.code(), &text, json));
                }
            })
            .on_short_lease(move |short| {
                let text = short.to_string();
                warnings.complain(output::complaint("short_lease", &text, json));
            });
        if !self.lanes.is_empty() {
            worker = worker.lanes(self.lanes.clone());
        }
        if self.once {
            worker = worker.max_tasks(1);
        }
        if let Some(idle) = self.exit_when_idle {
            worker = worker.exit_when_idle(idle);
        }
        if let Some(idle) = self.sessions {
            worker = worker.sessions().session_idle(idle);
        }
        if self.accept_grants {
            worker = worker.accept_grants();
        }
        for kind in &self.kinds {
            let program = program.clone();
            worker = worker.raw_handler(kind.clone(), move |context: Context| {
                let program = program.clone();
                async move { verdict(program.run(&context).await) }
            });
        }
        Ok(worker.start()?)
    }

    fn tags(&self) -> TagFilter {
        match (self.any_tag, self.tags.is_empty()) {
            (true, _) => TagFilter::Any,
            (false, true) => TagFilter::Untagged,
            (false, false) => TagFilter::Only(self.tags.iter().cloned().collect()),
        }
    }

    async fn until_ended(
        &self,
        mut running: WorkerHandle,
        signals: &mut Signals,
        program: &Program,
        writer: &mut ReportWriter,
    ) -> Result<(), CliError> {
        let not_started = || match program.starts.last_failure() {
            Some(why) => Err(CliError::NotStarted { program: program.name(), why }),
            None => Ok(()),
        };
        let outcome = tokio::select! {
            () = running.wait() => return not_started(),
            () = signals.next() => Ok(()),
            () = program.starts.hopeless() => not_started(),
            error = writer.broken() => complaint(error),
            () = reader_closed(), if self.target.json => Ok(()),
        };
        let ending = "stopping: programs may finish; Ctrl-C again kills them";
        self.note(&writer.sender(), ending.into());
        tokio::select! {
            biased;
            () = running.drain(self.grace) => outcome,
            () = signals.next() => Err(CliError::Interrupted),
        }
    }

    fn note(&self, reports: &ReportSender, what: String) {
        if !self.target.json {
            reports.report(what);
        }
    }
}
