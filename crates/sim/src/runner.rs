use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::coverage::Coverage;
use crate::generate;
use crate::simulation::{Report, Simulation};
use crate::violation::{Kind, Violation};

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many violations.
    Violations(u64),
    /// Runs every seed and counts.
    End,
}

/// The maximum number of violating seeds that are listed.
const MAX_LISTED: usize = 100;

/// The results of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub seeds: u64,
    pub events: u64,
    pub coverage: Coverage,
    /// Violations by seed.
    pub broken: BTreeMap<u64, Violation>,
}

impl Tally {
    /// How often each rule was broken.
    pub fn kinds(&self) -> BTreeMap<Kind, u64> {
        let mut kinds = BTreeMap::new();
        for violation in self.broken.values() {
            *kinds.entry(violation.kind).or_default() += 1;
        }
        kinds
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds {}", self.seeds)?;
        writeln!(f, "events {}", self.events)?;
        writeln!(f, "violations {}", self.broken.len())?;
        if let Some(first) = self.broken.keys().next() {
            writeln!(f, "first {first}")?;
        }
        for (kind, times) in self.kinds() {
            writeln!(f, "kind {kind:?} {times}")?;
        }
        for (seed, violation) in self.broken.iter().take(MAX_LISTED) {
            writeln!(f, "seed {seed} {:?}", violation.kind)?;
        }
        Ok(())
    }
}

/// Runs one seed. A panic is a violation like any other.
fn run_one(seed: u64) -> Result<Report, Box<Violation>> {
    let run = catch_unwind(|| Simulation::from_seed(seed).run());
    run.unwrap_or_else(|_| {
        let script = generate::script(seed);
        let (kind, what, steps) = (Kind::Engine, "the run panicked".into(), script.steps.len());
        Err(Box::new(Violation { seed, kind, what, script, steps }))
    })
}

/// Runs many seeds, on as many threads as the machine has cores. Each seed is played by one
/// thread.
pub fn run_seeds(seeds: Range<u64>, until: Until) -> Tally {
    let next = AtomicU64::new(seeds.start);
    let over = AtomicBool::new(false);
    let tally = Mutex::new(Tally::default());
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let run = run_one(seed);
            let mut tally = tally.lock().unwrap_or_else(|broken| broken.into_inner());
            tally.seeds += 1;
            match run {
                Ok(report) => {
                    tally.events += report.events as u64;
                    tally.coverage.merge(&report.coverage);
                }
                Err(violation) => {
                    tally.broken.insert(seed, *violation);
                    if let Until::Violations(enough) = until
                        && tally.broken.len() as u64 >= enough
                    {
                        over.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    tally.into_inner().unwrap_or_else(|broken| broken.into_inner())
}
