//! The faults of a run, derived from its seed, and how each is injected.

use std::time::Duration;

use windlass_store_test::Random;
use windlass_store_test::postgres::Server;

use crate::node::LEASE;
use crate::process::Process;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Signal 9; the process is restarted.
    Kill,
    /// One connection is terminated by the server, preferably a busy one.
    CutOne,
    CutAll,
    /// Postgres loses all unflushed state, and recovers.
    Restart,
    /// A process is stopped for longer than its leases and its locks last.
    Stop,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Kill, Kind::CutOne, Kind::CutAll, Kind::Restart, Kind::Stop];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill -9",
            Kind::CutOne => "pg_terminate_backend, one",
            Kind::CutAll => "pg_terminate_backend, all",
            Kind::Restart => "restart -m immediate",
            Kind::Stop => "SIGSTOP past the lease",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The delay before the fault.
    pub(crate) pause: Duration,
    pub(crate) kind: Kind,
    pub(crate) process: usize,
    /// How long a process is stopped.
    pub(crate) still: Duration,
}

/// The faults in order: each kind once before any repeats, in random order.
pub(crate) fn plan(seed: u64, faults: u64, processes: usize) -> Vec<Fault> {
    let mut random = Random::new(seed);
    let mut deck = Vec::new();
    let mut fault = || {
        if deck.is_empty() {
            deck = Kind::ALL.to_vec();
        }
        let at = random.below(deck.len() as u64);
        let kind = deck.swap_remove(usize::try_from(at).unwrap_or(0));
        let process = usize::try_from(random.below(processes as u64)).unwrap_or(0);
        let pause = Duration::from_millis(1_000 + random.below(3_000));
        let still = LEASE + Duration::from_millis(500 + random.below(2_000));
        Fault { pause, kind, process, still }
    };
    (0..faults).map(|_| fault()).collect()
}

impl Fault {
    /// Its approximate duration, with the pause.
    pub(crate) fn length(&self) -> Duration {
        self.pause + if self.kind == Kind::Stop { self.still } else { Duration::ZERO }
    }

    pub(crate) fn inject(&self, server: &Server, processes: &mut [Process]) -> Result<(), String> {
        let process = &mut processes[self.process];
        match self.kind {
            Kind::Kill => process.kill_and_start()?,
            Kind::CutOne => cut(server, "ORDER BY state = 'idle', md5(pid::text) LIMIT 1"),
            Kind::CutAll => cut(server, ""),
            Kind::Restart => server.control("restart -m immediate"),
            Kind::Stop => {
                process.stop()?;
                std::thread::sleep(self.still);
                process.resume()?;
            }
        }
        Ok(())
    }
}

fn cut(server: &Server, which: &str) {
    server.sql(&format!(
        "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() {which}) AS found"
    ));
}
