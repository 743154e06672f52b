//! Messages to a workflow.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use windlass_worker::workflow::testing::{TestFailure, WorkflowTest};
use windlass_worker::workflow::{ExecutionState, StepError, Workflow, WorkflowDefinition};

use crate::workflow_cast::{instance, json, made, message, seconds, turn};

async fn approval(ctx: Workflow, wait: u64) -> Result<String, StepError> {
    ctx.sleep(seconds(10)).await?;
    ctx.wait_signal::<String>("approved").timeout(seconds(wait)).await
}

#[tokio::test]
async fn a_message_may_arrive_before_or_after_its_wait() {
    for (comes, takes) in [(0, 10), (5, 10), (15, 15)] {
        let test = WorkflowTest::new(approval, &100);
        let test = test.signal_at(seconds(comes), "approved", &"Ada".to_owned());
        let tested = test.run().await.unwrap();
        assert_eq!(tested.result.as_deref(), Ok("Ada"));
        assert_eq!(tested.elapsed, seconds(takes));
        let cancels = made(tested.history()).contains(&"cancel (step 3)".to_owned());
        assert_eq!(cancels, comes == 15, "no timer is needed for a message that has arrived");
    }
}

#[tokio::test]
async fn a_wait_for_a_message_times_out() {
    let test = WorkflowTest::new(approval, &5).signal_at(seconds(99), "approved", &());
    let tested = test.run().await.unwrap();
    let Err(ExecutionState::Failed(failure)) = &tested.result else { panic!("{tested:?}") };
    assert_eq!(failure.reason(), "the wait timed out");
    assert_eq!(tested.elapsed, seconds(15));
}

#[tokio::test]
async fn a_stuck_workflow_names_what_it_waits_for() {
    async fn waiting(ctx: Workflow, (): ()) -> Result<(), StepError> {
        ctx.wait_signal("go").await
    }
    let stuck = WorkflowTest::new(waiting, &()).run().await.unwrap_err();
    assert_eq!(stuck, TestFailure::Stuck { waits: vec!["message `go`".to_owned()] });
    let other = WorkflowTest::new(waiting, &()).signal_at(seconds(1), "gone", &());
    let stuck = other.run().await.unwrap_err().to_string();
    assert_eq!(stuck, "no input is scheduled, and the workflow waits for message `go`");
}

#[tokio::test]
async fn a_message_that_does_not_decode_fails_the_await() {
    async fn number(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        ctx.wait_signal("n").await
    }
    let test = WorkflowTest::new(number, &()).signal_at(seconds(1), "n", &"one");
    let tested = test.run().await.unwrap();
    let Err(ExecutionState::Failed(failure)) = &tested.result else { panic!("{tested:?}") };
    assert!(failure.reason().starts_with("the value of `n` does not decode"), "{failure}");
}

#[tokio::test]
async fn the_first_message_goes_to_the_first_wait() {
    async fn two(ctx: Workflow, (): ()) -> Result<(u64, u64), StepError> {
        let (a, b) = ctx.join((ctx.wait_signal("n"), ctx.wait_signal("n"))).await;
        Ok((a?, b?))
    }
    let test = WorkflowTest::new(two, &()).signal_at(seconds(1), "n", &1);
    let tested = test.signal_at(seconds(2), "n", &2).run().await.unwrap();
    assert_eq!(tested.result, Ok((1, 2)));
}

#[tokio::test]
async fn a_queue_preserves_its_order() {
    async fn sum(ctx: Workflow, count: u64) -> Result<Vec<u64>, StepError> {
        let queue = ctx.signals::<u64>("jobs");
        let mut read = Vec::new();
        for _ in 0..count {
            read.push(queue.next().await?);
            ctx.sleep(seconds(2)).await?;
        }
        Ok(read)
    }
    let mut test = WorkflowTest::new(sum, &9).replay_every_turn();
    for n in 0..9 {
        test = test.signal_at(seconds(n), "jobs", &n).signal_at(seconds(n), "other", &n);
    }
    let tested = test.run().await.unwrap();
    assert_eq!(tested.result, Ok((0..9).collect()));
}

