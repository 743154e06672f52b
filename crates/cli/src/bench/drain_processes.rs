use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use windlass::StoreUrl;
use windlass_core::Tenant;

use crate::bench::options::BenchError;
use crate::bench::report::Progress;

/// Longer than a lease and its recovery: later results are not expected.
const STALLED: Duration = Duration::from_secs(90);

/// Processes of this program that drain a backlog together.
#[derive(Debug)]
pub(crate) struct DrainProcesses {
    processes: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// The process works as long as this is open.
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

/// The arguments of each process.
#[derive(Debug)]
pub(crate) struct ProcessArgs<'t> {
    pub(crate) store: &'t StoreUrl,
    pub(crate) tenant: &'t Tenant,
    pub(crate) handlers: u32,
    pub(crate) unbatched: bool,
}

impl DrainProcesses {
    /// Starts the processes; returns when each has opened the store and is ready.
    pub(crate) async fn start(args: &ProcessArgs<'_>, count: u32) -> Result<Self, BenchError> {
        let mut started = Self { processes: Vec::new() };
        for n in 1..=count {
            started.processes.push(Process::start(args, &format!("process-{n}"))?);
        }
        for process in &mut started.processes {
            process.next().await?.ok_or(BenchError::ProcessEnded)?;
        }
        Ok(started)
    }

    /// Starts the drain and ends it when `tasks` tasks are settled, or none for `STALLED`. Returns
    /// the last report of each process.
    pub(crate) async fn drain(
        self,
        tasks: u64,
        json: bool,
    ) -> Result<Vec<Map<String, Value>>, BenchError> {
        let progress = Progress::new("draining", tasks, json);
        let (settled, _) = watch::channel(vec![0; self.processes.len()]);
        let (done, _) = watch::channel(false);
        let mut working = Vec::new();
        for (n, process) in self.processes.into_iter().enumerate() {
            let (settled, done) = (settled.clone(), done.subscribe());
            working.push(tokio::spawn(process.work(n, settled, done)));
        }
        let mut settled = settled.subscribe();
        let (mut counted, mut progress_at) = (0, Instant::now());
        while counted < tasks && progress_at.elapsed() < STALLED {
            // A timeout only re-checks the condition.
            let _ = tokio::time::timeout(Duration::from_secs(1), settled.changed()).await;
            let sum: u64 = settled.borrow_and_update().iter().sum();
            if sum > counted {
                progress.add(sum - counted);
                (counted, progress_at) = (sum, Instant::now());
            }
            if working.iter().any(tokio::task::JoinHandle::is_finished) {
                break;
            }
        }
        done.send_replace(true);
        let mut reports = Vec::new();
        for process in working {
            reports.push(process.await??);
        }
        Ok(reports)
    }
}

impl Process {
    fn start(args: &ProcessArgs<'_>, name: &str) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::Process)?;
        let mut command = Command::new(program);
        command.args(["bench", "drain-share", "--name", name]);
        command.args(["--tenant", args.tenant.as_str()]);
        command.args(["--handlers", &args.handlers.to_string()]);
        command.args(args.unbatched.then_some("--unbatched"));
        command.env("WINDLASS_STORE", args.store.expose_secret());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(BenchError::Process)?;
        let stdin = child.stdin.take().ok_or(BenchError::ProcessEnded)?;
        let stdout = child.stdout.take().ok_or(BenchError::ProcessEnded)?;
        Ok(Self { child, stdin, lines: BufReader::new(stdout).lines() })
    }

    /// Its next report; none at the end.
    async fn next(&mut self) -> Result<Option<Map<String, Value>>, BenchError> {
        let line = self.lines.next_line().await.map_err(BenchError::Process)?;
        let report = line.map(|line| serde_json::from_str(&line));
        report.transpose().map_err(|error| BenchError::Process(error.into()))
    }

    async fn work(
        mut self,
        n: usize,
        settled: watch::Sender<Vec<u64>>,
        mut done: watch::Receiver<bool>,
    ) -> Result<Map<String, Value>, BenchError> {
        self.stdin.write_all(b"go\n").await.map_err(BenchError::Process)?;
        let mut open = Some(self.stdin);
        let mut last = Map::new();
        loop {
            tokio::select! {
                line = self.lines.next_line() => {
                    let Some(line) = line.map_err(BenchError::Process)? else { break };
                    let report = serde_json::from_str(&line);
                    last = report.map_err(|error| BenchError::Process(error.into()))?;
                    let count = last.get("settled").and_then(Value::as_u64).unwrap_or_default();
                    settled.send_modify(|all| all[n] = count);
                }
                _ = done.wait_for(|done| *done), if open.is_some() => open = None,
            }
        }
        let status = self.child.wait().await.map_err(BenchError::Process)?;
        // A process that exits before it is asked to has failed.
        if open.is_some() || !status.success() {
            return Err(BenchError::ProcessEnded);
        }
        Ok(last)
    }
}
