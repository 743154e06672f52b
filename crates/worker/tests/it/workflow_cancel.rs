//! Failure and cancellation of workflows, and their cleanup.

use std::pin::Pin;

use windlass_core::FailureClass;
use windlass_worker::Failure;
use windlass_worker::workflow::testing::WorkflowTest;
use windlass_worker::workflow::{Either, ExecutionState, StepError, Workflow, WorkflowDefinition};

use crate::workflow_cast::{cancel, charge, instance, made, pack, refund, seconds, turn};

async fn saga(ctx: Workflow, cents: u64) -> Result<u64, StepError> {
    let receipt = ctx.activity(charge, &cents).await?;
    match ctx.activity(pack, &cents).await {
        Ok(packed) => Ok(packed),
        Err(error) => {
            ctx.shielded().activity(refund, &receipt).await?;
            Err(error)
        }
    }
}

fn sold(cents: u64) -> Result<String, Failure> {
    Ok(format!("paid {cents}"))
}

#[tokio::test]
async fn a_failed_saga_is_compensated() {
    let test = WorkflowTest::new(saga, &5).activity(charge, sold);
    let test = test.activity(pack, |_| Err(Failure::permanent("sold out")));
    let test = test.activity(refund, |receipt: String| {
        assert_eq!(receipt, "paid 5");
        Ok(())
    });
    let tested = test.run().await.unwrap();
    let Err(ExecutionState::Failed(failure)) = &tested.result else { panic!("{tested:?}") };
    assert_eq!(failure.reason(), "`pack` failed (permanent): sold out");
    assert_eq!(failure.class(), FailureClass::Permanent);
    assert_eq!(made(tested.history())[2], "activity `refund` (step 3)");
}

#[tokio::test]
async fn a_cancelled_saga_is_compensated() {
    let test = WorkflowTest::new(saga, &5).activity(charge, sold);
    let test = test.activity(pack, Ok).mock_duration(seconds(100)).activity(refund, |_| Ok(()));
    let tested =
        test.cancel_at(seconds(7), "changed my mind").replay_every_turn().run().await.unwrap();
    assert_eq!(
        tested.result,
        Err(ExecutionState::Cancelled { reason: "changed my mind".to_owned() })
    );
    assert_eq!(tested.elapsed, seconds(7));
    let expected = [
        "activity `charge` (step 1)",
        "activity `pack` (step 2)",
        "cancel (step 2)",
        "activity `refund` (step 3)",
    ];
    assert_eq!(made(tested.history()), expected);
}

/// A failure of the cleanup is reported beside the reason.
#[tokio::test]
async fn a_failed_cleanup_is_reported() {
    let test = WorkflowTest::new(saga, &5).activity(charge, sold).activity(pack, Ok);
    let test = test.mock_duration(seconds(100)).cancel_at(seconds(7), "stop");
    let tested = test.activity(refund, |_| Err::<(), _>(Failure::permanent("bank away")));
    let tested = tested.run().await.unwrap();
    let reason = "stop; it ended with: `refund` failed (permanent): bank away".to_owned();
    assert_eq!(tested.result, Err(ExecutionState::Cancelled { reason }));
}

#[tokio::test]
async fn cancellation_ends_every_await_and_fails_later_ones() {
    async fn stubborn(ctx: Workflow, (): ()) -> Result<Vec<String>, Failure> {
        let sleep = ctx.sleep(seconds(100));
        let event = ctx.wait_signal::<()>("never");
        let (slept, received) = ctx.join((sleep, event)).await;
        let mut errors = vec![slept.unwrap_err(), received.unwrap_err()];
        errors.push(ctx.activity(charge, &1).await.unwrap_err());
        errors.push(ctx.local_activity("l", async || Ok::<_, Failure>(1)).await.unwrap_err());
        errors.push(ctx.wait_signal::<()>("never").await.unwrap_err());
        errors.push(ctx.signal("x", "y", &()).unwrap_err());
        errors.push(ctx.continue_as_new(&()).await.unwrap_err());
        ctx.shielded().sleep(seconds(5)).await?;
        Ok(errors.iter().map(ToString::to_string).collect())
    }
    let test = WorkflowTest::new(stubborn, &()).cancel_at(seconds(7), "enough");
    let tested = test.run().await.unwrap();
    let errors = tested.result.unwrap();
    assert_eq!(errors.len(), 7);
    assert!(errors.iter().all(|error| error == "cancelled: enough"), "{errors:?}");
    assert_eq!(tested.elapsed, seconds(12));
}

