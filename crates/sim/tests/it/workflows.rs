//! One long workflow, whose processes are killed with signal 9 at any moment, one after the other
//! and side by side, until one is left to bring it to its end. It has activities in a row and
//! side by side, timers, and calls to a bank, which keeps books, deduplicates nothing, and lives
//! on.
//!
//! The moments are points of the work, not of a clock, so that a kill is in the midst of it on any
//! machine; some are moments after the start of a process, wherever that is then.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod judge;
#[path = "../../src/bin/runner/line.rs"]
mod line;
#[path = "../../src/bin/runner/plan.rs"]
mod plan;
mod process;

use std::time::{Duration, Instant};

use windlass_store_test::Random;
use windlass_store_test::differential::seeds;

use judge::{Tally, broken};
use process::{Place, Runner};

/// From so many seeds on the workflow is a long one; so many more are another one.
const SEEDS_PER_LONG_ONE: u64 = 10_000;

/// How much there is to do, and how often its processes are killed at least.
#[derive(Clone, Copy)]
struct Size {
    steps: u32,
    kills: u32,
}

const SHORT: Size = Size { steps: 60, kills: 6 };
const LONG: Size = Size { steps: 1_000, kills: 50 };

/// In how many of a hundred cases two processes live side by side.
const PAIRED: u64 = 30;
/// In how many they are killed after a time, unless the work comes to the point before.
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

/// Kills at points of the first part of the work, so that the workflow is never at its end by
/// then.
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
            // Sometimes at once, sometimes long enough to take over from one that is dead.
            let most_us = *random.pick(&[1, 5_000, 50_000, 2_000_000]);
            point += usize::try_from(size.steps / 20).unwrap();
            place.until(point, Duration::from_micros(random.below(most_us)));
            place.kill(runner);
        }
    }
}
