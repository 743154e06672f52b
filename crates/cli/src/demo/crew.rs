use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use windlass::StoreUrl;

use crate::demo::error::{DemoError, while_doing};

const LONGEST_GOODBYE: Duration = Duration::from_secs(20);

/// The worker processes of a demonstration.
#[derive(Debug)]
pub(crate) struct Crew {
    program: PathBuf,
    store: StoreUrl,
    effects: PathBuf,
    members: Vec<Member>,
    hired: usize,
}

/// A worker process.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) pid: u32,
    child: Child,
}

impl Crew {
    pub(crate) fn new(store: &StoreUrl, effects: &Path) -> Result<Self, DemoError> {
        let program =
            std::env::current_exe().map_err(while_doing("finding this program's file"))?;
        let (store, effects) = (store.clone(), effects.to_owned());
        Ok(Self { program, store, effects, members: Vec::new(), hired: 0 })
    }

    /// Starts another worker process.
    pub(crate) fn hire(&mut self) -> Result<&Member, DemoError> {
        self.hired += 1;
        let name = format!("worker-{}", self.hired);
        let mut command = Command::new(&self.program);
        command.arg("demo-worker").args(["--store", &self.store.to_string(), "--name", &name]);
        command.arg("--effects").arg(&self.effects);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // A Ctrl-C at the terminal is for the demo, which ends its workers.
        command.process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(while_doing("starting a worker"))?;
        let pid = child.id().unwrap_or_default();
        Ok(self.members.push_mut(Member { name, pid, child }))
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// Kills a process and removes it.
    pub(crate) async fn kill(&mut self, name: &str) -> Result<(), DemoError> {
        let Some(at) = self.members.iter().position(|member| member.name == name) else {
            return Ok(());
        };
        self.members.remove(at).child.kill().await.map_err(while_doing("killing a worker"))
    }

    /// Fails if a process has exited unexpectedly.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        for member in &mut self.members {
            let ended = member.child.try_wait().map_err(while_doing("looking at a worker"))?;
            if let Some(status) = ended {
                return Err(DemoError::WorkerEnded { worker: member.name.clone(), status });
            }
        }
        Ok(())
    }

    /// Lets all workers finish and exit.
    pub(crate) async fn dismiss(&mut self) -> Result<(), DemoError> {
        for member in &mut self.members {
            drop(member.child.stdin.take());
        }
        for mut member in std::mem::take(&mut self.members) {
            let ended = tokio::time::timeout(LONGEST_GOODBYE, member.child.wait()).await;
            let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
            let status = ended.map_err(late).flatten().map_err(while_doing("ending a worker"))?;
            if !status.success() {
                return Err(DemoError::WorkerEnded { worker: member.name, status });
            }
        }
        Ok(())
    }

    /// Kills the remaining workers. None of them runs when this returns.
    pub(crate) async fn end(&mut self) {
        for mut member in std::mem::take(&mut self.members) {
            // A process that cannot be killed has exited already.
            let _ = member.child.kill().await;
        }
    }
}

impl Member {
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
        kill_process(pid, signal).map_err(|error| while_doing("stopping a worker")(error.into()))
    }
}