#[tokio::test]
async fn shielded_steps_are_not_cancelled() {
    async fn shielded(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        ctx.shielded().activity(pack, &3).await
    }
    let test = WorkflowTest::new(shielded, &()).activity(pack, Ok).mock_duration(seconds(60));
    let tested = test.cancel_at(seconds(7), "enough").run().await.unwrap();
    assert_eq!(tested.result, Ok(3));
    assert_eq!(tested.elapsed, seconds(60));
}

#[tokio::test]
async fn code_can_listen_for_its_cancellation() {
    async fn listening(ctx: Workflow, (): ()) -> Result<String, StepError> {
        let work = ctx.shielded();
        match ctx.select((work.sleep(seconds(60)), ctx.cancelled())).await {
            Either::First(_) => Ok("slept".to_owned()),
            Either::Second(reason) => Ok(reason),
        }
    }
    for (after, expected) in [(7, "enough"), (61, "slept")] {
        let test = WorkflowTest::new(listening, &()).cancel_at(seconds(after), "enough");
        assert_eq!(test.run().await.unwrap().result.as_deref(), Ok(expected));
    }
}

#[tokio::test]
async fn children_of_a_cancelled_workflow_are_cancelled() {
    async fn child(ctx: Workflow, (): ()) -> Result<(), StepError> {
        ctx.sleep(seconds(100)).await
    }
    async fn parent(ctx: Workflow, (): ()) -> Result<(), StepError> {
        ctx.child(child, &()).id("c").await
    }
    let test = WorkflowTest::new(parent, &()).workflow(child).cancel_at(seconds(1), "enough");
    let tested = test.run().await.unwrap();
    assert_eq!(tested.result, Err(ExecutionState::Cancelled { reason: "enough".to_owned() }));
    assert_eq!(made(tested.history()), ["child `child` (step 1)", "cancel (step 1)"]);
}

/// A cancellation that arrives with the end of an execution is left to the next.
#[test]
fn a_cancellation_is_not_lost_between_executions() {
    async fn ever(ctx: Workflow, (): ()) -> Result<(), StepError> {
        ctx.wait_signal::<()>("go").await?;
        ctx.continue_as_new(&()).await.map(|never| match never {})
    }
    let mut instance = instance(&WorkflowDefinition::of(ever).unwrap());
    turn(&mut instance, 0, Vec::new());
    let go = crate::workflow_cast::message("go", "null");
    let finished = turn(&mut instance, 1, vec![go, cancel("stop")]);
    assert!(matches!(finished.state, ExecutionState::ContinueAsNew { .. }));
    assert_eq!(finished.delivered, 1);
}

/// Every branch of a join is woken.
#[tokio::test]
async fn cancellation_wakes_all_futures_of_a_join() {
    type Branch<'b> = Pin<Box<dyn Future<Output = String> + Send + 'b>>;
    async fn many(ctx: Workflow, (): ()) -> Result<Vec<String>, StepError> {
        let event = async { ctx.wait_signal::<()>("never").await.unwrap_err().to_string() };
        let sleep = async { ctx.sleep(seconds(100)).await.unwrap_err().to_string() };
        let branches: Vec<Branch<'_>> =
            vec![Box::pin(event), Box::pin(sleep), Box::pin(ctx.cancelled())];
        Ok(ctx.join(branches).await)
    }
    let test = WorkflowTest::new(many, &()).cancel_at(seconds(1), "stop");
    let tested = test.run().await.unwrap();
    let expected = ["cancelled: stop", "cancelled: stop", "stop"].map(str::to_owned);
    assert_eq!(tested.result, Ok(expected.to_vec()));
}

/// The awaited step is cancelled before the cleanup starts, also if its future is not dropped.
#[tokio::test]
async fn awaited_steps_are_cancelled_before_cleanup_starts() {
    async fn not_dropped(ctx: Workflow, (): ()) -> Result<(), StepError> {
        let mut step = ctx.activity(pack, &1).start();
        let ended = (&mut step).await;
        ctx.shielded().sleep(seconds(1)).await?;
        ended.map(drop)
    }
    let test = WorkflowTest::new(not_dropped, &()).activity(pack, Ok).mock_duration(seconds(9));
    let tested = test.cancel_at(seconds(1), "stop").run().await.unwrap();
    assert_eq!(made(tested.history())[1..], ["cancel (step 1)", "timer (step 2)"]);
}
