//! One long workflow, whose processes are killed with signal 9 at any time, one after the other
//! and in parallel, until a last process completes it. It has sequential and parallel activities,
//! timers, and calls to a bank, which records every call, deduplicates nothing, and is never
//! killed.
//!
//! Kills are timed by the progress of the work, not by a clock, so that they hit it midway on any
//! machine; some kill a process a fixed time after its start.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod judge;
#[path = "../../src/bin/kill-workflow/line.rs"]
mod line;
#[path = "../../src/bin/kill-workflow/plan.rs"]
mod plan;
mod process;

use std::time::{Duration, Instant};

use windlass_store_test::Random;
use windlass_store_test::differential::seeds;

use judge::{Tally, broken};
use process::{Place, Runner};

/// From this many seeds on the workflow is a long one; each further multiple adds another.
const SEEDS_PER_LONG_ONE: u64 = 10_000;

/// The number of activities, and the minimum number of kills.
#[derive(Clone, Copy)]
struct Size {
    steps: u32,
    kills: u32,
}

const SHORT: Size = Size { steps: 60, kills: 6 };
const LONG: Size = Size { steps: 1_000, kills: 50 };

/// The chance in percent that two processes run in parallel.
const PAIRED: u64 = 30;
/// The chance in percent that a kill happens after a fixed time, if the work has not reached its
/// point by then.
const TIMED: u64 = 25;

#[test]
fn a_workflow_outlives_its_processes_on_sqlite() {
    raise_epoch_floor(Place::sqlite, "sqlite");
}

#[test]
fn a_workflow_outlives_its_processes_on_postgres() {
    raise_epoch_floor(Place::postgres, "postgres");
}

fn size() -> Size {
    let seeds = std::env::var("WINDLASS_SEEDS").ok().and_then(|seeds| seeds.parse::<u64>().ok());
    if seeds.is_some_and(|seeds| seeds >= SEEDS_PER_LONG_ONE) { LONG } else { SHORT }
}

fn raise_epoch_floor(place: impl Fn(u32) -> Place, store: &str) {
    let size = size();
    for seed in seeds(0..1, SEEDS_PER_LONG_ONE) {
        let long = if size.steps == LONG.steps { " WINDLASS_SEEDS=10000" } else { "" };
        let reproduce = format!(
            "WINDLASS_SEED={seed}{long} cargo test -p windlass-sim --test it \
             a_workflow_outlives_its_processes_on_{store}"
        );
        eprintln!("reproduce: {reproduce}");
        let begun = Instant::now();
        let mut place = place(size.steps);
        kill_again_and_again(&mut place, &mut Random::new(seed), size);
        let last = place.runner();
        let (sum, turns) = place.ended();
        last.closed();
        let Tally { runs, calls, broken } = broken(&place.heard, &place.books(), size.steps, sum);
        assert!(broken.is_empty(), "{}\nreproduce: {reproduce}", broken.join("\n"));
        let kills = place.kills;
        assert!(kills >= size.kills, "{kills} kills\nreproduce: {reproduce}");
        let (steps, cut, time) = (size.steps, place.cut, begun.elapsed());
        eprintln!(
            "{store}, seed {seed}: {steps} activities in {runs} runs, {calls} calls, {turns} \
             turns, {kills} kills ({cut} of them amid activities), {time:.1?}"
        );
    }
}

/// Kills at points of the first part of the work, so that the workflow has not ended by then.
fn kill_again_and_again(place: &mut Place, random: &mut Random, size: Size) {
    let most = size.steps * 4 / 5;
    let mut points: Vec<u64> = (0..size.kills).map(|_| random.below(most.into())).collect();
    points.sort_unstable();
    for point in points {
        let pair = if random.percent(PAIRED) { 2 } else { 1 };
        let runners: Vec<Runner> = (0..pair).map(|_| place.runner()).collect();
        let timed = random.percent(TIMED);
        let time = if timed { random.below(1_500) } else { u64::MAX };
        let mut point = usize::try_from(point).unwrap();
        place.until(point, Duration::from_millis(time));
        for runner in runners {
            // Sometimes immediately, sometimes long enough to take over from a dead process.
            let most_us = *random.pick(&[1, 5_000, 50_000, 2_000_000]);
            point += usize::try_from(size.steps / 20).unwrap();
            place.until(point, Duration::from_micros(random.below(most_us)));
            place.kill(runner);
        }
    }
}
