use windlass_core::RecordedCommand;

use super::nondeterminism::{Deviation, ReplayStep, same};
use super::turn_part::{COMMANDS_PER_ROW, Entry, cuts};

/// The recorded commands of a turn, to compare with those of the replayed code.
#[derive(Debug)]
pub(super) struct ReplayCursor {
    made: Vec<RecordedCommand>,
    position: usize,
    /// The number of commands in its last row.
    last_row: usize,
    /// The first deviation of the code.
    deviation: Option<Deviation>,
}

impl ReplayCursor {
    pub(super) fn new(made: Vec<RecordedCommand>, last_row: usize) -> Self {
        Self { made, position: 0, last_row, deviation: None }
    }

    /// The patches recorded next. Code without a recorded patch always takes its branch.
    fn patches(&self) -> impl Iterator<Item = &String> {
        self.made[self.position..].iter().map_while(|made| match made {
            RecordedCommand::Patch { id } => Some(id),
            _ => None,
        })
    }

    /// Whether a patch applies. It does where nothing is recorded, in the rest of a turn that was
    /// committed in part.
    pub(super) fn is_patched(&self, id: &str) -> bool {
        let unwritten = self.position == self.made.len() && self.last_row == COMMANDS_PER_ROW;
        unwritten || self.patches().any(|patch| patch == id)
    }

    /// Advances over a command of the code. Returns recorded patches that the code skipped.
    pub(super) fn follow(&mut self, found: &RecordedCommand) -> Vec<String> {
        if self.deviation.is_some() {
            return Vec::new();
        }
        let ids = |cursor: &Self| cursor.patches().cloned().collect::<Vec<_>>();
        let forgotten = match found {
            RecordedCommand::Patch { id } => {
                ids(self).into_iter().take_while(|patch| patch != id).collect()
            }
            _ => ids(self),
        };
        self.position += forgotten.len();
        match self.made.get(self.position) {
            Some(expected) if same(expected, found) => self.position += 1,
            Some(expected) => {
                let (expected, found) = (ReplayStep::made(expected), ReplayStep::made(found));
                self.deviation = Some(Deviation { position: self.position, expected, found });
            }
            // `end` checks whether more commands are allowed.
            None => {}
        }
        forgotten
    }

    /// The position, and the command expected there.
    pub(super) fn next(&self) -> (usize, ReplayStep) {
        let next = self.made.get(self.position);
        (self.position, next.map_or(ReplayStep::Nothing, ReplayStep::made))
    }

    /// The number of entries that are recorded, or the first deviation.
    pub(super) fn end(self, entries: &[Entry]) -> Result<usize, Deviation> {
        if let Some(deviation) = self.deviation {
            return Err(deviation);
        }
        let left = self.made[self.position..].iter();
        if let Some(expected) =
            left.clone().find(|made| !matches!(made, RecordedCommand::Patch { .. }))
        {
            let expected = ReplayStep::made(expected);
            return Err(Deviation {
                position: self.position,
                expected,
                found: ReplayStep::Nothing,
            });
        }
        let Some(more) = entries.get(self.position) else { return Ok(entries.len()) };
        if left.len() == 0 && self.position > 0 && cuts(entries).contains(&self.position) {
            return Ok(self.position);
        }
        let found = ReplayStep::made(&more.made);
        Err(Deviation { position: self.position, expected: ReplayStep::Nothing, found })
    }
}
