use crate::command::cancel::open_task;
use crate::command::{Outcome, Transition};
use crate::primitive::request_cancel;
use crate::task::TaskKey;
use crate::world::World;

/// Requests the cancellation of a workflow. Its code is notified, and may clean up first. Any other
/// task is cancelled at once, and so is an unleased workflow before its first turn, unless it has
/// messages.
#[derive(Clone, Debug)]
pub struct RequestCancel {
    pub task: TaskKey,
    pub reason: String,
}

impl RequestCancel {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        if let Some(open) = open_task(world, &self.task, &self.reason)? {
            request_cancel(world, &open, &self.reason)?;
        }
        Ok(Outcome::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        CommitTurn, Create, Delay, NewTask, NewWorkflow, SendMessages, Sweep, TurnEnd,
        WorkflowCommand,
    };
    use crate::event::Change;
    use crate::payload::Payload;
    use crate::task::FailureClass;
    use crate::testing::{Stage, check_task, claim, fence, key, lane, message};

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
                RequestCancel { task: key("t"), reason }
            },
        );
    }

    fn workflow(id: &str) -> NewTask {
        let workflow = Some(NewWorkflow::default());
        NewTask { lane: lane(), workflow, ..NewTask::new(id, "order") }
    }

    fn turn(end: TurnEnd) -> CommitTurn {
        CommitTurn {
            fence: fence(1),
            turn: 0,
            row: Some(Payload::json("{}")),
            consumed: Vec::new(),
            commands: Vec::new(),
            next_step: 0,
            end,
            sticky_ms: None,
            eager: None,
            metadata: None,
        }
    }

    fn ask(stage: &mut Stage) -> &'static str {
        stage.must(RequestCancel { task: key("t"), reason: "stop".into() });
        state(stage, "t")
    }

    fn state(stage: &Stage, id: &str) -> &'static str {
        stage.task(id).expect("it exists").lifecycle.public().as_str()
    }

    #[test]
    fn a_workflow_that_never_ran_is_cancelled_at_once() {
        let later = Delay::For { ms: 60_000 };
        for new in [workflow("t"), NewTask { delay: later, ..workflow("t") }] {
            let mut stage = Stage::new();
            stage.must(Create::one(new));
            assert_eq!(ask(&mut stage), "cancelled");
        }
    }

    /// Its messages are for its code, however often cancellation is requested.
    #[test]
    fn a_workflow_with_messages_is_notified() {
        let mut stage = Stage::new();
        stage.must(Create::one(workflow("t")));
        stage.must(SendMessages::one(message("go")));
        for _ in 0..2 {
            assert_eq!(ask(&mut stage), "waiting");
        }
    }

    #[test]
    fn a_workflow_that_has_run_is_notified() {
        let over = || TurnEnd::ContinueAsNew { input: None, version: None, carried: None };
        for (end, expected) in [
            (None, "active"),
            (Some(TurnEnd::AwaitMessages), "resumable"),
            (Some(over()), "resumable"),
        ] {
            let mut stage = Stage::new();
            stage.must(Create::one(workflow("t")));
            stage.must(claim());
            end.into_iter().for_each(|end| drop(stage.must(turn(end))));
            assert_eq!(ask(&mut stage), expected);
        }
    }

    #[test]
    fn a_worker_lost_before_the_first_turn_does_not_delay_cancellation() {
        let mut stage = Stage::new();
        stage.must(Create::one(workflow("t")));
        stage.must(claim());
        assert_eq!(ask(&mut stage), "active");
        stage.later(3_600_000);
        stage.must(Sweep::default());
        assert_eq!(ask(&mut stage), "cancelled");
    }

    #[test]
    fn a_child_that_never_ran_is_cancelled_with_its_parent() {
        let mut stage = Stage::new();
        stage.must(Create::one(workflow("t")));
        stage.must(claim());
        let child = NewTask { lane: "unclaimed".into(), ..workflow("t/0") };
        let commands = vec![WorkflowCommand::Child { step: 0, task: child }];
        let end = TurnEnd::Cancel { reason: "stop".into() };
        stage.must(CommitTurn { commands, next_step: 1, ..turn(end) });
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "t/0"), "cancelled");
    }

    #[test]
    fn the_cancel_reason_of_a_child_is_true_for_every_end_of_its_parent() {
        let class = FailureClass::Permanent;
        for end in [
            TurnEnd::Complete(None),
            TurnEnd::Fail { class, reason: "no".into() },
            TurnEnd::Cancel { reason: "stop".into() },
        ] {
            let mut stage = Stage::new();
            stage.must(Create::one(workflow("t")));
            stage.must(claim());
            let task = NewTask::new("t/0", "charge");
            let commands = vec![WorkflowCommand::Activity { step: 0, task, eager: false }];
            stage.must(CommitTurn { commands, next_step: 1, ..turn(end) });
            stage.must(Sweep::default());
            let last = stage.tables.events_after(0).last().and_then(|entry| entry.change());
            let reason = "its parent has ended".into();
            assert_eq!(last, Some(Change::Cancelled { reason }));
        }
    }
}
