//! Stored workflows outlive the version of Windlass that wrote them. A failure here is a change of
//! format: it needs code that reads the old format, not another golden file.

use windlass_core::RecordedCommand;
use windlass_worker::Failure;
use windlass_worker::workflow::testing::{RecordedExecution, WorkflowTest};
use windlass_worker::workflow::{
    Either, ExecutionStart, ExecutionState, StepError, Workflow, WorkflowDefinition,
};

use crate::workflow_cast::{json, seconds};

const HISTORY: &str = include_str!("golden/history.json");

/// Has one command of each kind.
async fn everything(ctx: Workflow, n: u64) -> Result<(u64, u64, String), StepError> {
    assert!(ctx.patched("p"));
    let paid: u64 = ctx.activity_named("charge", &n).await?;
    let price = ctx.local_activity("price", async || Ok::<u64, Failure>(5)).await?;
    let limit = ctx.sleep(seconds(60));
    let Either::Second(word) = ctx.select((limit, ctx.wait_signal::<u64>("go"))).await else {
        return Err(StepError::TimedOut);
    };
    let shipped: u64 = ctx.child_named("ship", &paid).await?;
    ctx.start_detached_named("mail", &()).await?;
    ctx.signal("desk", "done", &shipped)?;
    ctx.sleep(seconds(1)).await?;
    Ok((paid + price + word? + shipped, ctx.random(), ctx.uuid()))
}

#[test]
fn a_recorded_history_is_replayed() {
    let recorded: RecordedExecution = serde_json::from_str(HISTORY).unwrap();
    let written = serde_json::to_string(&recorded).unwrap();
    assert_eq!(written, HISTORY.trim_end());
    let instance = recorded.replay(&WorkflowDefinition::of(everything).unwrap()).unwrap();
    let expected = r#"[25,7191089600892374487,"044c3cd7-f43c-461c-a698-4080bab12a02"]"#;
    assert_eq!(json(&instance.state()), expected);
}

/// The code writes exactly the golden file.
#[tokio::test]
async fn the_recorded_history_is_stable() {
    let test = WorkflowTest::new(everything, &7)
        .seed(7)
        .activity_named("charge", |n: u64| Ok(n + 1))
        .mock_duration(seconds(2))
        .activity_named("ship", |n: u64| Ok(n + 1))
        .activity_named("mail", |(): ()| Ok(()))
        .signal_at(seconds(10), "go", &3);
    let tested = test.run().await.unwrap();
    let [recorded] = &tested.executions[..] else { panic!("{tested:?}") };
    assert_eq!(serde_json::to_string(recorded).unwrap(), HISTORY.trim_end());
    let made = recorded.rows.iter().flat_map(|row| &row.commands);
    let cancels =
        made.clone().filter(|made| matches!(made, RecordedCommand::Cancel { .. })).count();
    assert_eq!((made.count(), cancels), (10, 1));
}

/// Workflow code that branches on random numbers must take the same branch when a later version replays it.
#[test]
fn random_numbers_of_a_seed_are_stable() {
    async fn draws(ctx: Workflow, (): ()) -> Result<(Vec<u64>, String), Failure> {
        Ok(((0..4).map(|_| ctx.random()).collect(), ctx.uuid()))
    }
    let recorded = RecordedExecution { start: ExecutionStart::new("w", 7), rows: Vec::new() };
    let mut instance = recorded.replay(&WorkflowDefinition::of(draws).unwrap()).unwrap();
    instance.turn(windlass_core::Timestamp::default(), Vec::new()).unwrap();
    assert!(matches!(instance.state(), ExecutionState::Completed(_)));
    let expected = concat!(
        "[[7191089600892374487,309689372594955804",
        r#",16616101746815609346,10753165928301472203],"#,
        r#""73d33b66-6a1e-41da-bfda-be86cbbeaa11"]"#
    );
    assert_eq!(json(&instance.state()), expected);
}