/// A wait that loses a race leaves its message to the next, also when it was the first to wait.
#[test]
fn a_dropped_wait_consumes_no_message() {
    async fn racing(ctx: Workflow, (): ()) -> Result<(u64, u64), StepError> {
        let lost = ctx.wait_signal::<u64>("n");
        let tick = ctx.wait_signal::<()>("tick");
        let _ = ctx.select((tick, lost)).await;
        let (a, b) = ctx.join((ctx.wait_signal("n"), ctx.wait_signal("n"))).await;
        Ok((a?, b?))
    }
    let mut instance = instance(&WorkflowDefinition::of(racing).unwrap());
    turn(&mut instance, 0, Vec::new());
    let inputs = vec![message("tick", "null"), message("n", "1"), message("n", "2")];
    let finished = turn(&mut instance, 1, inputs);
    assert_eq!(json(&finished.state), "[1,2]");
}

async fn collecting(ctx: Workflow, read: Vec<u64>) -> Result<Vec<u64>, StepError> {
    let mut read = read;
    if read.len() >= 3 {
        assert_eq!(ctx.get_value::<u32>("executions")?, Some(ctx.info().execution));
        return Ok(read);
    }
    ctx.set_value("executions", &(ctx.info().execution + 1))?;
    let abandoned = ctx.sleep(seconds(1_000)).start();
    ctx.sleep(seconds(1)).await?;
    read.push(ctx.signals("jobs").next().await?);
    let rejected = ctx.continue_as_new(&read).await;
    drop(abandoned);
    rejected.map(|never| match never {})
}

#[tokio::test]
async fn unread_messages_are_carried_over() {
    let mut test = WorkflowTest::new(collecting, &Vec::new()).replay_every_turn();
    for n in 1..=3 {
        test = test.signal_at(seconds(0), "jobs", &n);
    }
    let tested = test.run().await.unwrap();
    assert_eq!(tested.result, Ok(vec![1, 2, 3]));
    let carried: Vec<_> = tested.executions.iter().map(|e| e.start.carried.len()).collect();
    assert_eq!(carried, [0, 2, 1, 0]);
    let first: Vec<_> = tested.executions.iter().map(|e| e.start.first_step).collect();
    assert_eq!(first, [1, 4, 7, 10], "numbers are not reused");
    let made = made(&tested.executions[0].rows);
    assert_eq!(made.last().unwrap(), "cancel (step 1)", "open steps are cancelled");
}

#[test]
fn more_messages_than_can_be_carried_are_not_lost() {
    async fn full(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        ctx.wait_signal::<()>("go").await?;
        let rejected = ctx.continue_as_new(&()).await.unwrap_err();
        assert!(rejected.to_string().contains("101 messages are unread, 100"), "{rejected}");
        let first = ctx.wait_signal::<u64>("n").await?;
        ctx.continue_as_new(&first).await.map(|never| match never {})
    }
    let mut instance = instance(&WorkflowDefinition::of(full).unwrap());
    turn(&mut instance, 0, Vec::new());
    let mut inputs: Vec<_> = (0..101).map(|n| message("n", &n.to_string())).collect();
    inputs.extend([message("go", "null"), message("n", "101")]);
    let finished = turn(&mut instance, 1, inputs);
    let ExecutionState::ContinueAsNew { carried, .. } = finished.state else { panic!() };
    assert_eq!(carried.len(), 100);
    assert_eq!(carried[0].payload.as_ref().unwrap().0.bytes.as_ref(), b"1");
    assert_eq!(finished.delivered, 102, "the last one stays in the mailbox");
}

/// A hundred messages may be larger together than an execution can carry over.
#[test]
fn more_bytes_than_can_be_carried_are_not_lost() {
    async fn heavy(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        ctx.wait_signal::<()>("go").await?;
        let rejected = ctx.continue_as_new(&()).await.unwrap_err();
        assert!(rejected.to_string().contains("bytes, 4194304 at most are carried"), "{rejected}");
        ctx.wait_signal::<String>("large").await?;
        ctx.continue_as_new(&()).await.map(|never| match never {})
    }
    let mut instance = instance(&WorkflowDefinition::of(heavy).unwrap());
    turn(&mut instance, 0, Vec::new());
    let large = format!("\"{}\"", "x".repeat(250 * 1_024));
    let mut inputs: Vec<_> = (0..17).map(|_| message("large", &large)).collect();
    inputs.push(message("go", "null"));
    let finished = turn(&mut instance, 1, inputs);
    let ExecutionState::ContinueAsNew { carried, .. } = finished.state else { panic!() };
    assert_eq!(carried.len(), 16);
}

