use std::sync::Arc;

use crate::command::{Outcome, Transition};
use crate::limits;
use crate::primitive::{cancel, require_task};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, Task, TaskKey};
use crate::world::{Halt, World};

/// Cancels a task for an operator, in any open state. Later writes of its holder are rejected.
#[derive(Clone, Debug)]
pub struct Cancel {
    pub task: TaskKey,
    pub reason: String,
}

impl Cancel {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        if let Some(open) = open_task(world, &self.task, &self.reason)? {
            cancel(world, &open, &self.reason)?;
        }
        Ok(Outcome::Cancelled)
    }
}

/// A task that can be cancelled for this reason; none if it is cancelled already.
pub(super) fn open_task(
    world: &mut World,
    key: &TaskKey,
    reason: &str,
) -> Result<Option<Arc<Task>>, Halt> {
    limits::REASON.check_prose(reason)?;
    let task = require_task(world, key)?;
    match &task.lifecycle {
        Lifecycle::Cancelled { .. } => Ok(None),
        other if other.ended_at().is_some() => {
            Err(Rejection::AlreadyTerminal { state: other.public() }.into())
        }
        _ => Ok(Some(task)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Complete;
    use crate::task::Fence;
    use crate::testing::{Stage, check_task, key};

    #[test]
    fn table() {
        check_task(
            "
            absent    |      | absent          | ! task_not_found |
            waiting   |      | cancelled e0 a0 | cancelled        | cancelled
            waiting   | long | waiting e0 a0   | ! invalid        |
            delayed   |      | cancelled e0 a0 | cancelled        | cancelled
            granted   |      | cancelled e0 a0 | cancelled        | cancelled
            claimed   |      | cancelled e1 a0 | cancelled        | cancelled
            active    |      | cancelled e1 a1 | cancelled        | cancelled
            lease_expired    |      | cancelled e1 a1 | cancelled        | cancelled
            completed |      | completed e1 a1 | ! already_terminal |
            failed    |      | failed e1 a1    | ! already_terminal |
            cancelled |      | cancelled e1 a1 | cancelled        |
            expired   |      | expired e1 a1   | ! already_terminal |
            waiting_children | | cancelled e1 a1 | cancelled | cancelled
            blocked   |      | cancelled e0 a0 | cancelled        | cancelled
            owned     |      | cancelled e0 a0 | cancelled        | cancelled
            suspended | | cancelled e1 a1 | cancelled | cancelled
            resumable | | cancelled e1 a1 | cancelled | cancelled
            ",
            |args| {
                let reason = if args.has("long") { "x".repeat(5_000) } else { "stop".into() };
                Cancel { task: key("t"), reason }
            },
        );
    }

    #[test]
    fn an_invalid_id_is_rejected_before_it_is_looked_up() {
        for id in ["", "a\0b", &"x".repeat(256)] {
            let rejected = Stage::new().run(Cancel { task: key(id), reason: "".into() });
            assert_eq!(rejected.unwrap_err().code(), "invalid", "{id:?}");
            let fence = Fence { task: key(id), epoch: 1 };
            let rejected = Stage::new().run(Complete { fence, result: None });
            assert_eq!(rejected.unwrap_err().code(), "invalid", "{id:?}");
        }
    }
}
