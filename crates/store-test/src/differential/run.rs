use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use windlass_store::ManualClock;

use super::coverage::Coverage;
use super::generator::Generator;
use super::oracle::Oracle;
use super::step::Operation;
use super::subject::Subject;
use crate::factory::Factory;
use crate::fixture::START;

/// The seeds of an ordinary run; they reach everything in [`super::REQUIRED`].
pub const DEFAULT_SEEDS: Range<u64> = 0..150;

/// The number of steps of one seed.
pub const STEPS: usize = 150;

/// Environment variable that selects a single seed.
const SEED_VARIABLE: &str = "WINDLASS_SEED";

/// Environment variable for the number of seeds of a long run.
const COUNT_VARIABLE: &str = "WINDLASS_SEEDS";

/// The first of the seeds that `cargo xtask ci` derives from the commit.
const START_VARIABLE: &str = "WINDLASS_SEED_START";

/// The first difference between a store and the reference tables. Its text is one line, and
/// sufficient to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    pub seed: u64,
    pub step: usize,
    pub store: String,
    pub what: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, step, store, what } = self;
        write!(f, "{SEED_VARIABLE}={seed} (step={step} store={store}): {what}")
    }
}

/// The seeds to run: `otherwise`, the one selected by the environment, or the number it requests
/// for a long run, divided by `slower` for a slow store.
pub fn seeds(otherwise: Range<u64>, slower: u64) -> Range<u64> {
    if let Some(seed) = number(SEED_VARIABLE) {
        return seed..seed + 1;
    }
    match number(COUNT_VARIABLE) {
        Some(count) => 0..(count / slower).max(otherwise.end),
        None => otherwise,
    }
}

/// Additional seeds for a commit: `otherwise` many from the start in the environment. None without
/// a start, or if the environment selects one seed.
pub fn seeds_of_commit(otherwise: u64) -> Option<Range<u64>> {
    if number(SEED_VARIABLE).is_some() {
        return None;
    }
    let start = number(START_VARIABLE).filter(|start| *start > 0)?;
    let count = number(COUNT_VARIABLE).unwrap_or(otherwise);
    Some(start..start.saturating_add(count))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("seed variables are numbers"))
}

/// Runs the steps of every seed on the reference tables and on each store, and compares them after
/// each step. Inconsistencies of the reference tables are reported under the name `batch`.
pub async fn run(
    seeds: Range<u64>,
    stores: &[(&str, &dyn Factory)],
) -> Result<Coverage, Divergence> {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let mut position = Position { seed, step: 0 };
        Box::pin(run_seed(&mut position, stores, &mut coverage)).await?;
        coverage.seeds += 1;
    }
    Ok(coverage)
}

async fn run_seed(
    position: &mut Position,
    stores: &[(&str, &dyn Factory)],
    coverage: &mut Coverage,
) -> Result<(), Divergence> {
    let place = format!("seed-{}", position.seed);
    let clock = Arc::new(ManualClock::at(START));
    let mut subjects = Vec::new();
    for (name, factory) in stores {
        subjects.push((*name, Subject::open(*factory, &place, &clock).await));
    }
    let mut oracle = Oracle::default();
    let mut generator = Generator::new(position.seed);
    for step in 0..STEPS {
        position.step = step;
        let next = generator.next(&oracle, step);
        clock.set(next.at);
        let expected = oracle.take(&next);
        let expected = expected.map_err(|what| position.divergence("batch", what))?;
        generator.learn(&expected);
        for (name, subject) in &mut subjects {
            let applied = subject.take(&next, &expected, &oracle.payloads).await;
            applied.map_err(|what| {
                let what = format!("{what} after {:?}", next.command);
                position.divergence(name, what)
            })?;
        }
        if let Operation::Batch { commands, .. } = &next.command {
            let answers = commands.iter().zip(&expected.batch.answers);
            answers.for_each(|(command, answer)| coverage.note(command, answer));
        }
        coverage.steps += 1;
    }
    Ok(())
}

/// The position of a run, printed when a step panics.
struct Position {
    seed: u64,
    step: usize,
}

impl Position {
    fn divergence(&self, store: &str, what: String) -> Divergence {
        Divergence { seed: self.seed, step: self.step, store: store.to_owned(), what }
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("panicked at {SEED_VARIABLE}={} (step={})", self.seed, self.step);
        }
    }
}
