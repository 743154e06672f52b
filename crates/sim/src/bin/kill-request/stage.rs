//! The output of a process, and the point at which it kills itself.

use std::io::Write;

use rustix::process::{Signal, getpid, kill_process};

use crate::line::Line;

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) point: String,
}

impl Stage {
    /// Prints a line in one write. Exits if the parent has closed the pipe.
    pub(crate) fn say(&self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line is serializable");
        text.push('\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(1);
        }
    }

    /// Does not return at the point to be killed at.
    pub(crate) fn reach(&self, point: &str) {
        if point == self.point {
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            unreachable!("a process does not survive signal 9");
        }
    }
}
