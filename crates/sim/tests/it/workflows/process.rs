//! The processes of a workflow, as their parent sees them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use windlass_store_test::postgres::Server;

use super::line::Line;
use crate::bank::{Bank, Entry};

/// Far longer than any silence while nothing is stuck.
const TIMEOUT: Duration = Duration::from_secs(120);
const SIGKILL: i32 = 9;

/// A store with a bank beside it, and all printed lines.
pub(crate) struct Place {
    store: String,
    bank: Bank,
    steps: u32,
    processes: u32,
    pub(crate) kills: u32,
    /// The number of kills in the middle of an activity.
    pub(crate) cut: u32,
    pub(crate) heard: Vec<Line>,
    begun: BTreeSet<u32>,
    /// The output of all processes, and of the parent.
    pipe: PipeWriter,
    lines: Receiver<Line>,
    _folder: TempDir,
    _server: Option<Server>,
}

impl Place {
    pub(crate) fn sqlite(steps: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("windlass.db").display().to_string();
        Self::open(file, steps, folder, None)
    }

    pub(crate) fn postgres(steps: u32) -> Self {
        let server = Server::start();
        Self::open(server.url(), steps, tempfile::tempdir().unwrap(), Some(server))
    }

    fn open(store: String, steps: u32, folder: TempDir, server: Option<Server>) -> Self {
        let (reader, pipe) = std::io::pipe().unwrap();
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                let line = line.unwrap();
                // A line is written whole or not at all.
                let line =
                    serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line}"));
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        let bank = Bank::open(folder.path());
        Self {
            store,
            bank,
            steps,
            processes: 0,
            kills: 0,
            cut: 0,
            heard: Vec::new(),
            begun: BTreeSet::new(),
            pipe,
            lines,
            _folder: folder,
            _server: server,
        }
    }

    pub(crate) fn runner(&mut self) -> Runner {
        self.processes += 1;
        let process = self.processes;
        let child = Command::new(env!("CARGO_BIN_EXE_kill-workflow"))
            .args([&self.store, &self.bank.port, &process.to_string(), &self.steps.to_string()])
            .stdin(Stdio::null())
            .stdout(self.pipe.try_clone().unwrap())
            .spawn()
            .unwrap();
        Runner { child, process }
    }

    /// Reads lines until this many activities were begun, or for this long.
    pub(crate) fn until(&mut self, point: usize, time: Duration) {
        let begun = Instant::now();
        while self.begun.len() < point {
            let Some(left) = time.checked_sub(begun.elapsed()) else { return };
            match self.lines.recv_timeout(left.min(TIMEOUT)) {
                Ok(line) => self.hear(line),
                Err(RecvTimeoutError::Timeout) if left <= TIMEOUT => return,
                Err(why) => panic!("{why} at {} of {point} activities", self.begun.len()),
            }
        }
    }

    fn hear(&mut self, line: Line) {
        if let Line::Began { step, .. } = line {
            self.begun.insert(step);
        }
        self.heard.push(line);
    }

    /// Kills a process, wherever it is.
    pub(crate) fn kill(&mut self, mut runner: Runner) {
        let process = runner.process;
        self.say(&Line::Killing { process });
        runner.child.kill().unwrap();
        let status = runner.child.wait().unwrap();
        assert_eq!(status.signal(), Some(SIGKILL), "process {process} ended early: {status}");
        self.say(&Line::Died { process });
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).unwrap();
            let is_last = line == Line::Died { process };
            self.hear(line);
            if is_last {
                break;
            }
        }
        let of = |line: &&Line, began: bool| match line {
            Line::Began { process: of, .. } => began && *of == process,
            Line::Left { process: of, .. } => !began && *of == process,
            _ => false,
        };
        let count = |began| self.heard.iter().filter(|line| of(line, began)).count();
        self.kills += 1;
        self.cut += u32::from(count(true) > count(false));
    }

    fn say(&mut self, line: &Line) {
        let text = format!("{}\n", serde_json::to_string(line).unwrap());
        self.pipe.write_all(text.as_bytes()).unwrap();
    }

    /// The result of the workflow, and the number of its turns.
    pub(crate) fn ended(&mut self) -> (u64, usize) {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).unwrap();
            self.hear(line.clone());
            if let Line::Ended { sum, turns } = line {
                return (sum, turns);
            }
        }
    }

    pub(crate) fn books(&self) -> Vec<Entry> {
        self.bank.books()
    }
}

pub(crate) struct Runner {
    child: Child,
    process: u32,
}

impl Runner {
    /// Waits until it has closed.
    pub(crate) fn closed(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Runner {
    /// Kills the process with its test.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
