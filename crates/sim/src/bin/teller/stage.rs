//! What a teller says, and the point at which it kills itself.

use std::io::Write;

use rustix::process::{Signal, getpid, kill_process};

use crate::line::Line;

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) point: String,
}

impl Stage {
    /// Says a line in one write. Without a parent to hear it there is nothing left to do.
    pub(crate) fn say(&self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line is written without fail");
        text.push('\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(1);
        }
    }

    /// Does not return if this is where to be killed.
    pub(crate) fn reach(&self, point: &str) {
        if point == self.point {
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            unreachable!("nobody goes on after signal 9");
        }
    }
}
