use crate::children::Children;
use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::limits;
use crate::primitive::{delete_children_record, purge, require_task};
use crate::rejection::Rejection;
use crate::task::{Task, TaskKey};
use crate::world::{Halt, World};

/// Deletes an ended task and its payloads before its retention ends. A task with an open child is
/// retained, because the child is still to be counted. So is a child of an open workflow, which may
/// not have read the result yet.
#[derive(Clone, Debug)]
pub struct DeleteTask {
    pub task: TaskKey,
}

impl DeleteTask {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        let task = require_task(world, &self.task)?;
        if task.lifecycle.ended_at().is_none() {
            return Err(Rejection::NotTerminal.into());
        }
        if is_awaited(world, &task)? {
            return Err(Rejection::ParentOpen.into());
        }
        // As much as a mailbox holds: a delete by an operator is done in one commit.
        let all = limits::MAILBOX_MESSAGES.max(limits::WAITPOINTS_PER_TASK) as usize + 2;
        delete_task(world, &task, all)?;
        Ok(Outcome::TaskDeleted)
    }
}

/// Whether an open workflow may still read the result of this one.
fn is_awaited(world: &mut World, task: &Task) -> Result<bool, Halt> {
    let awaited = task.step.is_some() && task.workflow.is_some();
    let Some(parent) = task.parent.as_ref().filter(|_| awaited) else { return Ok(false) };
    let siblings = world.get::<Children>(&Children::key_of(&task.tenant, parent))?;
    Ok(siblings.is_some_and(|siblings| !siblings.closed))
}

