use std::io::{self, Write as _};
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::error::CliError;
use crate::output::{printable, say_aside};

/// What a worker tells: objects on standard output, or lines on standard error.
///
/// A thread of its own writes it, so that a reader that takes its time holds up no heartbeat. When
/// nobody reads any more, it goes quiet.
#[derive(Debug)]
pub(crate) struct Told {
    lines: mpsc::Sender<Option<Line>>,
    /// The writer's last word: why it cannot write, or none. None here once it was heard.
    finished: Option<oneshot::Receiver<io::Error>>,
}

/// Something to tell.
#[derive(Debug)]
enum Line {
    Outcome(String),
    /// On standard error, in any case.
    Complaint(String),
}

/// Where lines are put in. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Telling(mpsc::Sender<Option<Line>>);

impl Telling {
    pub(crate) fn tell(&self, line: String) {
        // The writer goes before the last line only with the process.
        let _ = self.0.send(Some(Line::Outcome(line)));
    }

    pub(crate) fn complain(&self, line: String) {
        // As above.
        let _ = self.0.send(Some(Line::Complaint(line)));
    }
}

impl Told {
    pub(crate) fn start(json: bool) -> Result<Self, CliError> {
        let (lines, queued) = mpsc::channel();
        let (said, finished) = oneshot::channel();
        let write = move || {
            if let Err(error) = write(&queued, json) {
                // Nobody asks any more when the worker is at its end.
                let _ = said.send(error);
            }
        };
        let started = std::thread::Builder::new().spawn(write);
        started.map_err(|error| CliError::System { what: "starting a thread", error })?;
        Ok(Self { lines, finished: Some(finished) })
    }

    pub(crate) fn telling(&self) -> Telling {
        Telling(self.lines.clone())
    }

    /// Waits until there is nobody to tell anything; says why.
    pub(crate) async fn broken(&mut self) -> io::Error {
        if let Some(finished) = &mut self.finished {
            let last_word = finished.await;
            self.finished = None;
            if let Ok(error) = last_word {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Waits until what is left is written.
    pub(crate) async fn end(mut self) -> Result<(), CliError> {
        // A writer that is gone has nothing left.
        let _ = self.lines.send(None);
        let Some(finished) = self.finished.take() else { return Ok(()) };
        finished.await.map_or(Ok(()), complaint)
    }
}

/// Nobody reading any more, as behind `head`, is no reason to complain.
pub(crate) fn complaint(error: io::Error) -> Result<(), CliError> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(CliError::System { what: "telling what came of tasks", error }),
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
