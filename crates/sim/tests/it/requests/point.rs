//! The points at which a process is killed.

use windlass_store_test::Random;

use super::line::By;

/// A point, and the one from which on no retry reaches it again.
type Point = (&'static str, &'static str);

const NEVER: &str = "-";

/// In the order in which a payment reaches them. A key is reserved and its handler begins again
/// until it has a response; the bank is called until a call was made.
const OF_REQUEST: &[Point] = &[
    ("reserve.before", "answer.after"),
    ("reserve.after", "answer.after"),
    ("begun", "answer.after"),
    ("claim.before", "claim.after"),
    ("claim.after", "claim.after"),
    ("call.before", "call.after"),
    ("call.after", "call.after"),
    ("keep.before", "keep.after"),
    ("keep.after", "keep.after"),
    ("answer.before", "answer.after"),
    ("answer.after", "answer.after"),
    ("answered", NEVER),
];

const OF_TASK: &[Point] = &[
    ("create.before", "create.after"),
    ("create.after", "create.after"),
    ("begun", "complete.after"),
    ("claim.before", "claim.after"),
    ("claim.after", "claim.after"),
    ("call.before", "call.after"),
    ("call.after", "call.after"),
    ("keep.before", "keep.after"),
    ("keep.after", "keep.after"),
    ("complete.before", "complete.after"),
    ("complete.after", "complete.after"),
    ("answered", NEVER),
];

/// The chance in percent that a retry is killed as well.
const AGAIN: u64 = 30;

/// The kills that one key goes through.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) by: By,
    pub(crate) key: String,
    pub(crate) points: Vec<&'static str>,
}

fn points(by: By) -> &'static [Point] {
    match by {
        By::Request => OF_REQUEST,
        By::Task => OF_TASK,
    }
}

/// One chain of kills from every point, both for requests and for tasks.
pub(crate) fn chains(seed: u64) -> Vec<Chain> {
    let mut random = Random::new(seed);
    let mut chains = Vec::new();
    for by in [By::Request, By::Task] {
        for (first, _) in points(by) {
            let key = format!("{by:?}-{first}-in-round-{seed}");
            let mut chain = Chain { by, key, points: vec![first] };
            while random.percent(AGAIN) {
                let left = left(by, &chain.points);
                chain.points.push(*random.pick(&left));
            }
            chains.push(chain);
        }
    }
    chains
}

/// The points that a retry reaches after such kills.
fn left(by: By, before: &[&str]) -> Vec<&'static str> {
    let points = points(by);
    let place = |name: &str| points.iter().position(|(point, _)| *point == name);
    let furthest = before.iter().filter_map(|point| place(point)).max();
    let is_left = |gone: &str| place(gone).is_none_or(|gone| furthest < Some(gone));
    points.iter().filter(|(_, gone)| is_left(gone)).map(|(point, _)| *point).collect()
}

#[test]
fn a_retry_does_not_reach_completed_points() {
    let cases: &[(By, &[&str], &[&str])] = &[
        (By::Request, &["answer.after"], &["answered"]),
        (By::Request, &["answered", "answered"], &["answered"]),
        (By::Task, &["keep.after"], &["begun", "complete.before", "complete.after", "answered"]),
        (
            By::Task,
            &["call.after", "begun"],
            &[
                "begun",
                "keep.before",
                "keep.after",
                "complete.before",
                "complete.after",
                "answered",
            ],
        ),
    ];
    for (by, before, after) in cases {
        assert_eq!(left(*by, before), *after, "after {before:?}");
    }
    assert_eq!(left(By::Request, &["claim.before"]).len(), OF_REQUEST.len());
}
