use crate::command::{Outcome, Transition};
use crate::execution::Execution;
use crate::primitive::{PURGE_PAGE, delete_execution, require_task};
use crate::rejection::Rejection;
use crate::task::TaskKey;
use crate::time::Timestamp;
use crate::world::World;

/// How many executions are scanned at once.
const SCAN_PAGE: usize = 64;

/// Deletes past executions of a workflow before their retention ends: the oldest first, a page at a
/// time. The current execution stays, in whatever state it is.
#[derive(Clone, Debug)]
pub struct PruneExecutions {
    pub task: TaskKey,
    /// How many past executions are retained.
    pub keep_last: u32,
    /// Only executions that ended before this time.
    pub before: Option<Timestamp>,
}

impl PruneExecutions {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        let task = require_task(world, &self.task)?;
        if task.workflow.is_none() {
            return Err(Rejection::NotAWorkflow.into());
        }
        let end = task.execution.saturating_sub(self.keep_last);
        let is_prunable = |execution: &Execution| {
            execution.number < end && self.before.is_none_or(|before| execution.ended_at < before)
        };
        let range = Execution::of_task(&task.tenant, &task.id);
        let page = world.scan::<Execution>(&range, SCAN_PAGE)?;
        let old: Vec<_> = page.iter().take_while(|execution| is_prunable(execution)).collect();
        let (mut pruned, mut budget) = (0, u32::try_from(PURGE_PAGE).unwrap_or(u32::MAX));
        for execution in &old {
            if budget == 0 || !delete_execution(world, execution, &mut budget) {
                return Ok(Outcome::Pruned { pruned, more: true });
            }
            pruned += 1;
        }
        Ok(Outcome::Pruned { pruned, more: old.len() == SCAN_PAGE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{CommitTurn, Create, NewTask, NewWorkflow, TurnEnd};
    use crate::payload::Payload;
    use crate::record::{StoredRecord, read_row};
    use crate::testing::{Stage, check_task, claim, fence, key, lane};

    fn prune(keep_last: u32, before: Option<Timestamp>) -> PruneExecutions {
        PruneExecutions { task: key("t"), keep_last, before }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    | | absent          | ! task_not_found |
            waiting   | | waiting e0 a0   | ! not_a_workflow |
            delayed   | | delayed e0 a0   | ! not_a_workflow |
            granted   | | granted e0 a0   | ! not_a_workflow |
            claimed   | | claimed e1 a0   | ! not_a_workflow |
            active    | | active e1 a1    | ! not_a_workflow |
            lease_expired    | | active e1 a1    | ! not_a_workflow |
            completed | | completed e1 a1 | ! not_a_workflow |
            failed    | | failed e1 a1    | ! not_a_workflow |
            cancelled | | cancelled e1 a1 | ! not_a_workflow |
            expired   | | expired e1 a1   | ! not_a_workflow |
            waiting_children | | waiting_children e1 a1 | ! not_a_workflow |
            blocked   | | blocked e0 a0   | ! not_a_workflow |
            owned     | | owned e0 a0     | ! not_a_workflow |
            suspended | | suspended e1 a1 | ! not_a_workflow |
            resumable | | resumable e1 a1 | ! not_a_workflow |
            ",
            |_| prune(0, None),
        );
    }

    fn turn(nth: u64, turn: u32, end: TurnEnd) -> CommitTurn {
        CommitTurn {
            fence: fence(nth),
            turn,
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

    /// A workflow after past executions with this many rows each, one second apart.
    fn continued(rows: &[u32]) -> Stage {
        let mut stage = Stage::new();
        let (payload, workflow) = (Some(Payload::json("7")), Some(NewWorkflow::default()));
        stage.must(Create::one(NewTask {
            lane: lane(),
            payload,
            workflow,
            ..NewTask::new("t", "order")
        }));
        for (rows, nth) in rows.iter().zip(1..) {
            stage.must(claim());
            for row in 0..rows - 1 {
                stage.must(turn(nth, row, TurnEnd::MoreParts));
            }
            let (input, carried) = (Some(Payload::json("8")), Some(Payload::json("[]")));
            let over = TurnEnd::ContinueAsNew { input, version: None, carried };
            stage.must(turn(nth, rows - 1, over));
            stage.later(1_000);
        }
        stage
    }

    fn left(stage: &Stage) -> Vec<u32> {
        let rows = stage.tables.rows().filter(|row| row.key.table == Execution::TABLE);
        let read = rows.map(|row| read_row::<Execution>(row.schema, &row.body));
        read.map(|execution| execution.expect("it can be read").number).collect()
    }

    #[test]
    fn the_last_and_the_late_executions_are_retained() {
        let start = continued(&[]).now;
        let rows: [(u32, Option<u64>, &[u32]); 7] = [
            (0, None, &[]),
            (1, None, &[4]),
            (9, None, &[0, 1, 2, 3, 4]),
            (0, Some(0), &[0, 1, 2, 3, 4]),
            (0, Some(2_000), &[2, 3, 4]),
            (4, Some(2_000), &[1, 2, 3, 4]),
            (0, Some(60_000), &[]),
        ];
        for (keep_last, before, stay) in rows {
            let mut stage = continued(&[2; 5]);
            let before = before.map(|ms| start.plus_ms(ms));
            let pruned = 5 - stay.len();
            let outcome = stage.must(prune(keep_last, before));
            assert_eq!(outcome, Outcome::Pruned { pruned, more: false }, "{keep_last} {before:?}");
            assert_eq!(left(&stage), stay, "{keep_last} {before:?}");
            let present = stage.task("t").unwrap();
            assert!(stage.tables.payload(&present.input_key().unwrap()).is_some());
            // Two rows, an input, and except in the first the carried payload.
            let first = usize::from(stay.contains(&0));
            assert_eq!(stage.tables.payloads().count(), 4 * stay.len() - first + 2);
        }
    }

    #[test]
    fn long_executions_are_deleted_page_by_page() {
        let mut stage = continued(&[600, 1, 1]);
        let mut counts = Vec::new();
        loop {
            let Outcome::Pruned { pruned, more } = stage.must(prune(0, None)) else { panic!() };
            counts.push(pruned);
            if !more {
                break;
            }
        }
        assert_eq!(counts, [0, 0, 3]);
        assert_eq!(left(&stage), Vec::<u32>::new());
        assert_eq!(stage.tables.payloads().count(), 2, "those of the current execution");
    }
}
