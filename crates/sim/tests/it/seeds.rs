use std::ops::Range;

use windlass_sim::{Simulation, Until, run_many};
use windlass_store_test::differential::seeds;

/// The seeds of an ordinary run; they reach everything that is required.
const DEFAULT_SEEDS: Range<u64> = 0..300;

#[test]
fn no_seed_breaks_a_rule() {
    let seeds = seeds(DEFAULT_SEEDS, 1);
    let tally = run_many(seeds.clone(), Until::FirstViolation);
    if let Some(&seed) = tally.broken.keys().next() {
        let shown = Simulation::from_seed(seed).run_and_shrink();
        panic!("{}", shown.expect_err("the same seed is the same run"));
    }
    println!("{}\n{tally}", tally.coverage);
    if seeds.start == 0 && seeds.end >= DEFAULT_SEEDS.end {
        assert_eq!(tally.coverage.missing(), [], "what does not happen:\n{}", tally.coverage);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let run = || Simulation::from_seed(seed).in_words().run().expect("it breaks no rule");
        let (first, second) = (run(), run());
        let lines = first.trace.iter().zip(&second.trace).enumerate();
        for (number, (first, second)) in lines {
            assert_eq!(first, second, "WINDLASS_SEED={seed} (line {number})");
        }
        assert_eq!(first.digest, second.digest, "WINDLASS_SEED={seed}");
    }
}

#[test]
fn different_seeds_are_different_runs() {
    let digest = |seed| Simulation::from_seed(seed).run().expect("it breaks no rule").digest;
    assert_ne!(digest(1), digest(2));
}
