use crate::children::Children;
use crate::command::{ClaimGranted, CommitTurn, Complete, Transition};
use crate::world::World;

/// Completes an activity and commits the next turn of its workflow, atomically.
///
/// For the worker that caches the workflow. It runs the turn speculatively, before the completion
/// is committed, under the epoch of the workflow's next lease. If the workflow was leased in
/// between, that epoch is taken and the commit is rejected.
#[derive(Clone, Debug)]
pub struct CompleteAndCommitTurn {
    pub complete: Complete,
    /// How the workflow is leased: for this commit only, unless there is more to do.
    pub claim: ClaimGranted,
    pub turn: CommitTurn,
}

impl CompleteAndCommitTurn {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.turn.check()?;
        let workflow = &self.turn.fence.task;
        world.prefetch(self.complete.fence.task.row_key());
        world.prefetch(Children::key_of(&workflow.tenant, &workflow.id));
        self.turn.prefetch(world);
        if let Some(outcome) = self.turn.earlier_outcome(world, Some(&self.claim.worker))? {
            return Ok(outcome);
        }
        self.complete.apply(world)?;
        self.claim.apply(world)?;
        self.turn.apply(world)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::command::{
        Claim, Create, NewTask, NewWorkflow, Outcome, SendMessages, TurnEnd, WorkflowCommand,
    };
    use crate::mailbox::Message;
    use crate::payload::Payload;
    use crate::record::Table;
    use crate::rejection::Rejection;
    use crate::task::Task;
    use crate::testing::{Stage, check_task, claim, fence, lane, message};

    fn turn(nth: u64, turn: u32, end: TurnEnd) -> CommitTurn {
        CommitTurn {
            fence: fence(nth),
            turn,
            row: Some(Payload::json("{}")),
            consumed: Vec::new(),
            commands: Vec::new(),
            next_step: 1,
            end,
            sticky_ms: Some(5_000),
            eager: Some(Claim::new("w")),
            metadata: None,
        }
    }

    fn activity(step: u64) -> WorkflowCommand {
        let payload = Some(Payload::json("1"));
        let task = NewTask { lane: lane(), payload, ..NewTask::new(format!("t/{step}"), "charge") };
        WorkflowCommand::Activity { step, task, eager: true }
    }

