//! The output of all processes, life by life.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Act, Line, TaskSpec};

#[derive(Debug, Default)]
pub(crate) struct ProcessOutput {
    pub(crate) lives: Vec<Vec<Line>>,
}

/// The number of answered settles that are repeated in the next life.
const ANSWERED_REQUESTED_AGAIN: usize = 5;

impl ProcessOutput {
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lives.iter().flatten()
    }

    /// Every requested creation, by id.
    pub(crate) fn specs(&self) -> BTreeMap<&str, &TaskSpec> {
        let requested = self.lines().filter_map(|line| match line {
            Line::CreateRequested(spec) => Some((spec.id.as_str(), spec)),
            _ => None,
        });
        requested.collect()
    }

    pub(crate) fn rejected(&self) -> usize {
        self.lines().filter(|line| matches!(line, Line::Rejected { .. })).count()
    }

    /// The number of settles that were submitted in more than one life.
    pub(crate) fn requested_again(&self) -> usize {
        self.in_several_lives(|line| match line {
            Line::SettleRequested(act) => Some(act),
            _ => None,
        })
    }

    /// The number of settles that were answered in more than one life.
    pub(crate) fn answered_again(&self) -> usize {
        self.in_several_lives(|line| match line {
            Line::Settled { act, .. } => Some(act),
            _ => None,
        })
    }

    fn in_several_lives(&self, act_of: fn(&Line) -> Option<&Act>) -> usize {
        let mut lives = BTreeMap::<&Act, usize>::new();
        for life in &self.lives {
            let acts: BTreeSet<&Act> = life.iter().filter_map(act_of).collect();
            acts.into_iter().for_each(|act| *lives.entry(act).or_default() += 1);
        }
        lives.values().filter(|lives| **lives > 1).count()
    }

    /// The commands that callers of killed processes would repeat: all unanswered ones, and those
    /// answered ones whose answer never changes.
    pub(crate) fn again(&self) -> Vec<Line> {
        let mut specs = self.specs();
        let mut open: BTreeSet<&Act> = BTreeSet::new();
        let mut answered: Vec<&Act> = Vec::new();
        for line in self.lines() {
            match line {
                Line::Created { spec, .. } => drop(specs.remove(spec.id.as_str())),
                Line::SettleRequested(act) if act.ends() => drop(open.insert(act)),
                Line::Settled { act, .. } | Line::Rejected { act, .. } if act.ends() => {
                    open.remove(act);
                    answered.push(act);
                }
                _ => {}
            }
        }
        open.extend(answered.into_iter().rev().take(ANSWERED_REQUESTED_AGAIN));
        let creates = specs.into_values().cloned().map(Line::CreateRequested);
        creates.chain(open.into_iter().cloned().map(Line::SettleRequested)).collect()
    }
}
