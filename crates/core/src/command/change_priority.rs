use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::limits;
use crate::primitive::require_task;
use crate::rejection::Rejection;
use crate::task::{Task, TaskKey};
use crate::world::World;

/// Changes the priority of a task within its lane, from the next claim on.
#[derive(Clone, Debug)]
pub struct ChangePriority {
    pub task: TaskKey,
    pub priority: i32,
}

impl ChangePriority {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::PRIORITY.check(self.priority)?;
        let task = require_task(world, &self.task)?;
        if task.lifecycle.ended_at().is_some() {
            return Err(Rejection::AlreadyTerminal { state: task.lifecycle.public() }.into());
        }
        if task.priority != self.priority {
            let priority = self.priority;
            let change = Change::PriorityChanged { priority };
            world.emit(Event::of_task(&task, world.now(), change));
            world.put::<Task>(Task { priority, ..(*task).clone() });
        }
        Ok(Outcome::PriorityChanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Create;
    use crate::testing::{Stage, check_task, claim, key, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    |            | absent          | ! task_not_found |
            waiting   |            | waiting e0 a0   | changed          | priority_changed
            waiting   | to=0       | waiting e0 a0   | changed          |
            waiting   | to=2000000 | waiting e0 a0   | ! invalid        |
            delayed   |            | delayed e0 a0   | changed          | priority_changed
            granted   |            | granted e0 a0   | changed          | priority_changed
            claimed   |            | claimed e1 a0   | changed          | priority_changed
            active    |            | active e1 a1    | changed          | priority_changed
            lease_expired    |            | active e1 a1    | changed          | priority_changed
            completed |            | completed e1 a1 | ! already_terminal |
            failed    |            | failed e1 a1    | ! already_terminal |
            cancelled |            | cancelled e1 a1 | ! already_terminal |
            expired   |            | expired e1 a1   | ! already_terminal |
            waiting_children | | waiting_children e1 a1 | changed | priority_changed
            blocked   |            | blocked e0 a0   | changed          | priority_changed
            owned     |            | owned e0 a0     | changed          | priority_changed
            suspended | | suspended e1 a1 | changed | priority_changed
            resumable | | resumable e1 a1 | changed | priority_changed
            ",
            |args| ChangePriority { task: key("t"), priority: args.number("to", 5) },
        );
    }

    #[test]
    fn a_priority_change_moves_the_task_in_its_lane() {
        let mut stage = Stage::new();
        for id in ["a", "b"] {
            stage.must(Create::one(new_task(id)));
        }
        stage.must(ChangePriority { task: key("b"), priority: 1 });
        let Outcome::Claimed(tasks) = stage.must(claim()) else { panic!() };
        assert_eq!((tasks[0].id.as_str(), tasks[0].priority), ("b", 1));
    }
}