/// Values count as well: 150 of 64 KiB are more than 4 MiB.
#[test]
fn values_that_cannot_be_carried_are_not_lost() {
    async fn heavy(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        for n in 0..70 {
            ctx.set_value(&n.to_string(), &"x".repeat(63 * 1_024))?;
        }
        let rejected = ctx.continue_as_new(&()).await.unwrap_err();
        assert!(matches!(&rejected, StepError::Rejected { .. }), "{rejected}");
        ctx.get_value::<String>("69")?.map(|value| value.len() as u64).ok_or(rejected)
    }
    let mut instance = instance(&WorkflowDefinition::of(heavy).unwrap());
    let finished = turn(&mut instance, 0, Vec::new());
    assert!(matches!(finished.state, ExecutionState::Completed(_)), "{:?}", finished.state);
}

#[tokio::test]
async fn workflows_send_messages() {
    async fn receiver(ctx: Workflow, (): ()) -> Result<String, StepError> {
        ctx.wait_signal("hello").await
    }
    async fn sender(ctx: Workflow, (): ()) -> Result<String, StepError> {
        let child = ctx.child(receiver, &()).id("r").start();
        ctx.signal("r", "hello", "Ada")?;
        ctx.signal("missing", "hello", "Bob")?;
        child.await
    }
    let tested = WorkflowTest::new(sender, &()).workflow(receiver).run().await.unwrap();
    assert_eq!(tested.result.as_deref(), Ok("Ada"));
    assert_eq!(tested.signals.len(), 2);
}

/// Polls a future once and leaves it.
async fn poll_once<F: Future + Unpin>(future: &mut F) {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_ready())).await;
}

/// A wait has its position in the queue also while it is not polled.
#[test]
fn an_unpolled_wait_still_gets_its_message() {
    async fn two(ctx: Workflow, (): ()) -> Result<(u64, u64), StepError> {
        let mut first = ctx.wait_signal::<u64>("n");
        poll_once(&mut first).await;
        let second = ctx.wait_signal::<u64>("n").await?;
        Ok((first.await?, second))
    }
    let mut instance = instance(&WorkflowDefinition::of(two).unwrap());
    turn(&mut instance, 0, Vec::new());
    let inputs = vec![message("n", "1"), message("n", "2")];
    assert_eq!(json(&turn(&mut instance, 1, inputs).state), "[1,2]");
}

/// The next wait is woken when the one before it is dropped, also within a join.
#[test]
fn the_message_of_a_dropped_wait_goes_to_the_next() {
    async fn leaving(ctx: Workflow, (): ()) -> Result<Vec<u64>, StepError> {
        let leaves = async {
            let mut first = ctx.wait_signal::<u64>("n");
            poll_once(&mut first).await;
            ctx.wait_signal::<u64>("leave").await
        };
        let next = ctx.wait_signal::<u64>("n");
        let branches: Vec<Pin<Box<dyn Future<Output = _> + Send + '_>>> =
            vec![Box::pin(leaves), Box::pin(next)];
        ctx.join(branches).await.into_iter().collect()
    }
    let mut instance = instance(&WorkflowDefinition::of(leaving).unwrap());
    turn(&mut instance, 0, Vec::new());
    let inputs = vec![message("n", "1"), message("leave", "2")];
    assert_eq!(json(&turn(&mut instance, 1, inputs).state), "[2,1]");
}

/// Its timer is cancelled when the message arrives, also if the wait is not dropped.
#[tokio::test]
async fn the_timer_of_a_wait_is_cancelled_with_it() {
    async fn not_dropped(ctx: Workflow, (): ()) -> Result<(), StepError> {
        let mut event = ctx.wait_signal::<()>("go").timeout(seconds(100));
        (&mut event).await?;
        ctx.sleep(seconds(1)).await
    }
    let test = WorkflowTest::new(not_dropped, &()).signal_at(seconds(1), "go", &());
    let tested = test.run().await.unwrap();
    let made = made(tested.history());
    assert_eq!(made[1..], ["timer (step 2)", "cancel (step 2)", "timer (step 3)"]);
}
