use super::copy::TreeCopy;
use super::guarded::{Guarded, NoticedBy, Test};
use super::simulator::{Seeds, simulate};
use super::test_run::{TestCounts, run_tests};
use crate::proof::{Hash, Report, Request, Results, Row, run_rows};

const PROOF: &str = "mutate";

const TITLES: [&str; 4] = ["runs", "failures", "first seed", "noticed by"];

/// A row of the proof.
enum Job {
    /// The seeds without a mutation.
    CleanSeeds,
    /// The guarding tests without a mutation.
    CleanTests(Vec<Test>),
    Mutation(Guarded),
}

/// Runs these mutations, after the runs without a mutation.
pub(super) fn run_jobs(
    mutations: &[Guarded],
    seeds: Seeds,
    request: &Request,
) -> Result<(), String> {
    let jobs = jobs(mutations);
    let rows: Vec<Row> = jobs.iter().map(|job| job.row(seeds)).collect();
    if request.report {
        let tree = TreeCopy::hash_of_tree()?;
        return Report::new(tree, &Results::new(PROOF, tree), &rows, &TITLES).print();
    }
    let copy = TreeCopy::update()?;
    let results = Results::new(PROOF, copy.hash);
    let finished = run_rows(&rows, request, &results, |row| jobs[row].run(&copy, seeds));
    Report::new(copy.hash, &results, &rows, &TITLES).print().and(finished)
}

/// The runs without a mutation, of the simulator and of the tests, and one row for each mutation.
fn jobs(mutations: &[Guarded]) -> Vec<Job> {
    let mut tests = Vec::new();
    let mut simulates = false;
    for guarded in mutations {
        match guarded.noticed_by {
            NoticedBy::Simulator => simulates = true,
            NoticedBy::Test(test) => tests.push(test),
        }
    }
    tests.sort_unstable();
    tests.dedup();
    let seeds = simulates.then_some(Job::CleanSeeds);
    let tests = (!tests.is_empty()).then_some(Job::CleanTests(tests));
    let controls = seeds.into_iter().chain(tests);
    controls.chain(mutations.iter().copied().map(Job::Mutation)).collect()
}

impl Job {
    fn row(&self, seeds: Seeds) -> Row {
        let control = |name: &str, how: String| {
            Row::control(name, Hash::new().field(name).field(how).to_string())
        };
        match self {
            Job::CleanSeeds => control("nothing (simulator)", format!("{seeds:?}")),
            Job::CleanTests(tests) => {
                let names: Vec<String> = tests.iter().map(ToString::to_string).collect();
                control("nothing (tests)", names.join(" "))
            }
            Job::Mutation(Guarded { mutation, noticed_by: NoticedBy::Simulator }) => {
                Row::mutation(mutation.rule, mutation.key(format!("{seeds:?}")))
            }
            Job::Mutation(Guarded { mutation, noticed_by: NoticedBy::Test(test) }) => {
                Row::mutation(mutation.rule, mutation.key(test.to_string()))
            }
        }
    }

    /// Whether the row passes, and its figures.
    fn run(&self, copy: &TreeCopy, seeds: Seeds) -> Result<(bool, Vec<String>), String> {
        match self {
            Job::CleanSeeds => {
                let found = simulate(copy, seeds)?;
                Ok((!found.is_violated(), found.figures()))
            }
            Job::CleanTests(tests) => {
                let counts = run_tests(copy, tests)?;
                Ok((counts.failed == 0, figures(counts, "-")))
            }
            Job::Mutation(Guarded { mutation, noticed_by: NoticedBy::Simulator }) => {
                let found = copy.without(mutation, || simulate(copy, seeds))?;
                Ok((found.is_violated(), found.figures()))
            }
            Job::Mutation(Guarded { mutation, noticed_by: NoticedBy::Test(test) }) => {
                let counts = copy.without(mutation, || run_tests(copy, &[*test]))?;
                Ok((counts.failed == 1, figures(counts, &test.to_string())))
            }
        }
    }
}

fn figures(counts: TestCounts, by: &str) -> Vec<String> {
    let runs = counts.passed + counts.failed;
    vec![runs.to_string(), counts.failed.to_string(), "-".into(), by.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::mutation::Mutation;

    const ROW: Mutation = Mutation { rule: "r", file: "f.rs", from: "a", to: "b" };

    fn keys(mutations: &[Guarded], seeds: Seeds) -> Vec<String> {
        jobs(mutations).iter().map(|job| job.row(seeds).key).collect()
    }

    #[test]
    fn results_of_the_simulator_are_for_as_many_seeds() {
        let row = Guarded::by_simulator(&ROW);
        let keys = |most, stop_after| keys(&[row], Seeds { most, stop_after });
        let ten = keys(10, Some(3));
        assert_eq!(ten, keys(10, Some(3)));
        for other in [keys(20, Some(3)), keys(10, None)] {
            assert!(ten.iter().zip(&other).all(|(ten, other)| ten != other));
        }
    }

    #[test]
    fn results_of_a_test_are_for_that_test() {
        let by = |name| Guarded { mutation: ROW, noticed_by: NoticedBy::Test(Test::of_core(name)) };
        let keys = |name, most| keys(&[by(name)], Seeds { most, stop_after: None });
        assert_eq!(keys("a", 10), keys("a", 20));
        assert!(keys("a", 10).iter().zip(&keys("b", 10)).all(|(a, b)| a != b));
    }

    #[test]
    fn every_way_to_notice_has_a_row_without_a_mutation() {
        let simulated = Guarded::by_simulator(&ROW);
        let tested = Guarded { noticed_by: NoticedBy::Test(Test::of_core("a")), ..simulated };
        for (mutations, expected) in [
            (vec![], 0),
            (vec![simulated, simulated], 3),
            (vec![tested, tested], 3),
            (vec![simulated, tested], 4),
        ] {
            assert_eq!(jobs(&mutations).len(), expected);
        }
    }
}
