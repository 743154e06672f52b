//! The bank and the processes, as their parent sees them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tempfile::TempDir;
use windlass_store_test::postgres::Server;

use super::line::{Instruction, Line};
use crate::bank::{Bank, Entry};

/// Far longer than any step that is not stuck.
const TIMEOUT: Duration = Duration::from_secs(120);
const SIGKILL: i32 = 9;
pub(crate) const NO_POINT: &str = "-";

/// A store, and a bank beside it.
pub(crate) struct Place {
    store: String,
    bank: Bank,
    /// The maximum time that a request is in flight.
    in_flight_ms: u64,
    _folder: TempDir,
    _server: Option<Server>,
}

impl Place {
    pub(crate) fn sqlite(in_flight_ms: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("windlass.db").display().to_string();
        Self::open(file, in_flight_ms, folder, None)
    }

    pub(crate) fn postgres(in_flight_ms: u64) -> Self {
        let server = Server::start();
        Self::open(server.url(), in_flight_ms, tempfile::tempdir().unwrap(), Some(server))
    }

    fn open(store: String, in_flight_ms: u64, folder: TempDir, server: Option<Server>) -> Self {
        let bank = Bank::open(folder.path());
        let place = Self { store, bank, in_flight_ms, _folder: folder, _server: server };
        // Creates the tables first: kills during that are tested elsewhere.
        place.process(NO_POINT, &[]).ended();
        place
    }

    pub(crate) fn process(&self, point: &str, lanes: &[String]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kill-request"))
            .args([&self.store, &self.bank.port, &self.in_flight_ms.to_string(), point])
            .args(lanes)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (said, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            // A truncated line counts as not printed.
            for line in out.split(b'\n').map_while(Result::ok) {
                let Ok(line) = serde_json::from_slice(&line) else { return };
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        let words = child.stdin.take();
        Process { child, words, lines, said: Vec::new() }
    }

    pub(crate) fn books(&self) -> Vec<Entry> {
        self.bank.books()
    }
}

pub(crate) struct Process {
    child: Child,
    words: Option<ChildStdin>,
    lines: Receiver<Line>,
    said: Vec<Line>,
}

impl Process {
    pub(crate) fn tell(&mut self, instruction: &Instruction) {
        let text = serde_json::to_string(instruction).unwrap();
        // It may be dead already; missing lines show elsewhere.
        let _ = writeln!(self.words.as_mut().unwrap(), "{text}");
    }

    /// Reads until a line matches. Returns all lines so far.
    pub(crate) fn until(&mut self, found: impl Fn(&Line) -> bool) -> &[Line] {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            self.said.push(line.unwrap_or_else(|error| panic!("{error} after {:?}", self.said)));
            if self.said.last().is_some_and(&found) {
                return &self.said;
            }
        }
    }

    /// Waits for its end, after closing its input.
    fn wait(&mut self) -> (ExitStatus, Vec<Line>) {
        self.words = None;
        while let Ok(line) = self.lines.recv_timeout(TIMEOUT) {
            self.said.push(line);
        }
        (self.child.wait().unwrap(), std::mem::take(&mut self.said))
    }

    /// Waits until it has killed itself.
    pub(crate) fn killed(mut self) -> Result<Vec<Line>, String> {
        match self.wait() {
            (status, said) if status.signal() == Some(SIGKILL) => Ok(said),
            (status, said) => Err(format!("it was not killed: {status}, {said:?}")),
        }
    }

    /// Kills it, wherever it is.
    pub(crate) fn kill(mut self) -> Vec<Line> {
        self.child.kill().unwrap();
        let (status, said) = self.wait();
        assert_eq!(status.signal(), Some(SIGKILL), "it ended before the kill: {status}, {said:?}");
        said
    }

    /// Waits until it has finished and closed.
    pub(crate) fn ended(mut self) -> Vec<Line> {
        let (status, said) = self.wait();
        assert!(status.success(), "{status}: {said:?}");
        said
    }
}

impl Drop for Process {
    /// Kills the process with its test.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