/// Deletes a task once its other records are purged. Until then it stays, and is due.
pub(super) fn delete_task(world: &mut World, task: &Task, page: usize) -> Result<(), Halt> {
    if !purge(world, task, page)? {
        let left = world.get::<Task>(&task.task_key().row_key())?;
        let left = left.expect("it exists until it is deleted");
        world.put::<Task>(Task { due_at: Some(world.now()), ..(*left).clone() });
        return Ok(());
    }
    delete_children_record(world, task)?;
    world.emit(Event::of_task(task, world.now(), Change::Deleted));
    world.raise_epoch_floor(task.epoch);
    world.drop_payloads(task.payload_keys());
    world.remove(&task.task_key().row_key());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Command, Complete, Create, CreateWaitpoint, Decided, Delay, NewMessage, NewTask,
        NewWaitpoint, SendMessages, Sweep, decide,
    };
    use crate::name::Tenant;
    use crate::payload::Payload;
    use crate::record::Table;
    use crate::testing::{Stage, check_task, claim, fence, key, message, new_task};
    use crate::world::Hints;

    #[test]
    fn table() {
        check_task(
            "
            absent    | | absent        | ! task_not_found |
            waiting   | | waiting e0 a0 | ! not_terminal   |
            delayed   | | delayed e0 a0 | ! not_terminal   |
            granted   | | granted e0 a0 | ! not_terminal   |
            claimed   | | claimed e1 a0 | ! not_terminal   |
            active    | | active e1 a1  | ! not_terminal   |
            lease_expired    | | active e1 a1  | ! not_terminal   |
            completed | | absent        | deleted          | deleted
            failed    | | absent        | deleted          | deleted
            cancelled | | absent        | deleted          | deleted
            expired   | | absent        | deleted          | deleted
            waiting_children | | waiting_children e1 a1 | ! not_terminal |
            blocked   | | blocked e0 a0 | ! not_terminal |
            owned     | | owned e0 a0    | ! not_terminal |
            suspended | | suspended e1 a1 | ! not_terminal |
            resumable | | resumable e1 a1 | ! not_terminal |
            ",
            |_| DeleteTask { task: key("t") },
        );
    }

    #[test]
    fn a_payload_deleted_and_recreated_in_one_batch_exists() {
        let new = |text| NewTask { payload: Some(Payload::json(text)), ..new_task("t") };
        let mut stage = Stage::with_new_task("completed", new("old"));
        let commands: [Command; 2] =
            [DeleteTask { task: key("t") }.into(), Create::one(new("fresh")).into()];
        let mut world = World::new(stage.now, Hints::default());
        for command in &commands {
            while decide(&mut world, command) == Decided::Parked {
                let wanted = world.take_load_request().unwrap();
                let loaded = stage.tables.load(&wanted);
                world.absorb(&wanted, loaded);
            }
        }
        stage.tables.commit(&world.finish().0).unwrap();
        let input = stage.task("t").unwrap().input_key().unwrap();
        assert_eq!(stage.tables.payload(&input), Some(&Payload::json("fresh")));
    }

    #[test]
    fn a_fence_of_an_earlier_task_of_the_same_id_is_stale() {
        let mut stage = Stage::with_task("cancelled");
        stage.must(DeleteTask { task: key("t") });
        stage.later(1);
        stage.must(Create::one(new_task("t")));
        stage.must(claim());
        let late = stage.run(Complete { fence: fence(1), result: None });
        assert_eq!(late.unwrap_err().code(), "stale_fence");
    }

    #[test]
    fn payloads_are_deleted_with_their_task() {
        let new = NewTask { payload: Some(Payload::json("1")), ..new_task("t") };
        let mut stage = Stage::with_new_task("active", new);
        stage.must(Complete { fence: fence(1), result: Some(Payload::json("2")) });
        assert_eq!(stage.tables.payloads().count(), 2);
        stage.must(DeleteTask { task: key("t") });
        assert_eq!(stage.tables.payloads().count(), 0);
    }

    /// An ended task with this many messages and waitpoints, and no retention.
    fn crowded(messages: usize, waitpoints: usize) -> Stage {
        let mut new = new_task("t");
        new.policy.retention_ms = 0;
        let mut stage = Stage::with_new_task("active", new);
        stage.seed();
        let (tenant, payload) = (Tenant::default(), Some(Payload::json("1")));
        let message = NewMessage { payload, delay: Delay::For { ms: 60_000 }, ..message("a") };
        for chunk in vec![message; messages].chunks(500) {
            stage.must(SendMessages { tenant: tenant.clone(), messages: chunk.to_vec() });
        }
        for n in 0..waitpoints {
            let waitpoint = NewWaitpoint { id: n.to_string().into(), ttl_ms: 60_000 };
            stage.must(CreateWaitpoint { task: key("t"), epoch: None, waitpoint });
        }
        stage.must(Complete { fence: fence(1), result: None });
        stage
    }

    fn left(stage: &Stage, table: Table) -> usize {
        stage.tables.rows().filter(|row| row.key.table == table).count()
    }

    #[test]
    fn the_sweep_purges_a_mailbox_page_by_page() {
        for (messages, waitpoints, sweeps) in
            [(0, 1, 1), (255, 0, 1), (256, 0, 2), (600, 300, 3), (1_000, 1_000, 4)]
        {
            let mut stage = crowded(messages, waitpoints);
            for sweep in 1..=sweeps {
                assert!(stage.task("t").is_some(), "{messages}/{waitpoints}: deleted too early");
                let Outcome::Swept { next_due, .. } = stage.must(Sweep::default()) else {
                    panic!()
                };
                let more = next_due == Some(stage.now);
                assert_eq!(more, sweep < sweeps, "{messages}/{waitpoints} after {sweep} sweeps");
                assert_eq!(left(&stage, Table::Message), messages.saturating_sub(sweep * 256));
                assert_eq!(left(&stage, Table::Waitpoint), waitpoints.saturating_sub(sweep * 256));
            }
            assert_eq!((stage.task("t"), stage.mailbox()), (None, None));
            assert_eq!(stage.tables.payloads().count(), 0);
        }
    }

    #[test]
    fn an_operator_deletes_a_full_mailbox_in_one_commit() {
        let mut stage = crowded(1_000, 1_000);
        stage.must(DeleteTask { task: key("t") });
        assert_eq!((left(&stage, Table::Message), left(&stage, Table::Waitpoint)), (0, 0));
        assert_eq!((stage.task("t"), stage.mailbox()), (None, None));
    }

    #[test]
    fn a_replay_retains_the_mailbox() {
        let mut stage = crowded(3, 2);
        stage.must(crate::command::Replay { task: key("t"), execution: 0 });
        let mailbox = stage.mailbox().unwrap();
        assert_eq!((mailbox.messages, mailbox.waitpoints, left(&stage, Table::Message)), (3, 2, 3));
    }
}