    /// A workflow that waits for its first activity, which this worker has leased.
    fn waiting() -> (Stage, Arc<Task>) {
        let mut stage = Stage::new();
        let workflow = Some(NewWorkflow::default());
        stage.must(Create::one(NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") }));
        stage.must(claim());
        let first =
            CommitTurn { commands: vec![activity(0)], ..turn(1, 0, TurnEnd::AwaitMessages) };
        let Outcome::TurnCommitted { mut claimed, .. } = stage.must(first) else {
            panic!("a turn")
        };
        (stage, claimed.pop().expect("it is leased with the turn"))
    }

    fn advance(activity: &Task, turn: CommitTurn) -> CompleteAndCommitTurn {
        let result = Some(Payload::json("42"));
        CompleteAndCommitTurn {
            complete: Complete { fence: activity.fence(), result },
            claim: ClaimGranted::new("t", "w"),
            turn: CommitTurn { consumed: vec![Message::of_step(0)], ..turn },
        }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    | | absent          | ! task_not_found    |
            waiting   | | waiting e0 a0   | ! stale_fence       |
            delayed   | | delayed e0 a0   | ! stale_fence       |
            granted   | | granted e0 a0   | ! stale_fence       |
            claimed   | | claimed e1 a0   | ! already_terminal  |
            active    | | active e1 a1    | ! already_terminal  |
            lease_expired    | | active e1 a1    | ! lease_expired     |
            completed | | completed e1 a1 | ! already_settled |
            failed    | | failed e1 a1    | ! already_settled |
            cancelled | | cancelled e1 a1 | ! already_terminal  |
            expired   | | expired e1 a1   | ! already_terminal  |
            suspended | | suspended e1 a1 | ! already_settled |
            resumable | | resumable e1 a1 | ! already_settled |
            waiting_children | | waiting_children e1 a1 | ! already_settled |
            blocked   | | blocked e0 a0   | ! stale_fence       |
            owned     | | owned e0 a0     | ! stale_fence       |
            ",
            |args| CompleteAndCommitTurn {
                complete: Complete { fence: args.fence(), result: None },
                claim: ClaimGranted::new("t", "w"),
                turn: CommitTurn { fence: args.fence(), ..turn(1, 0, TurnEnd::AwaitMessages) },
            },
        );
    }

    #[test]
    fn an_activity_ends_and_the_next_one_is_leased() {
        let (mut stage, first) = waiting();
        let commands = vec![activity(1)];
        let next = CommitTurn { commands, next_step: 2, ..turn(2, 1, TurnEnd::AwaitMessages) };
        let advance = advance(&first, next);
        let first = stage.must(advance.clone());
        assert_eq!(stage.must(advance), first, "a repeat gets the same response");
        let Outcome::TurnCommitted { claimed, lease_kept } = first else { panic!("it is a turn") };
        assert_eq!((claimed[0].id.as_str(), lease_kept), ("t/1", None));
        assert!(stage.task("t/0").is_none(), "it is deleted when it ends");
        let workflow = stage.task("t").expect("it exists");
        assert_eq!(workflow.lifecycle.public().as_str(), "suspended");
        assert_eq!(workflow.workflow.expect("it is one").turns, 2);
        assert_eq!(stage.tables.rows().filter(|row| row.key.table == Table::Message).count(), 0);
    }

    #[test]
    fn a_visible_message_keeps_the_lease_after_a_turn() {
        let (mut stage, first) = waiting();
        stage.must(SendMessages::one(message("go")));
        let advance = advance(&first, turn(2, 1, TurnEnd::AwaitMessages));
        let first = stage.must(advance.clone());
        assert_eq!(stage.must(advance.clone()), first, "a repeat gets the same response");
        let Outcome::TurnCommitted { lease_kept, .. } = first else { panic!("it is a turn") };
        assert_eq!(lease_kept.map(|task| task.fence()), Some(fence(2)));
        let other = CompleteAndCommitTurn { claim: ClaimGranted::new("t", "v"), ..advance };
        assert_eq!(stage.run(other), Err(Rejection::TaskNotFound), "w holds the lease");
        assert_eq!(stage.task("t").expect("it exists").lifecycle.public().as_str(), "active");
    }

    #[test]
    fn a_rejected_speculative_turn_changes_nothing() {
        let (mut stage, first) = waiting();
        let next = turn(2, 1, TurnEnd::AwaitMessages);
        let other = CompleteAndCommitTurn {
            claim: ClaimGranted::new("t", "v"),
            ..advance(&first, next.clone())
        };
        assert_eq!(stage.run(other), Err(Rejection::NotGranted), "it is sticky to another worker");
        let other = advance(&first, turn(2, 2, TurnEnd::AwaitMessages));
        assert_eq!(stage.run(other), Err(Rejection::TurnMismatch { turns: 1 }));
        let mut other = advance(&first, next.clone());
        other.turn.consumed = vec![Message::of_step(7)];
        let absent = Rejection::MessageNotFound { seq: Message::of_step(7) };
        assert_eq!(stage.run(other), Err(absent));
        stage.must(SendMessages::one(message("go")));
        stage.must(ClaimGranted::new("t", "w"));
        assert_eq!(stage.run(advance(&first, next.clone())), Err(Rejection::NotGranted));
        stage.must(CommitTurn { consumed: vec![1], ..turn(2, 1, TurnEnd::AwaitMessages) });
        let next = advance(&first, next);
        assert_eq!(stage.run(next), Err(Rejection::AlreadySettled));
        let state = |id| stage.task(id).expect("it exists").lifecycle.public().as_str();
        assert_eq!((state("t/0"), state("t")), ("active", "suspended"));
        stage.must(advance(&first, turn(3, 2, TurnEnd::Complete(None))));
    }
}
