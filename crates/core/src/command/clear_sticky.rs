use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::limits;
use crate::name::{TaskId, Tenant, WorkerId};
use crate::primitive::{are_related_records_readable, transition_to};
use crate::task::{Lifecycle, Task, TaskKey};
use crate::world::{Halt, World, unless_quarantined};

/// Clears the sticky assignment of these workflows to `worker`, for example when it drains. Turns
/// granted to it become claimable by any worker. Workflows that are sticky to another worker are
/// left unchanged.
#[derive(Clone, Debug)]
pub struct ClearSticky {
    pub tenant: Tenant,
    pub worker: WorkerId,
    pub workflows: Vec<TaskId>,
}

impl ClearSticky {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::WORKER.check(self.worker.as_str())?;
        limits::CLEAR_STICKY.check(self.workflows.len())?;
        for id in &self.workflows {
            limits::TASK_ID.check(id.as_str())?;
            world.prefetch(TaskKey::new(&self.tenant, id).row_key());
        }
        let cleared =
            world.for_each_collecting(&self.workflows, |world, id| self.clear(world, id))?;
        let workflows = cleared.into_iter().filter(|cleared| *cleared).count();
        Ok(Outcome::StickyCleared { workflows })
    }

    fn clear(&self, world: &mut World, id: &TaskId) -> Result<bool, Halt> {
        let current = world.get::<Task>(&TaskKey::new(&self.tenant, id).row_key());
        let Some(current) = unless_quarantined(current)?.flatten() else { return Ok(false) };
        let sticky = current.workflow.as_ref().and_then(|workflow| workflow.sticky.as_ref());
        let is_open = current.lifecycle.ended_at().is_none();
        if !is_open || sticky.is_none_or(|sticky| sticky.worker != self.worker) {
            return Ok(false);
        }
        let mut task = (*current).clone();
        if let Some(workflow) = &mut task.workflow {
            workflow.sticky = None;
        }
        match &current.lifecycle {
            Lifecycle::Granted { readiness, worker, until: Some(_) } if *worker == self.worker => {
                if !are_related_records_readable(world, &current)? {
                    return Ok(false);
                }
                task.lifecycle = Lifecycle::Waiting(readiness.clone());
                let change = Change::GrantReleased { worker: worker.clone() };
                world.emit(Event::of_task(&task, world.now(), change));
                transition_to(world, task)?;
            }
            _ => world.put::<Task>(task),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, CommitTurn, Create, NewTask, NewWorkflow, SendMessages, TurnEnd};
    use crate::payload::Payload;
    use crate::testing::{Stage, check_task, claim, fence, lane, message};

    fn clear(worker: &str, workflows: &[&str]) -> ClearSticky {
        let workflows = workflows.iter().map(TaskId::new).collect();
        ClearSticky { tenant: Tenant::default(), worker: worker.into(), workflows }
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | cleared 0 |
            waiting   |         | waiting e0 a0   | cleared 0 |
            waiting   | worker= | waiting e0 a0   | ! invalid |
            delayed   |         | delayed e0 a0   | cleared 0 |
            granted   |         | granted e0 a0   | cleared 0 |
            claimed   |         | claimed e1 a0   | cleared 0 |
            active    |         | active e1 a1    | cleared 0 |
            lease_expired    |         | active e1 a1    | cleared 0 |
            completed |         | completed e1 a1 | cleared 0 |
            failed    |         | failed e1 a1    | cleared 0 |
            cancelled |         | cancelled e1 a1 | cleared 0 |
            expired   |         | expired e1 a1   | cleared 0 |
            blocked   |         | blocked e0 a0   | cleared 0 |
            owned     |         | owned e0 a0     | cleared 0 |
            suspended |         | suspended e1 a1 | cleared 0 |
            resumable |         | resumable e1 a1 | cleared 0 |
            waiting_children |  | waiting_children e1 a1 | cleared 0 |
            ",
            |args| clear(&args.text("worker", "w"), &["t"]),
        );
    }

    /// A suspended workflow that is sticky to `w` and waits for messages.
    fn stuck() -> Stage {
        let mut stage = Stage::new();
        let workflow = Some(NewWorkflow::default());
        stage.must(Create::one(NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") }));
        stage.must(claim());
        stage.must(CommitTurn {
            fence: fence(1),
            turn: 0,
            row: Some(Payload::json("{}")),
            consumed: Vec::new(),
            commands: Vec::new(),
            next_step: 0,
            end: TurnEnd::AwaitMessages,
            sticky_ms: Some(5_000),
            eager: None,
            metadata: None,
        });
        stage
    }

    fn taken_by(stage: &mut Stage, worker: &str) -> usize {
        let claim = Claim { worker: worker.into(), grants: true, ..claim() };
        match stage.must(claim) {
            Outcome::Claimed(tasks) => tasks.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn workflows_of_a_drained_worker_are_claimable_by_others() {
        for mail_first in [false, true] {
            let mut stage = stuck();
            if mail_first {
                stage.must(SendMessages::one(message("go")));
                assert_eq!(taken_by(&mut stage, "v"), 0, "it is granted to w");
            }
            assert_eq!(stage.must(clear("w", &["t"])), Outcome::StickyCleared { workflows: 1 });
            assert_eq!(stage.must(clear("w", &["t"])), Outcome::StickyCleared { workflows: 0 });
            if !mail_first {
                stage.must(SendMessages::one(message("go")));
            }
            assert_eq!(taken_by(&mut stage, "v"), 1, "mail first: {mail_first}");
        }
    }

    #[test]
    fn workflows_sticky_to_another_worker_are_unchanged() {
        let mut stage = stuck();
        stage.must(clear("v", &["t", "other"]));
        stage.must(SendMessages::one(message("go")));
        assert_eq!((taken_by(&mut stage, "v"), taken_by(&mut stage, "w")), (0, 1));
    }
}
