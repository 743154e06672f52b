use std::io::{self, Write as _};
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::error::CliError;
use crate::output::{printable, say_aside};

/// Writes the reports of a worker: objects to stdout, or lines to stderr.
///
/// A separate thread writes them, so that a slow reader delays no heartbeat. When the reader is
/// closed, it stops writing.
#[derive(Debug)]
pub(crate) struct ReportWriter {
    lines: mpsc::Sender<Option<Line>>,
    /// Resolves with the error that stopped the writer. None once it was received.
    finished: Option<oneshot::Receiver<io::Error>>,
}

/// A report to write.
#[derive(Debug)]
enum Line {
    Outcome(String),
    /// Always to stderr.
    Complaint(String),
}

/// The sending side of the writer. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ReportSender(mpsc::Sender<Option<Line>>);

impl ReportSender {
    pub(crate) fn report(&self, line: String) {
        // The writer outlives all senders, unless the process ends.
        let _ = self.0.send(Some(Line::Outcome(line)));
    }

    pub(crate) fn complain(&self, line: String) {
        // As above.
        let _ = self.0.send(Some(Line::Complaint(line)));
    }
}

impl ReportWriter {
    pub(crate) fn start(json: bool) -> Result<Self, CliError> {
        let (lines, queued) = mpsc::channel();
        let (failed, finished) = oneshot::channel();
        let write = move || {
            if let Err(error) = write(&queued, json) {
                // The worker may have stopped already.
                let _ = failed.send(error);
            }
        };
        let started = std::thread::Builder::new().spawn(write);
        started.map_err(|error| CliError::System { what: "starting a thread", error })?;
        Ok(Self { lines, finished: Some(finished) })
    }

    pub(crate) fn sender(&self) -> ReportSender {
        ReportSender(self.lines.clone())
    }

    /// Waits until the writer fails; returns the error.
    pub(crate) async fn broken(&mut self) -> io::Error {
        if let Some(finished) = &mut self.finished {
            let result = finished.await;
            self.finished = None;
            if let Ok(error) = result {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Waits until all queued lines are written.
    pub(crate) async fn end(mut self) -> Result<(), CliError> {
        // A stopped writer has nothing left to write.
        let _ = self.lines.send(None);
        let Some(finished) = self.finished.take() else { return Ok(()) };
        finished.await.map_or(Ok(()), complaint)
    }
}

/// A closed pipe, as behind `head`, is not an error.
pub(crate) fn complaint(error: io::Error) -> Result<(), CliError> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(CliError::System { what: "reporting tasks", error }),
    }
}

fn write(lines: &mpsc::Receiver<Option<Line>>, json: bool) -> io::Result<()> {
    while let Ok(Some(line)) = lines.recv() {
        match line {
            Line::Complaint(line) => say_aside(&printable(&line)),
            Line::Outcome(line) if json => writeln!(io::stdout(), "{line}")?,
            Line::Outcome(line) => writeln!(io::stderr(), "{}", printable(&line))?,
        }
    }
    Ok(())
}
