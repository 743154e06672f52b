//! The log of a process. Written lines survive the kill of the process: the kernel has them.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::line::Line;

#[derive(Debug)]
pub(crate) struct ProcessLog(Mutex<File>);

impl ProcessLog {
    /// Creates a file for each life of a process.
    pub(crate) fn create(folder: &Path, process: usize, life: usize) -> io::Result<Self> {
        Ok(Self(Mutex::new(File::create_new(file(folder, process, life))?)))
    }

    /// Writes a line in one call. Exits if the file cannot be written.
    pub(crate) fn write(&self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line is serializable");
        text.push('\n');
        let mut file = self.0.lock().expect("no panic while the file is locked");
        if let Err(error) = file.write_all(text.as_bytes()) {
            eprintln!("writing the log failed: {error}");
            std::process::exit(1);
        }
    }

    /// Records an unexpected event, and ends the process.
    pub(crate) fn fail(&self, what: impl Into<String>) -> ! {
        self.write(&Line::Unexpected(what.into()));
        std::process::exit(1);
    }
}

/// The lines of all runs of a process, in order.
pub(crate) fn read(folder: &Path, process: usize) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for life in 0.. {
        let file = file(folder, process, life);
        if !file.exists() {
            break;
        }
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        // A truncated line counts as not written.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let read = serde_json::from_str(line);
            lines.push(read.map_err(|error| format!("{}: {line}: {error}", file.display()))?);
        }
    }
    Ok(lines)
}

fn file(folder: &Path, process: usize, life: usize) -> PathBuf {
    folder.join(format!("answers-{process}-{life}"))
}
