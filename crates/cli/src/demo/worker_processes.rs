use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use windlass::StoreUrl;

use crate::demo::error::{DemoError, system_error};

const FINISH_TIMEOUT: Duration = Duration::from_secs(20);

/// The worker processes of a demonstration.
#[derive(Debug)]
pub(crate) struct WorkerProcesses {
    program: PathBuf,
    store: StoreUrl,
    effects: PathBuf,
    processes: Vec<WorkerProcess>,
    started: usize,
}

/// A worker process.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    pub(crate) name: String,
    pub(crate) pid: u32,
    child: Child,
}

impl WorkerProcesses {
    pub(crate) fn new(store: &StoreUrl, effects: &Path) -> Result<Self, DemoError> {
        let program =
            std::env::current_exe().map_err(system_error("finding this program's file"))?;
        let (store, effects) = (store.clone(), effects.to_owned());
        Ok(Self { program, store, effects, processes: Vec::new(), started: 0 })
    }

    /// Starts another worker process.
    pub(crate) fn start_worker(&mut self) -> Result<&WorkerProcess, DemoError> {
        self.started += 1;
        let name = format!("worker-{}", self.started);
        let mut command = Command::new(&self.program);
        command.arg("demo-worker").args(["--store", &self.store.to_string(), "--name", &name]);
        command.arg("--effects").arg(&self.effects);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // A Ctrl-C at the terminal is for the demo, which ends its workers.
        command.process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(system_error("starting a worker"))?;
        let pid = child.id().unwrap_or_default();
        Ok(self.processes.push_mut(WorkerProcess { name, pid, child }))
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &WorkerProcess> {
        self.processes.iter()
    }

    /// Kills a process and removes it.
    pub(crate) async fn kill(&mut self, name: &str) -> Result<(), DemoError> {
        let Some(at) = self.processes.iter().position(|process| process.name == name) else {
            return Ok(());
        };
        self.processes.remove(at).child.kill().await.map_err(system_error("killing a worker"))
    }

    /// Fails if a process has exited unexpectedly.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        for process in &mut self.processes {
            let ended = process.child.try_wait().map_err(system_error("looking at a worker"))?;
            if let Some(status) = ended {
                return Err(DemoError::WorkerEnded { worker: process.name.clone(), status });
            }
        }
        Ok(())
    }

    /// Lets all workers finish and exit.
    pub(crate) async fn finish(&mut self) -> Result<(), DemoError> {
        for process in &mut self.processes {
            drop(process.child.stdin.take());
        }
        for mut process in std::mem::take(&mut self.processes) {
            let ended = tokio::time::timeout(FINISH_TIMEOUT, process.child.wait()).await;
            let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
            let status = ended.map_err(late).flatten().map_err(system_error("ending a worker"))?;
            if !status.success() {
                return Err(DemoError::WorkerEnded { worker: process.name, status });
            }
        }
        Ok(())
    }

    /// Kills the remaining workers. None of them runs when this returns.
    pub(crate) async fn end(&mut self) {
        for mut process in std::mem::take(&mut self.processes) {
            // A process that cannot be killed has exited already.
            let _ = process.child.kill().await;
        }
    }
}

impl WorkerProcess {
    /// Stops the process with SIGSTOP.
    pub(crate) fn freeze(&self) -> Result<(), DemoError> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn thaw(&self) -> Result<(), DemoError> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), DemoError> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(()) };
        kill_process(pid, signal).map_err(|error| system_error("stopping a worker")(error.into()))
    }
}
