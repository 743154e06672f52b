use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use windlass::{Config, Engine, Lifecycle, Payload, Task, TaskBuilder, TaskHandle};

/// Longer than anything takes here: a wait of this length is a failure.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A folder with a database that the test has open beside the commands it runs.
pub(crate) struct OpenStore {
    folder: TempDir,
    pub(crate) engine: Engine,
}

impl OpenStore {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
        let config = Config { background: false, ..Config::default() };
        let engine = Engine::open_with(&url.parse().unwrap(), config).await.unwrap();
        Self { folder, engine }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.path("tasks.db").display())
    }

    /// Starts a worker that runs the payload of each task of kind `script` as a shell script.
    pub(crate) fn run_scripts(&self, options: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["worker", "exec", "--kind", "script", "--store", &self.url()]);
        command.args(options).args(["--", "sh", "-c", "eval \"$(cat)\""]);
        self.start(command)
    }

    /// Starts a worker that runs a program in the folder for each task of kind `script`.
    pub(crate) fn run_program(&self, options: &[&str], program: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["worker", "exec", "--kind", "script", "--store", &self.url()]);
        command.args(options).args(["--", program]);
        self.start(command)
    }

    fn start(&self, mut command: Command) -> Process {
        command.current_dir(self.folder.path());
        Process::start(command)
    }

    pub(crate) fn script(&self, script: &str) -> TaskBuilder<'_> {
        self.engine.create("script").raw_payload(Payload::new("text/x-sh", script.as_bytes()))
    }

    /// Waits until a file exists.
    pub(crate) async fn until_exists(&self, name: &str) {
        let path = self.path(name);
        until(&format!("{name} exists"), || path.exists()).await;
    }
}

/// Polls a condition until it holds.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Waits until a task has ended.
pub(crate) async fn ended(task: &TaskHandle) -> Arc<Task> {
    let ended = tokio::time::timeout(TIMEOUT, task.wait()).await;
    ended.unwrap_or_else(|_| panic!("{} has not ended", task.id())).unwrap()
}

/// The class and the reason of a failed task.
pub(crate) async fn failure(task: &TaskHandle) -> (String, String) {
    match &ended(task).await.lifecycle {
        Lifecycle::Failed { class, reason, .. } => (class.as_str().to_owned(), reason.clone()),
        other => panic!("{} has ended as {other:?}", task.id()),
    }
}

/// A command that runs beside the test and is killed at its end.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.0.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Closes its stdout, as `head` does.
    pub(crate) fn stop_reading(&mut self) {
        drop(self.0.stdout.take());
    }

    /// The next line on its stderr; empty at the end.
    pub(crate) fn next_complaint(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        let stderr = self.0.stderr.as_mut().unwrap();
        // Byte by byte, so that a later reader gets the rest.
        while stderr.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// Waits until it has exited; returns its status, stdout and stderr.
    pub(crate) async fn wait(mut self) -> (ExitStatus, String, String) {
        let mut status = None;
        until("a process ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        })
        .await;
        let read = |stream: &mut dyn std::io::Read| std::io::read_to_string(stream).unwrap();
        let printed = self.0.stdout.as_mut().map_or(String::new(), |stdout| read(stdout));
        let complaint = read(self.0.stderr.as_mut().unwrap());
        (status.unwrap(), printed, complaint)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the process whose id is in a file is running.
pub(crate) fn is_running(path: &Path) -> bool {
    let id = std::fs::read_to_string(path).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/stat", id.trim()));
    // A zombie does not run.
    status.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}
