use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// Listens for Ctrl-C, SIGTERM and SIGHUP.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if SIGHUP was ignored when this process started.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = || -> io::Result<Self> {
            let hangup =
                if hangup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
            let interrupt = signal(SignalKind::interrupt())?;
            Ok(Self { interrupt, terminate: signal(SignalKind::terminate())?, hangup })
        };
        listen().map_err(|error| CliError::System { what: "listening to signals", error })
    }

    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether SIGHUP is ignored, as under `nohup`; false if unknown.
fn hangup_is_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first signal is the lowest bit.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_sighup_is_detected() {
        for (status, expected) in [
            ("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n", true),
            ("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_hangup(status), expected, "{status}");
        }
    }
}
