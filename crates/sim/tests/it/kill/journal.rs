//! What all processes have said, life by life.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Act, Line, Wish};

#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) lives: Vec<Vec<Line>>,
}

/// How many settles that were answered are asked again in the next life.
const ANSWERED_ASKED_AGAIN: usize = 5;

impl Journal {
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lives.iter().flatten()
    }

    /// Everything that was asked to be created, by id.
    pub(crate) fn wishes(&self) -> BTreeMap<&str, &Wish> {
        let wish = |line| match line {
            &Line::AskedCreate(ref wish) => Some((wish.id.as_str(), wish)),
            _ => None,
        };
        self.lines().filter_map(wish).collect()
    }

    /// What callers who have died would ask again: all that was not answered, and some of what
    /// was. Only that which has the same answer for ever.
    pub(crate) fn again(&self) -> Vec<Line> {
        let mut wishes = self.wishes();
        let mut open: BTreeSet<&Act> = BTreeSet::new();
        let mut answered: Vec<&Act> = Vec::new();
        for line in self.lines() {
            match line {
                Line::Created { wish, .. } => drop(wishes.remove(wish.id.as_str())),
                Line::AskedSettle(act) if act.ends() => drop(open.insert(act)),
                Line::Settled { act, .. } | Line::Refused { act, .. } if act.ends() => {
                    open.remove(act);
                    answered.push(act);
                }
                _ => {}
            }
        }
        open.extend(answered.into_iter().rev().take(ANSWERED_ASKED_AGAIN));
        let creates = wishes.into_values().cloned().map(Line::AskedCreate);
        creates.chain(open.into_iter().cloned().map(Line::AskedSettle)).collect()
    }
}
