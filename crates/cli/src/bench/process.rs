use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// The CPU time of this process over an interval.
#[derive(Debug)]
pub(crate) struct Usage {
    since: Instant,
    ticks: Option<u64>,
}

/// Linux reports CPU time to programs in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

impl Usage {
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), ticks: ticks() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Percent of one core; none if the system does not report it.
    pub(crate) fn cpu_percent(&self) -> Option<f64> {
        let used = ticks()?.saturating_sub(self.ticks?) as f64 / TICKS_PER_SECOND;
        Some(100.0 * used / self.elapsed().as_secs_f64())
    }
}

fn ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Samples the memory of this process until it is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) before: Option<f64>,
    peak: Arc<Mutex<Option<f64>>>,
    watching: JoinHandle<()>,
}

const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Memory {
    pub(crate) fn watch() -> Self {
        let before = memory_mib();
        let peak = Arc::new(Mutex::new(before));
        let sampled = peak.clone();
        let watching = tokio::spawn(async move {
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                raise(&sampled);
            }
        });
        Self { before, peak, watching }
    }

    pub(crate) fn peak(&self) -> Option<f64> {
        raise(&self.peak);
        *self.peak.lock().expect("no code panics under this lock")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn raise(peak: &Mutex<Option<f64>>) {
    let current = memory_mib();
    let mut peak = peak.lock().expect("no code panics under this lock");
    if current > *peak {
        *peak = current;
    }
}

/// Resident memory of this process in MiB; none if the system does not report it.
pub(crate) fn memory_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1_024.0)
}
