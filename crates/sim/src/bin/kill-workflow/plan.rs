//! The plan of the workflow, shared by its code and its judge.

/// The number of parallel activities in a fan.
const WIDE: u32 = 8;

/// A piece of the workflow. Activities have unique numbers from zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    One(u32),
    /// In parallel.
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

/// The result of an activity.
pub(crate) fn worth(step: u32) -> u64 {
    u64::from(step) * 7 + 1
}
