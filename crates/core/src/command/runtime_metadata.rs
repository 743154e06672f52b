use crate::command::commit_turn::{pin, start_over};
use crate::event::{Change, Event};
use crate::limits;
use crate::rejection::Rejection;
use crate::task::Task;
use crate::world::{Halt, World};

/// Turn metadata of an external runtime, which defines the contents of the history and numbers its
/// executions and steps itself.
#[derive(Clone, Debug, Default)]
pub struct RuntimeMetadata {
    /// The execution of the turn. One that is later than the current execution starts with it.
    pub execution: u32,
    /// The number of the first step of the turn, if it has any: it must be unused.
    pub first_step: Option<u64>,
    /// An opaque text that is stored as the metadata of this execution.
    pub text: String,
    /// The version of the runtime that the next turns need.
    pub version: Option<String>,
    /// Distinguishes two turns that are otherwise identical.
    pub turn_id: String,
}

impl RuntimeMetadata {
    pub(super) fn check(&self) -> Result<(), Rejection> {
        limits::RUNTIME_METADATA.check_prose(&self.text)
    }

    pub(super) fn stored(&self) -> Option<String> {
        (!self.text.is_empty()).then(|| self.text.clone())
    }

    /// The workflow in the execution of this turn.
    pub(super) fn prepare(&self, world: &mut World, current: &Task) -> Result<Task, Halt> {
        let mut task = current.clone();
        if self.execution < task.execution {
            return Err(Rejection::ExecutionMismatch { current: task.execution }.into());
        }
        if self.execution > task.execution {
            start_over(world, &mut task, None, None, None)?;
            task.execution = self.execution;
            let change = Change::ContinuedAsNew { execution: task.execution };
            world.emit(Event::of_task(&task, world.now(), change));
        }
        let Some(workflow) = &task.workflow else { return Err(Rejection::NotAWorkflow.into()) };
        if self.first_step.is_some_and(|first| first < workflow.next_step) {
            return Err(Rejection::Conflict.into());
        }
        if let Some(version) = &self.version {
            pin(&mut task, version)?;
        }
        Ok(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Claim, CommitTurn, Create, NewTask, NewWorkflow, Outcome, SendMessages, TurnEnd,
    };
    use crate::execution::Execution;
    use crate::name::Tenant;
    use crate::payload::Payload;
    use crate::task::{VersionRange, WorkerCapabilities};
    use crate::testing::{Stage, claim, fence, lane, message};

    fn turn(nth: u64, turn: u32, metadata: RuntimeMetadata) -> CommitTurn {
        CommitTurn {
            fence: fence(nth),
            turn,
            row: Some(Payload::json("{}")),
            consumed: Vec::new(),
            commands: Vec::new(),
            next_step: metadata.first_step.map_or(0, |first| first + 1),
            end: TurnEnd::Yield,
            sticky_ms: None,
            eager: None,
            metadata: Some(Box::new(metadata)),
        }
    }

    fn started() -> Stage {
        let mut stage = Stage::new();
        let workflow = Some(NewWorkflow::default());
        let new = NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") };
        stage.must(Create::one(new));
        stage.must(claim());
        stage
    }

    fn again(stage: &mut Stage, nth: u64) {
        stage.must(SendMessages::one(message("go")));
        stage.must(claim());
        assert_eq!(stage.task("t").unwrap().fence(), fence(nth));
    }

    #[test]
    fn a_later_execution_starts_with_its_first_turn() {
        let mut stage = started();
        let with_text =
            |text: &str| RuntimeMetadata { text: text.into(), ..RuntimeMetadata::default() };
        stage.must(turn(1, 0, with_text("one")));
        again(&mut stage, 2);
        let next = RuntimeMetadata { execution: 1, ..with_text("two") };
        assert_eq!(stage.run(turn(2, 1, next.clone())).unwrap_err().code(), "turn_mismatch");
        stage.must(turn(2, 0, next));
        let task = stage.task("t").unwrap();
        let present = task.workflow.as_ref().unwrap();
        assert_eq!((task.execution, present.turns), (1, 1));
        assert_eq!(present.metadata.as_deref(), Some("two"));
        let key = Execution::key_of(&Tenant::default(), &"t".into(), 0);
        let past = stage.record::<Execution>(&key).expect("it is retained");
        assert_eq!((past.turns, past.metadata.as_deref()), (1, Some("one")));
        assert!(stage.tables.payload(&past.turn_key(0)).is_some());
        assert!(stage.tables.events_after(0).any(|entry| entry.name == "continued_as_new"));
        stage.must(claim());
        let back = stage.run(turn(3, 1, with_text("one"))).unwrap_err();
        assert_eq!(back, Rejection::ExecutionMismatch { current: 1 });
    }

    #[test]
    fn step_numbers_are_unique_and_the_turn_id_distinguishes_turns() {
        let mut stage = started();
        let step = |first, turn_id: &str| RuntimeMetadata {
            first_step: Some(first),
            turn_id: turn_id.into(),
            ..RuntimeMetadata::default()
        };
        stage.must(turn(1, 0, step(4, "a")));
        stage.must(turn(1, 0, step(4, "a")));
        let other = stage.run(turn(1, 0, step(4, "b"))).unwrap_err();
        assert_eq!(other, Rejection::AlreadySettled);
        again(&mut stage, 2);
        assert_eq!(stage.run(turn(2, 1, step(4, "c"))), Err(Rejection::Conflict));
        stage.must(turn(2, 1, step(5, "c")));
    }

    #[test]
    fn only_workers_with_its_version_claim_the_next_turn() {
        let mut stage = started();
        let version = Some("1.2.3".to_owned());
        stage.must(turn(1, 0, RuntimeMetadata { version, ..RuntimeMetadata::default() }));
        stage.must(SendMessages::one(message("go")));
        let of = |min: &str, max: &str| {
            let range = VersionRange { kind: "order".into(), min: min.into(), max: max.into() };
            Claim {
                capabilities: WorkerCapabilities {
                    versions: vec![range],
                    ..WorkerCapabilities::default()
                },
                ..claim()
            }
        };
        let found = |stage: &mut Stage, claim: Claim| match stage.must(claim) {
            Outcome::Claimed(tasks) => tasks.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(found(&mut stage, claim()), 0);
        assert_eq!(found(&mut stage, of("1.2.4", "2.0.0")), 0);
        assert_eq!(found(&mut stage, of("0.0.0", "1.2.2")), 0);
        assert!(stage.run(of("one", "two")).is_err());
        assert_eq!(found(&mut stage, of("1.2.3", "1.2.3")), 1);
    }
}
