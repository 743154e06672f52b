use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::primitive::{require_task, transition_to};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, Task, TaskKey};
use crate::world::World;

/// Restarts an ended task as its next execution, with the payload it was created with.
///
/// `execution` names the one that ended, so that a repeated request replays once. Workflows are
/// rejected: they have executions instead, each with an input and a history.
#[derive(Clone, Debug)]
pub struct Replay {
    pub task: TaskKey,
    pub execution: u32,
}

impl Replay {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        let now = world.now();
        let task = require_task(world, &self.task)?;
        if task.workflow.is_some() {
            return Err(match task.lifecycle.ended_at() {
                Some(_) => Rejection::WorkflowNotReplayable.into(),
                None => Rejection::NotTerminal.into(),
            });
        }
        if task.execution == self.execution.saturating_add(1) {
            return Ok(Outcome::Replayed { execution: task.execution });
        }
        if task.execution != self.execution {
            return Err(Rejection::ExecutionMismatch { current: task.execution }.into());
        }
        if task.lifecycle.ended_at().is_none() {
            return Err(Rejection::NotTerminal.into());
        }
        let max = task.policy.max_replays;
        if task.execution >= max {
            return Err(Rejection::ReplaysExhausted { max }.into());
        }
        let execution = task.execution + 1;
        world.emit(Event::of_task(&task, now, Change::Replayed { execution }));
        let task = Task {
            execution,
            attempts: 0,
            lost_leases: 0,
            started_at: now,
            deadline: task.restarted_deadline(now),
            lifecycle: Lifecycle::waiting(now),
            resumption: None,
            ..(*task).clone()
        };
        transition_to(world, task)?;
        Ok(Outcome::Replayed { execution })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Cancel, Claim, Complete, Create, NewTask, Sweep};
    use crate::payload::Payload;
    use crate::testing::{Stage, check_task, claim, fence, key, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    |      | absent          | ! task_not_found   |
            waiting   |      | waiting e0 a0   | ! not_terminal     |
            delayed   |      | delayed e0 a0   | ! not_terminal     |
            granted   |      | granted e0 a0   | ! not_terminal     |
            claimed   |      | claimed e1 a0   | ! not_terminal     |
            active    |      | active e1 a1    | ! not_terminal     |
            lease_expired    |      | active e1 a1    | ! not_terminal     |
            completed |      | waiting e1 a0   | execution 1       | replayed
            completed | of=1 | completed e1 a1 | ! execution_mismatch |
            failed    |      | waiting e1 a0   | execution 1       | replayed
            cancelled |      | waiting e1 a0   | execution 1       | replayed
            expired   |      | waiting e1 a0   | execution 1       | replayed
            waiting_children | | waiting_children e1 a1 | ! not_terminal |
            blocked   | | blocked e0 a0 | ! not_terminal |
            owned     | | owned e0 a0    | ! not_terminal |
            suspended | | suspended e1 a1 | ! not_terminal |
            resumable | | resumable e1 a1 | ! not_terminal |
            ",
            |args| Replay { task: key("t"), execution: args.number("of", 0) },
        );
    }

    #[test]
    fn asking_twice_replays_once() {
        let mut stage = Stage::with_task("failed");
        let replay = Replay { task: key("t"), execution: 0 };
        assert_eq!(stage.must(replay.clone()), Outcome::Replayed { execution: 1 });
        assert_eq!(stage.must(replay.clone()), Outcome::Replayed { execution: 1 });
        let far = Replay { execution: u32::MAX, ..replay };
        assert_eq!(stage.run(far), Err(Rejection::ExecutionMismatch { current: 1 }));
    }

    #[test]
    fn a_workflow_cannot_be_replayed() {
        let workflow = Some(crate::command::NewWorkflow::default());
        let mut stage = Stage::new();
        stage.must(Create::one(NewTask { workflow, ..new_task("t") }));
        let replay = |execution| Replay { task: key("t"), execution };
        assert_eq!(stage.run(replay(0)), Err(Rejection::NotTerminal));
        stage.must(Cancel { task: key("t"), reason: String::new() });
        for execution in [0, u32::MAX] {
            assert_eq!(stage.run(replay(execution)), Err(Rejection::WorkflowNotReplayable));
        }
    }

    #[test]
    fn each_execution_counts_its_own_lost_leases() {
        let mut new = new_task("t");
        new.policy.max_lost_leases = 1;
        let mut stage = Stage::with_new_task("waiting", new);
        for _ in 0..2 {
            stage.must(Claim { begin: false, ..claim() });
            stage.later(30_000);
            stage.must(Sweep::default());
        }
        assert_eq!(stage.task("t").unwrap().lifecycle.public().as_str(), "failed");
        stage.must(Replay { task: key("t"), execution: 0 });
        assert_eq!(stage.task("t").unwrap().lost_leases, 0);
    }

    #[test]
    fn replays_are_limited() {
        let mut new = new_task("t");
        new.policy.max_replays = 1;
        let mut stage = Stage::with_new_task("failed", new);
        stage.must(Replay { task: key("t"), execution: 0 });
        stage.must(claim());
        stage.must(Complete { fence: fence(2), result: None });
        let again = stage.run(Replay { task: key("t"), execution: 1 });
        assert_eq!(again, Err(Rejection::ReplaysExhausted { max: 1 }));
    }

    #[test]
    fn each_execution_has_its_own_result_and_deadline() {
        let new = NewTask { deadline_ms: Some(100_000), ..new_task("t") };
        let mut stage = Stage::with_new_task("active", new);
        let complete =
            |nth, text| Complete { fence: fence(nth), result: Some(Payload::json(text)) };
        stage.must(complete(1, "first"));
        let first = stage.task("t").unwrap().result_key().unwrap();
        stage.later(90_000);
        stage.must(Replay { task: key("t"), execution: 0 });
        assert_eq!(stage.task("t").unwrap().result_key(), None);
        assert_eq!(stage.task("t").unwrap().started_at, stage.now);
        assert_eq!(stage.task("t").unwrap().deadline, Some(stage.now.plus_ms(100_000)));
        stage.must(claim());
        stage.must(complete(2, "second"));
        let second = stage.task("t").unwrap().result_key().unwrap();
        assert_eq!(stage.tables.payload(&first), Some(&Payload::json("first")));
        assert_eq!(stage.tables.payload(&second), Some(&Payload::json("second")));
    }
}
