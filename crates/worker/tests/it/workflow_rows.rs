//! Turns with more commands than one row can hold.

use windlass_core::TurnRecord;
use windlass_worker::Failure;
use windlass_worker::workflow::testing::{RecordedExecution, WorkflowTest, replay_check};
use windlass_worker::workflow::{
    COMMANDS_PER_ROW, ExecutionStart, ExecutionState, PlannedCommand, StepError, TurnPart,
    Workflow, WorkflowDefinition,
};

use crate::workflow_cast::{done, instance, json, made, message, turn};

async fn wide(ctx: Workflow, (): ()) -> Result<u64, StepError> {
    let count = ctx.wait_signal::<u64>("count").await?;
    ctx.set_status(format!("{count} at once"))?;
    let all = (0..count).map(|n| ctx.activity_named::<u64>("a", &n)).collect::<Vec<_>>();
    Ok(ctx.join(all).await.into_iter().sum::<Result<u64, _>>()? + ctx.random() % 2)
}

/// The rows of `wide` after the message `count`, including its first turn.
fn parts(count: u64) -> Vec<TurnPart> {
    let mut instance = instance(&WorkflowDefinition::of(wide).unwrap());
    let mut parts = turn(&mut instance, 0, Vec::new()).parts;
    parts.extend(turn(&mut instance, 1, vec![message("count", &count.to_string())]).parts);
    parts
}

fn recorded(parts: &[TurnPart]) -> RecordedExecution {
    let rows = parts.iter().map(|part| part.row.clone()).collect();
    RecordedExecution { start: ExecutionStart::new("w", 7), rows }
}

fn lengths<'r>(rows: impl IntoIterator<Item = &'r TurnRecord>) -> Vec<(usize, usize)> {
    rows.into_iter().map(|row| (row.inputs.len(), row.commands.len())).collect()
}

#[test]
fn a_large_turn_has_several_rows() {
    let parts = parts(2_500);
    let expected = [(0, 1), (1, 1_000), (0, 1_000), (0, 500)];
    assert_eq!(lengths(parts.iter().map(|part| &part.row)), expected);
    let commands: Vec<_> = parts.iter().map(|part| part.commands.len()).collect();
    assert_eq!(commands, [0, 1_000, 1_000, 501], "the status is in the last");
    assert!(
        matches!(&parts[3].commands[500], PlannedCommand::Status(status) if status == "2500 at once")
    );
    assert_eq!(replay_check(wide, &recorded(&parts)), Ok(()));
}

/// The process may die between the commits of one turn: the next worker writes the rest first.
#[test]
fn a_partly_committed_turn_is_completed() {
    let program = WorkflowDefinition::of(wide).unwrap();
    let whole = parts(2_500);
    for written in 2..=4 {
        let mut instance = recorded(&whole[..written]).replay(&program).unwrap();
        let idle = turn(&mut instance, 9, Vec::new());
        assert!(matches!(idle.state, ExecutionState::Waiting { count: 2_500, .. }));
        let mut rows = recorded(&whole[..written]);
        rows.rows.extend(idle.parts.iter().map(|part| part.row.clone()));
        assert_eq!(rows, recorded(&whole), "{written}");
        let commands =
            |parts: &[TurnPart]| parts.iter().map(|part| part.commands.len()).collect::<Vec<_>>();
        assert_eq!(commands(&idle.parts), commands(&whole[written..]), "{written}");

        let mut instance = recorded(&whole[..written]).replay(&program).unwrap();
        let finished = turn(&mut instance, 9, (2..2_502).map(|step| done(step, "2")).collect());
        assert_eq!(json(&finished.state).parse::<u64>().unwrap() / 2, 2_500);
        assert_eq!(finished.parts.len(), 5 - written, "the rest, and the row of the last turn");
        assert_eq!(finished.parts.last().unwrap().row.inputs.len(), 2_500);
    }
}

#[test]
fn a_row_that_is_exactly_full() {
    let parts = parts(COMMANDS_PER_ROW as u64);
    assert_eq!(lengths(parts.iter().map(|part| &part.row)), [(0, 1), (1, 1_000)]);
    let program = WorkflowDefinition::of(wide).unwrap();
    let mut instance = recorded(&parts).replay(&program).unwrap();
    assert_eq!(turn(&mut instance, 9, Vec::new()).parts.len(), 0, "nothing is left");
}

