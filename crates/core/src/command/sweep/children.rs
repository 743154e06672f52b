use crate::children::Children;
use crate::command::sweep::Sweepable;
use crate::command::sweep::run::due_range;
use crate::primitive::are_related_records_readable;
use crate::primitive::request_cancel;
use crate::task::Task;
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// How many children of one parent are cancelled at once.
const PAGE: usize = 64;

/// When to retry where none of them could be cancelled.
const RETRY_MS: u64 = 1_000;

/// When to re-check where the children left are workflows with a pending cancellation, or records
/// that this version cannot read.
const RECHECK_MS: u64 = 60_000;

const REASON: &str = "its parent has ended";

impl Sweepable for Children {
    /// Each of them is a page of tasks.
    const MAX_PER_SWEEP: usize = 4;

    fn due_at(&self) -> Option<Timestamp> {
        self.due_at
    }

    fn prefetch(&self, world: &mut World) {
        world.prefetch_scan(&Task::open_children(&self.tenant, &self.parent), PAGE);
        // Their due times change: the next due time of all is behind theirs.
        world.prefetch_scan(&due_range::<Task>(None), PAGE + 1);
    }

    fn sweep(&self, world: &mut World) -> Result<(), Halt> {
        sweep(world, self)
    }
}

/// Cancels a page of the open children of an ended parent. A workflow gets a cancellation request
/// and leaves the scanned index; any other task is cancelled. The child count, not the scan, tells
/// whether it was the last page.
fn sweep(world: &mut World, record: &Children) -> Result<(), Halt> {
    let page = world.scan::<Task>(&Task::open_children(&record.tenant, &record.parent), PAGE)?;
    page.iter().for_each(|child| child.prefetch(world));
    let cancelled = world.for_each_collecting(&page, |world, child| {
        let readable = are_related_records_readable(world, child)?;
        if readable {
            request_cancel(world, child, REASON)?;
        }
        Ok(readable)
    })?;
    let cancelled = cancelled.into_iter().filter(|cancelled| *cancelled).count();
    let key = Children::key_of(&record.tenant, &record.parent);
    let left = world.get::<Children>(&key)?.expect("a parent is retained while a child is open");
    let pause_ms = match cancelled {
        0 if page.is_empty() => RECHECK_MS,
        0 => RETRY_MS,
        _ => 0,
    };
    let again = world.now().plus_ms(pause_ms);
    let due_at = (left.open > 0).then_some(again);
    world.put::<Children>(Children { due_at, ..(*left).clone() });
    Ok(())
}
