//! Where a process writes its lines. What was written is kept when the process is killed: the
//! kernel has it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::line::Line;

#[derive(Debug)]
pub(crate) struct Journal(Mutex<File>);

impl Journal {
    /// A file for each life of a process.
    pub(crate) fn create(folder: &Path, process: usize, life: usize) -> io::Result<Self> {
        Ok(Self(Mutex::new(File::create_new(file(folder, process, life))?)))
    }

    /// Writes a line in one call. Without a place to write to there is nothing left to do.
    pub(crate) fn write(&self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line is written without fail");
        text.push('\n');
        let mut file = self.0.lock().expect("nothing panics while it holds the file");
        if let Err(error) = file.write_all(text.as_bytes()) {
            eprintln!("an answer could not be written down: {error}");
            std::process::exit(1);
        }
    }

    /// Writes down what should never happen, and ends the process.
    pub(crate) fn trouble(&self, what: impl Into<String>) -> ! {
        self.write(&Line::Trouble(what.into()));
        std::process::exit(1);
    }
}

/// The lines of all lives of a process, in their order.
pub(crate) fn read(folder: &Path, process: usize) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for life in 0.. {
        let file = file(folder, process, life);
        if !file.exists() {
            break;
        }
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        // A line that was cut off was never written.
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
