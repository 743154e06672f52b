//! An engine process, as its parent sees it.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::node::Orders;

const SIGKILL: i32 = 9;

#[derive(Debug)]
pub(crate) struct Process {
    orders: Orders,
    child: Child,
    words: ChildStdin,
}

impl Process {
    pub(crate) fn start(orders: Orders) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("starting a process failed: {error}");
        let program = std::env::current_exe().map_err(failed)?;
        let text = serde_json::to_string(&orders).expect("orders are serializable");
        let mut child = Command::new(program)
            .args(["node", &text])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let words = child.stdin.take().expect("stdin is piped");
        Ok(Self { orders, child, words })
    }

    pub(crate) fn lives(&self) -> usize {
        self.orders.life + 1
    }

    pub(crate) fn kill_and_start(&mut self) -> Result<(), String> {
        self.must_run()?;
        self.signal(Signal::KILL)?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.signal() != Some(SIGKILL) {
            return Err(format!("a process ended before it was killed: {status}"));
        }
        let life = self.orders.life + 1;
        *self = Self::start(Orders { life, ..self.orders.clone() })?;
        Ok(())
    }

    pub(crate) fn stop(&mut self) -> Result<(), String> {
        self.must_run()?;
        self.signal(Signal::STOP)
    }

    pub(crate) fn resume(&mut self) -> Result<(), String> {
        self.signal(Signal::CONT)
    }

    /// Checks that the process has not ended.
    pub(crate) fn must_run(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            ended => Err(format!("process {} ended unexpectedly: {ended:?}", self.orders.process)),
        }
    }

    /// Asks it to close, and waits until it has.
    pub(crate) fn close(mut self) -> Result<(), String> {
        self.must_run()?;
        writeln!(self.words, "close").map_err(|error| error.to_string())?;
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            ended => Err(format!("process {} failed: {ended:?}", self.orders.process)),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|error| format!("sending a signal failed: {error}"))
    }
}

impl Drop for Process {
    /// Kills the process with its parent, even a stopped one.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
