use windlass_core::Made;

use super::nondeterminism::{Deviation, Doing, same};
use super::part::{Entry, MADE_PER_ROW, cuts};

/// What a turn made, for code that is to make it again.
#[derive(Debug)]
pub(super) struct Script {
    made: Vec<Made>,
    place: usize,
    /// How much the last of its rows says.
    last_row: usize,
    /// Where the code first did something else.
    deviation: Option<Deviation>,
}

impl Script {
    pub(super) fn new(made: Vec<Made>, last_row: usize) -> Self {
        Self { made, place: 0, last_row, deviation: None }
    }

    /// The changes that come next. Code that has forgotten one of them goes its way for good.
    fn patches(&self) -> impl Iterator<Item = &String> {
        self.made[self.place..].iter().map_while(|made| match made {
            Made::Patch { id } => Some(id),
            _ => None,
        })
    }

    /// Beyond what is written everything is still open, as the rest of a turn whose first rows
    /// were all that could be written of it.
    pub(super) fn is_patched(&self, id: &str) -> bool {
        let unwritten = self.place == self.made.len() && self.last_row == MADE_PER_ROW;
        unwritten || self.patches().any(|patch| patch == id)
    }

    /// Goes on by what the code made. Names the changes that it has forgotten.
    pub(super) fn follow(&mut self, found: &Made) -> Vec<String> {
        if self.deviation.is_some() {
            return Vec::new();
        }
        let ids = |script: &Self| script.patches().cloned().collect::<Vec<_>>();
        let forgotten = match found {
            Made::Patch { id } => ids(self).into_iter().take_while(|patch| patch != id).collect(),
            _ => ids(self),
        };
        self.place += forgotten.len();
        match self.made.get(self.place) {
            Some(expected) if same(expected, found) => self.place += 1,
            Some(expected) => {
                let (expected, found) = (Doing::made(expected), Doing::made(found));
                self.deviation = Some(Deviation { place: self.place, expected, found });
            }
            // Whether there may be more is known when all of it is.
            None => {}
        }
        forgotten
    }

    /// Where it is, and what comes next.
    pub(super) fn next(&self) -> (usize, Doing) {
        let next = self.made.get(self.place);
        (self.place, next.map_or(Doing::Nothing, Doing::made))
    }

    /// How much of what was made is written; else where it is something else.
    pub(super) fn end(self, entries: &[Entry]) -> Result<usize, Deviation> {
        if let Some(deviation) = self.deviation {
            return Err(deviation);
        }
        let left = self.made[self.place..].iter();
        if let Some(expected) = left.clone().find(|made| !matches!(made, Made::Patch { .. })) {
            let expected = Doing::made(expected);
            return Err(Deviation { place: self.place, expected, found: Doing::Nothing });
        }
        let Some(more) = entries.get(self.place) else { return Ok(entries.len()) };
        if left.len() == 0 && self.place > 0 && cuts(entries).contains(&self.place) {
            return Ok(self.place);
        }
        let found = Doing::made(&more.made);
        Err(Deviation { place: self.place, expected: Doing::Nothing, found })
    }
}
