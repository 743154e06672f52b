//! What the workflow does, so that its code and its judge know the same.

/// So many activities are side by side where there are several.
const WIDE: u32 = 8;

/// A piece of the workflow. Activities have numbers from zero, and each has one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    One(u32),
    /// Side by side.
    Fan(Vec<u32>),
    /// A timer, and then an activity.
    Nap(u32),
    /// An activity beside a timer that does not fire, and is cancelled.
    Timed(u32),
    /// A call to the bank in the turn itself, and then an activity.
    Call(u32),
}

pub(crate) fn blocks(steps: u32) -> Vec<Block> {
    let (mut blocks, mut next) = (Vec::new(), 0);
    while next < steps {
        let block = match blocks.len() % 12 {
            3 | 9 => Block::Fan((next..steps.min(next + WIDE)).collect()),
            5 => Block::Nap(next),
            7 => Block::Timed(next),
            1 | 10 => Block::Call(next),
            _ => Block::One(next),
        };
        next += u32::try_from(block.steps().len()).expect("a block is small");
        blocks.push(block);
    }
    blocks
}

impl Block {
    pub(crate) fn steps(&self) -> Vec<u32> {
        match self {
            Block::Fan(steps) => steps.clone(),
            Block::One(step) | Block::Nap(step) | Block::Timed(step) | Block::Call(step) => {
                vec![*step]
            }
        }
    }
}

/// Whether an activity calls the bank. All others are plain.
pub(crate) fn pays(step: u32) -> bool {
    step.is_multiple_of(3)
}

/// The order of the call of an activity.
pub(crate) fn order(step: u32) -> String {
    format!("activity {step}")
}

/// The order of a call in the turn before an activity.
pub(crate) fn turn_order(step: u32) -> String {
    format!("turn {step}")
}

/// What an activity gives.
pub(crate) fn worth(step: u32) -> u64 {
    u64::from(step) * 7 + 1
}
