//! A database for one test, the command run on it, and an application that has it open.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use windlass::command::{Claim, Complete, Fail};
use windlass::{Engine, FailureClass, LaneName, Retry, Task};

pub(crate) struct TestStore {
    folder: TempDir,
    url: String,
}

/// The output and the exit code of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl TestStore {
    /// A store whose database does not exist.
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("app.db").display());
        Self { folder, url }
    }

    /// A store at another URL.
    pub(crate) fn at(url: String) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(args).env("WINDLASS_STORE", self.url()).current_dir(self.folder.path());
        command
    }

    /// Runs a command line whose words contain no spaces.
    pub(crate) fn run(&self, line: &str) -> CommandOutput {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn run_words(&self, words: &[&str]) -> CommandOutput {
        let output = self.command(words).stdin(Stdio::null()).output().unwrap();
        CommandOutput {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The output of a command that succeeds.
    pub(crate) fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.code, 0, "{line}: {output:?}");
        output.out
    }

    /// The JSON objects printed by a command that succeeds.
    pub(crate) fn json(&self, line: &str) -> Vec<Value> {
        let out = self.ok(&format!("{line} --json"));
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The only JSON object printed by a command with this exit code.
    pub(crate) fn one_of(&self, line: &str, code: i32) -> Value {
        let output = self.run(&format!("{line} --json"));
        assert_eq!(output.code, code, "{line}: {output:?}");
        serde_json::from_str(&output.out).unwrap()
    }

    /// The only JSON object printed by a command.
    pub(crate) fn one(&self, line: &str) -> Value {
        let mut objects = self.json(line);
        assert_eq!(objects.len(), 1, "{line}: {objects:?}");
        objects.pop().unwrap()
    }

    /// An engine that looks like another process to the command.
    pub(crate) async fn application(&self) -> Engine {
        Engine::open(&self.url()).await.unwrap()
    }

    /// Starts a command that runs until it is interrupted.
    pub(crate) fn start(&self, line: &str) -> Started {
        let mut command = self.command(line.split_whitespace());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Started { child, lines }
    }
}

pub(crate) struct Started {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Started {
    /// The next line that contains this text.
    pub(crate) fn until(&mut self, part: &str) -> String {
        let found = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("it ended without printing {part}"))
    }

    /// Sends Ctrl-C; returns the rest of the output and the exit code.
    pub(crate) fn interrupt(mut self) -> (Vec<String>, i32) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let rest = self.lines.by_ref().map(Result::unwrap).collect();
        (rest, self.child.wait().unwrap().code().unwrap())
    }
}

/// Claims one task from a lane as this worker.
pub(crate) async fn claim(engine: &Engine, worker: &str, lane: &str) -> std::sync::Arc<Task> {
    let lanes = vec![LaneName::from(lane)];
    let claim = Claim { lanes, limit: 1, lease_ms: 3_600_000, ..Claim::new(worker) };
    let mut claimed = engine.claim(claim, Duration::from_secs(60)).await.unwrap();
    claimed.pop().expect("a task is ready").task
}

pub(crate) async fn fail(engine: &Engine, task: &Task, class: FailureClass, reason: &str) {
    let (fence, reason) = (task.fence(), reason.to_owned());
    engine.submit(Fail { fence, class, reason, retry: Retry::Policy }).await.unwrap();
}

pub(crate) async fn complete(engine: &Engine, task: &Task) {
    engine.submit(Complete { fence: task.fence(), result: None }).await.unwrap();
}
