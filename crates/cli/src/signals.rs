use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// Ctrl-C and SIGTERM, from here on.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = || -> io::Result<Self> {
            let interrupt = signal(SignalKind::interrupt())?;
            Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
        };
        listen().map_err(|error| CliError::System { what: "listening to signals", error })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
