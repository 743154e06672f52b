//! One process at work, as its parent sees it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::line::Line;

/// Far longer than any step that is not stuck.
const TIMEOUT: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// The orders of a process.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) creators: u32,
    pub(crate) step: &'static str,
    pub(crate) nth: u64,
}

#[derive(Debug)]
pub(crate) struct Life {
    name: String,
    child: Child,
    words: ChildStdin,
    lines: Receiver<Line>,
    /// The lines read so far.
    pub(crate) said: Vec<Line>,
}

impl Life {
    /// Starts a process that first repeats unanswered commands of other processes.
    pub(crate) fn start(file: &Path, orders: &Orders, again: &[Line]) -> Self {
        let Orders { name, seed, creators, step, nth } = orders;
        let log = File::options().create(true).append(true).open(file.with_extension("log"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_kill-task"))
            .arg(file)
            .args([name, &seed.to_string(), &creators.to_string(), *step, &nth.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.unwrap())
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
        let words = child.stdin.take().unwrap();
        let mut life = Self { name: name.clone(), child, words, lines, said: Vec::new() };
        for line in again {
            life.tell(&serde_json::to_string(line).unwrap());
        }
        life.tell("go");
        life
    }

    pub(crate) fn tell(&mut self, line: &str) {
        // It may have stopped at its step already; missing lines show elsewhere.
        let _ = writeln!(self.words, "{line}");
    }

    /// Reads until a line matches.
    pub(crate) fn read_until(
        &mut self,
        what: &str,
        mut found: impl FnMut(&Line) -> bool,
    ) -> Result<(), String> {
        let give_up_at = Instant::now() + TIMEOUT;
        loop {
            let left = give_up_at.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("{}: timeout while waiting for {what}", self.name));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("{} ended before {what}", self.name));
                }
            };
            self.said.push(line);
            match self.said.last() {
                Some(Line::Unexpected(what)) => return Err(format!("{}: {what}", self.name)),
                Some(line) if found(line) => return Ok(()),
                _ => {}
            }
        }
    }

    pub(crate) fn read_until_at(&mut self, step: &str) -> Result<(), String> {
        self.read_until(step, |line| matches!(line, Line::At { step: at } if at == step))
    }

    /// Reads this many answers.
    pub(crate) fn read_answers(&mut self, count: u64) -> Result<(), String> {
        let mut left = count;
        let answer = |line: &Line| {
            left -= u64::from(matches!(line, Line::Created { .. } | Line::Settled { .. }));
            left == 0
        };
        self.read_until(&format!("answer {count}"), answer)
    }

    /// Kills the process, wherever it is, and returns its output.
    pub(crate) fn kill(mut self) -> Result<Vec<Line>, String> {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        self.said.extend(self.lines.iter());
        if status.signal() != Some(SIGKILL) {
            return Err(format!("{} ended before it was killed: {status}", self.name));
        }
        match self.said.iter().find(|line| matches!(line, Line::Unexpected(_))) {
            Some(line) => Err(format!("{}: {line:?}", self.name)),
            None => Ok(std::mem::take(&mut self.said)),
        }
    }

    /// Waits until the process has closed.
    pub(crate) fn end(mut self) -> Result<Vec<Line>, String> {
        self.read_until("its end", |line| *line == Line::Closed)?;
        let status = self.child.wait().unwrap();
        if !status.success() {
            return Err(format!("{} failed: {status}", self.name));
        }
        Ok(std::mem::take(&mut self.said))
    }
}

impl Drop for Life {
    /// Kills the process with its test.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
