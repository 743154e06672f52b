use crate::command::cancel::open_task;
use crate::command::{Outcome, Transition};
use crate::primitive::ask_to_end;
use crate::task::TaskKey;
use crate::world::World;

/// Asks a workflow to end. Its code is told, and may clean up before it does. Any other task is
/// cancelled at once.
#[derive(Clone, Debug)]
pub struct RequestCancel {
    pub task: TaskKey,
    pub reason: String,
}

impl RequestCancel {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        if let Some(open) = open_task(world, &self.task, &self.reason)? {
            ask_to_end(world, &open, &self.reason)?;
        }
        Ok(Outcome::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_task, key};

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
            lapsed    |      | cancelled e1 a1 | cancelled        | cancelled
            completed |      | completed e1 a1 | ! ended          |
            failed    |      | failed e1 a1    | ! ended          |
            cancelled |      | cancelled e1 a1 | cancelled        |
            expired   |      | expired e1 a1   | ! ended          |
            waiting_children | | cancelled e1 a1 | cancelled | cancelled
            gated     |      | cancelled e0 a0 | cancelled        | cancelled
            reserved  |      | cancelled e0 a0 | cancelled        | cancelled
            suspended | | cancelled e1 a1 | cancelled | cancelled
            resumable | | cancelled e1 a1 | cancelled | cancelled
            ",
            |args| {
                let reason = if args.has("long") { "x".repeat(5_000) } else { "stop".into() };
                RequestCancel { task: key("t"), reason }
            },
        );
    }
}