#[test]
fn rows_are_bounded_in_bytes() {
    async fn heavy(ctx: Workflow, (): ()) -> Result<(), StepError> {
        let input = "x".repeat(1_500_000);
        let all = (0..5).map(|_| ctx.activity_named::<()>("a", &input)).collect::<Vec<_>>();
        ctx.join(all).await.into_iter().collect()
    }
    let program = WorkflowDefinition::of(heavy).unwrap();
    let whole = turn(&mut instance(&program), 0, Vec::new()).parts;
    assert_eq!(lengths(whole.iter().map(|part| &part.row)), [(0, 2), (0, 2), (0, 1)]);
    for written in 1..=3 {
        let mut instance = recorded(&whole[..written]).replay(&program).unwrap();
        assert_eq!(turn(&mut instance, 1, Vec::new()).parts.len(), 3 - written);
    }
}

#[test]
fn a_deviation_is_located_in_its_row() {
    async fn other(ctx: Workflow, (): ()) -> Result<(), StepError> {
        let count = ctx.wait_signal::<u64>("count").await?;
        let name = |n| if n == 1_700 { "b" } else { "a" };
        let all = (0..count).map(|n| ctx.activity_named::<u64>(name(n), &n)).collect::<Vec<_>>();
        ctx.join(all).await;
        Ok(())
    }
    let found = replay_check(other, &recorded(&parts(2_500))).unwrap_err();
    assert_eq!((found.turn, found.position), (2, 701));
    // An activity beyond a complete turn is a deviation, not an uncommitted rest.
    async fn more(ctx: Workflow, (): ()) -> Result<(), StepError> {
        let count = ctx.wait_signal::<u64>("count").await?;
        let all = (0..=count).map(|n| ctx.activity_named::<u64>("a", &n)).collect::<Vec<_>>();
        ctx.join(all).await;
        Ok(())
    }
    let found = replay_check(more, &recorded(&parts(1_500))).unwrap_err();
    assert_eq!((found.turn, found.position, found.found.step()), (2, 501, Some(1_502)));
}

/// An endless series of local activities does not make an endless row.
#[tokio::test]
async fn rows_are_bounded_with_many_local_activities() {
    async fn counting(ctx: Workflow, size: usize) -> Result<usize, StepError> {
        let mut sum = 0;
        for n in 0..2_500 {
            let local = async move || Ok::<_, Failure>("x".repeat(if n < 5 { size } else { 1 }));
            sum += ctx.local_activity("one", local).await?.len();
        }
        Ok(sum)
    }
    for (size, rows) in [(1, [999, 1_000, 501]), (1_500_000, [3, 1_000, 1_000])] {
        let lived = WorkflowTest::new(counting, &size).run().await.unwrap();
        let found: Vec<_> = lived.history().iter().map(|row| row.inputs.len()).collect();
        assert_eq!(found[..3], rows);
        assert_eq!(lived.result, Ok(2_495 + 5 * size));
        let replayed = WorkflowTest::new(counting, &size).replay_every_turn().run().await.unwrap();
        assert_eq!(lived.history(), replayed.history());
    }
}

/// Those that run when a row is full continue, and their outcomes are in the next row.
#[tokio::test]
async fn rows_are_bounded_with_concurrent_local_activities() {
    async fn wide(ctx: Workflow, (): ()) -> Result<usize, StepError> {
        let one = || async { Ok::<_, Failure>("x".repeat(1_500_000)) };
        let all = (0..7).map(|_| ctx.local_activity("one", one)).collect::<Vec<_>>();
        let mut sum = 0;
        for text in ctx.join(all).await {
            sum += text?.len();
        }
        Ok(sum)
    }
    let lived = WorkflowTest::new(wide, &()).run().await.unwrap();
    assert_eq!(lengths(lived.history()), [(3, 7), (3, 0), (1, 0)]);
    assert_eq!(lived.result, Ok(7 * 1_500_000));
    let replayed = WorkflowTest::new(wide, &()).replay_every_turn().run().await.unwrap();
    assert_eq!(lived.history(), replayed.history());
}

/// The uncommitted part of a turn takes the branch of a change again.
#[test]
fn a_patch_in_the_uncommitted_part_of_a_turn() {
    async fn changed(ctx: Workflow, (): ()) -> Result<(), StepError> {
        let started: Vec<_> =
            (0..1_000).map(|n| ctx.activity_named::<()>("a", &n).start()).collect();
        let name = if ctx.patched("x for y") { "x" } else { "y" };
        ctx.activity_named::<()>(name, &()).await?;
        ctx.join(started).await.into_iter().collect()
    }
    let program = WorkflowDefinition::of(changed).unwrap();
    let whole = turn(&mut instance(&program), 0, Vec::new()).parts;
    assert_eq!(made(&recorded(&whole[1..]).rows), ["patch `x for y`", "activity `x` (step 1001)"]);
    let mut replayed = recorded(&whole[..1]).replay(&program).unwrap();
    let rest = turn(&mut replayed, 9, Vec::new()).parts;
    assert_eq!(recorded(&rest), recorded(&whole[1..]));
}
