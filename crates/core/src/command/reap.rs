use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::primitive::{forget_children, task};
use crate::rejection::Rejection;
use crate::task::{Task, TaskKey};
use crate::world::{Halt, World};

/// Forgets an ended task and its payloads before its retention is over. One with an open child is
/// kept: the child is still to be counted.
#[derive(Clone, Debug)]
pub struct Reap {
    pub task: TaskKey,
}

impl Reap {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        let known = task(world, &self.task)?;
        if known.lifecycle.ended_at().is_none() {
            return Err(Rejection::NotEnded.into());
        }
        reap(world, &known)?;
        Ok(Outcome::Reaped)
    }
}

pub(super) fn reap(world: &mut World, task: &Task) -> Result<(), Halt> {
    forget_children(world, task)?;
    world.emit(Event::of_task(task, world.now(), Change::Reaped));
    world.outlive(task.epoch);
    world.drop_payloads(task.payload_keys());
    world.remove(&task.task_key().row_key());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Complete, Create, Decided, NewTask, decide};
    use crate::payload::Payload;
    use crate::testing::{Stage, check_task, claim, fence, key, new_task};
    use crate::world::Hints;

    #[test]
    fn table() {
        check_task(
            "
            absent    | | absent        | ! task_not_found |
            waiting   | | waiting e0 a0 | ! not_ended      |
            delayed   | | delayed e0 a0 | ! not_ended      |
            granted   | | granted e0 a0 | ! not_ended      |
            claimed   | | claimed e1 a0 | ! not_ended      |
            active    | | active e1 a1  | ! not_ended      |
            lapsed    | | active e1 a1  | ! not_ended      |
            completed | | absent        | reaped           | reaped
            failed    | | absent        | reaped           | reaped
            cancelled | | absent        | reaped           | reaped
            expired   | | absent        | reaped           | reaped
            waiting_children | | waiting_children e1 a1 | ! not_ended |
            gated     | | blocked e0 a0 | ! not_ended |
            reserved  | | reserved e0 a0 | ! not_ended |
            ",
            |_| Reap { task: key("t") },
        );
    }

    #[test]
    fn a_payload_that_goes_and_comes_again_in_one_batch_stays() {
        let new = |text| NewTask { payload: Some(Payload::json(text)), ..new_task("t") };
        let mut stage = Stage::with_new_task("completed", new("old"));
        let commands: [Command; 2] =
            [Reap { task: key("t") }.into(), Create::one(new("fresh")).into()];
        let mut world = World::new(stage.now, Hints::default());
        for command in &commands {
            while decide(&mut world, command) == Decided::Parked {
                let wanted = world.wanted().unwrap();
                let loaded = stage.shelf.load(&wanted);
                world.learn(&wanted, loaded);
            }
        }
        stage.shelf.commit(&world.finish().0).unwrap();
        let input = stage.task("t").unwrap().input_key().unwrap();
        assert_eq!(stage.shelf.payload(&input), Some(&Payload::json("fresh")));
    }

    #[test]
    fn a_fence_of_an_earlier_task_of_the_same_id_is_stale() {
        let mut stage = Stage::with_task("cancelled");
        stage.must(Reap { task: key("t") });
        stage.later(1);
        stage.must(Create::one(new_task("t")));
        stage.must(claim());
        let late = stage.run(Complete { fence: fence(1), result: None });
        assert_eq!(late.unwrap_err().code(), "stale");
    }

    #[test]
    fn payloads_go_with_their_task() {
        let new = NewTask { payload: Some(Payload::json("1")), ..new_task("t") };
        let mut stage = Stage::with_new_task("active", new);
        stage.must(Complete { fence: fence(1), result: Some(Payload::json("2")) });
        assert_eq!(stage.shelf.payloads().count(), 2);
        stage.must(Reap { task: key("t") });
        assert_eq!(stage.shelf.payloads().count(), 0);
    }
}
