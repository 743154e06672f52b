//! The bank, as the parent of its callers sees it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

/// A bank with books in a folder.
pub(crate) struct Bank {
    child: Child,
    pub(crate) port: String,
    books: PathBuf,
}

/// A line in the books of the bank.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Entry {
    pub(crate) order: String,
    pub(crate) receipt: String,
}

impl Bank {
    pub(crate) fn open(folder: &Path) -> Self {
        let books = folder.join("books");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bank"));
        let command = command.arg(&books).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the bank starts");
        let out = child.stdout.take().expect("stdout is piped");
        let port = BufReader::new(out).lines().next().expect("the bank prints its port");
        Self { child, port: port.expect("a port is text"), books }
    }

    pub(crate) fn books(&self) -> Vec<Entry> {
        let books = std::fs::read_to_string(&self.books).expect("a bank has books");
        books.lines().map(|line| serde_json::from_str(line).expect("a line is an entry")).collect()
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
