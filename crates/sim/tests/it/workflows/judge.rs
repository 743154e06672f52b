//! The rules of a workflow, however often its processes were killed.

use std::collections::BTreeMap;

use super::line::Line;
use super::plan::{self, Block, blocks};
use crate::bank::Entry;

/// The findings.
pub(crate) struct Tally {
    /// How often activities were begun.
    pub(crate) runs: usize,
    /// How often the bank was called.
    pub(crate) calls: usize,
    /// All violations.
    pub(crate) broken: Vec<String>,
}

pub(crate) fn broken(lines: &[Line], books: &[Entry], steps: u32, sum: u64) -> Tally {
    let (times, mut broken) = runs(lines);
    for step in 0..steps {
        match times.get(&step) {
            Some((_, true)) => {}
            times => broken.push(format!("activity {step} did not end: {times:?}")),
        }
    }
    let strays = times.keys().filter(|step| **step >= steps);
    broken.extend(strays.map(|step| format!("unexpected activity {step}")));
    broken.extend(not_called_once(books, steps));
    if sum != worth(steps) {
        broken.push(format!("the result is {sum}, and not {}", worth(steps)));
    }
    let runs = times.values().map(|(times, _)| times).sum();
    Tally { runs, calls: books.len(), broken }
}

/// How often each activity was begun, and whether it ended; and violations by parallel runs.
fn runs(lines: &[Line]) -> (BTreeMap<u32, (usize, bool)>, Vec<String>) {
    let mut times = BTreeMap::<u32, (usize, bool)>::new();
    let (mut running, mut broken) = (BTreeMap::<u32, u32>::new(), Vec::new());
    for line in lines {
        match line {
            Line::Began { process, step } => {
                times.entry(*step).or_default().0 += 1;
                if let Some(other) = running.insert(*step, *process) {
                    let both = format!("processes {process} and {other} run it");
                    broken.push(format!("activity {step}: {both}"));
                }
            }
            Line::Left { process, step } => {
                times.entry(*step).or_default().1 = true;
                if running.get(step) == Some(process) {
                    running.remove(step);
                }
            }
            // Between the two the process may still print a line.
            Line::Killing { process } | Line::Died { process } => {
                running.retain(|_, by| by != process);
            }
            Line::Ended { .. } => {}
        }
    }
    (times, broken)
}

/// Every order that the bank does not have exactly once.
fn not_called_once(books: &[Entry], steps: u32) -> Vec<String> {
    let mut calls = BTreeMap::<String, Vec<&str>>::new();
    for order in orders(steps) {
        calls.insert(order, Vec::new());
    }
    let mut broken = Vec::new();
    for entry in books {
        match calls.get_mut(&entry.order) {
            Some(receipts) => receipts.push(&entry.receipt),
            None => broken.push(format!("unexpected {entry:?}")),
        }
    }
    let wrong = calls.into_iter().filter(|(_, receipts)| receipts.len() != 1);
    broken.extend(wrong.map(|(order, receipts)| format!("{order}: the bank has {receipts:?}")));
    broken
}

fn in_turns(steps: u32) -> impl Iterator<Item = u32> {
    blocks(steps).into_iter().filter_map(|block| match block {
        Block::Call(step) => Some(step),
        _ => None,
    })
}

fn orders(steps: u32) -> Vec<String> {
    let of_activities = (0..steps).filter(|step| plan::pays(*step)).map(plan::order);
    of_activities.chain(in_turns(steps).map(plan::turn_order)).collect()
}

fn worth(steps: u32) -> u64 {
    (0..steps).chain(in_turns(steps)).map(plan::worth).sum()
}

/// The name of the case, the lines, the bank's entries, the sum, and the number of violations.
type Case<'a> = (&'a str, &'a [Line], &'a [Entry], u64, usize);

#[test]
fn violations_of_a_workflow_run_are_found() {
    use Line::{Began, Died, Ended, Killing, Left};
    const STEPS: u32 = 2;
    let began = |process, step| Began { process, step };
    let left = |process, step| Left { process, step };
    let paid = |order: &str| Entry { order: order.into(), receipt: "receipt".into() };
    let right = [began(1, 0), left(1, 0), began(1, 1), left(1, 1)];
    let books = [paid("activity 0"), paid("turn 1")];
    let again = [began(1, 0), left(1, 0), began(1, 1), Killing { process: 1 }, left(1, 1)];
    let again = [&again[..], &[Died { process: 1 }, began(2, 1), left(2, 1)]].concat();
    let both = [&right[..3], &[began(2, 1), left(1, 1), left(2, 1)]].concat();
    let alone = [&right[..3], &[began(1, 1), left(1, 1)]].concat();
    let other_died = [&right[..3], &[Died { process: 2 }, began(3, 1), left(3, 1)]].concat();
    let unasked = [&right[..], &[began(1, 2), left(1, 2)]].concat();
    let ended = [&right[..], &[Ended { sum: 17, turns: 3 }]].concat();
    let twice = [&books[..], &books[..1]].concat();
    let stray = [&books[..], &[paid("activity 1")]].concat();
    let cases: &[Case<'_>] = &[
        ("right", &ended, &books, 17, 0),
        ("again after a death", &again, &books, 17, 0),
        ("two processes", &both, &books, 17, 1),
        ("one process twice", &alone, &books, 17, 1),
        ("another one died", &other_died, &books, 17, 1),
        ("never run", &right[..2], &books, 17, 1),
        ("cut off", &right[..3], &books, 17, 1),
        ("not asked for", &unasked, &books, 17, 1),
        ("called twice", &right, &twice, 17, 1),
        ("not called", &right, &books[1..], 17, 1),
        ("called for a plain one", &right, &stray, 17, 1),
        ("another result", &right, &books, 16, 1),
    ];
    for (name, lines, books, sum, count) in cases {
        let broken = broken(lines, books, STEPS, *sum).broken;
        assert_eq!(broken.len(), *count, "{name}: {broken:?}");
    }
}
