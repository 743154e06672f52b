//! The steps that workflow code can run.

use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_core::{FailureClass, RetryPolicy, TaskId};
use windlass_worker::workflow::testing::{TestFailure, WorkflowTest};
use windlass_worker::workflow::{
    Either, ExecutionState, OneOf3, OneOf8, PlannedCommand, StepError, Workflow, WorkflowDefinition,
};
use windlass_worker::{Context, Failure};

use crate::workflow_cast::{
    charge, done, fired, instance, json, made, pack, refund, seconds, turn,
};

#[tokio::test]
async fn steps_run_in_sequence() {
    async fn order(ctx: Workflow, cents: u64) -> Result<String, StepError> {
        let packed = ctx.activity(pack, &cents).await?;
        ctx.sleep(seconds(60)).await?;
        ctx.activity(charge, &(packed + 1)).await
    }
    let test = WorkflowTest::new(order, &41)
        .activity(pack, Ok)
        .activity(charge, |cents| Ok(format!("paid {cents}")))
        .mock_duration(seconds(5));
    let tested = test.run().await.unwrap();
    assert_eq!(tested.result.as_deref(), Ok("paid 42"));
    assert_eq!(tested.elapsed, seconds(65));
    let expected = ["activity `pack` (step 1)", "timer (step 2)", "activity `charge` (step 3)"];
    assert_eq!(made(tested.history()), expected);
    assert_eq!(tested.history().len(), 4, "a row for each turn");
}

#[tokio::test]
async fn side_by_side() {
    async fn fan(ctx: Workflow, (): ()) -> Result<(u64, String, Vec<u64>), StepError> {
        let many = (0..50).map(|n| ctx.activity(pack, &n)).collect::<Vec<_>>();
        let all = ctx.join((ctx.activity(pack, &7), ctx.activity(charge, &8), ctx.join(many)));
        let (one, two, many) = all.await;
        Ok((one?, two?, many.into_iter().collect::<Result<_, _>>()?))
    }
    let test = WorkflowTest::new(fan, &())
        .activity(pack, Ok)
        .mock_duration(seconds(3))
        .activity(charge, |cents| Ok(format!("paid {cents}")))
        .mock_duration(seconds(9));
    let tested = test.run().await.unwrap();
    let (one, two, many) = tested.result.unwrap();
    assert_eq!((one, two.as_str()), (7, "paid 8"));
    assert_eq!(many, (0..50).collect::<Vec<_>>());
    assert_eq!(tested.elapsed, seconds(9));
}

#[tokio::test]
async fn try_join_returns_all_values_or_the_first_error() {
    async fn pair(ctx: Workflow, (): ()) -> Result<(String, u64), StepError> {
        ctx.try_join((ctx.activity(charge, &1), ctx.activity(pack, &2))).await
    }
    async fn many(ctx: Workflow, (): ()) -> Result<Vec<u64>, StepError> {
        let packs = (0..4).map(|n| ctx.activity(pack, &n)).collect::<Vec<_>>();
        ctx.try_join(packs).await
    }
    let paid = |_| Ok("paid".to_owned());
    let test = WorkflowTest::new(pair, &()).activity(charge, paid).activity(pack, Ok);
    assert_eq!(test.run().await.unwrap().result, Ok(("paid".to_owned(), 2)));
    let test = WorkflowTest::new(many, &()).activity(pack, Ok);
    assert_eq!(test.run().await.unwrap().result, Ok(vec![0, 1, 2, 3]));

    let full = |n| if n == 2 { Err(Failure::non_retryable("full")) } else { Ok(n) };
    let test = WorkflowTest::new(pair, &()).activity(charge, paid).mock_duration(seconds(60));
    let tested = test.activity(pack, full).mock_duration(seconds(1)).run().await.unwrap();
    let Err(ExecutionState::Failed(failure)) = &tested.result else { panic!("{tested:?}") };
    assert!(failure.reason().contains("full"), "{failure:?}");
    assert_eq!(tested.elapsed, seconds(1), "it does not wait for the other");
    assert_eq!(made(tested.history())[2..], ["cancel (step 1)"]);

    let test = WorkflowTest::new(many, &()).activity(pack, full).replay_every_turn();
    let tested = test.run().await.unwrap();
    assert!(tested.result.is_err());
    let cancelled = made(tested.history());
    assert_eq!(cancelled[4..], ["cancel (step 4)"], "the others have ended");
}

/// An invalid step ends the join before any later step is scheduled.
#[tokio::test]
async fn a_rejected_step_is_the_first_error() {
    async fn pair(ctx: Workflow, (): ()) -> Result<(String, u64), StepError> {
        let rejected = ctx.activity(charge, &1).lane("");
        ctx.try_join((rejected, ctx.activity(pack, &2))).await
    }
    let tested = WorkflowTest::new(pair, &()).run().await.unwrap();
    assert!(tested.result.is_err());
    assert_eq!(made(tested.history()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_local_activity_is_retried_within_its_turn() {
    async fn insists(ctx: Workflow, tries: u32) -> Result<u32, StepError> {
        let began = Arc::new(Mutex::new(0));
        let run = move || {
            *began.lock().unwrap() += 1;
            let tried = *began.lock().unwrap();
            ready(if tried < tries { Err(Failure::transient("no")) } else { Ok(tried) })
        };
        ctx.local_activity("flaky", run).retry(RetryPolicy::linear(3, 1_000)).await
    }
    for (tries, expected) in [(1, Some(1)), (3, Some(3)), (4, None)] {
        let before = tokio::time::Instant::now();
        let tested = WorkflowTest::new(insists, &tries).run().await.unwrap();
        assert_eq!(tested.result.ok(), expected);
        let paused = [0, 0, 0, 3_000, 3_000][tries as usize];
        assert_eq!(before.elapsed(), Duration::from_millis(paused), "{tries}");
        assert_eq!(tested.executions[0].rows.len(), 1, "all of it is one turn");
    }
}

#[tokio::test]
async fn a_retry_policy_too_long_for_a_turn_is_rejected() {
    async fn long(ctx: Workflow, (tries, ms): (u32, u64)) -> Result<(), StepError> {
        let never = || ready(Err::<(), _>(Failure::transient("no")));
        ctx.local_activity("long", never).retry(RetryPolicy::fixed(tries, ms)).await
    }
    for (tries, ms, is_rejected) in [(10, 0, false), (11, 0, true), (2, 10_001, true), (0, 0, true)]
    {
        let tested = WorkflowTest::new(long, &(tries, ms)).run().await.unwrap();
        let Err(ExecutionState::Failed(failure)) = &tested.result else { panic!("{tested:?}") };
        assert_eq!(failure.reason().contains("was rejected"), is_rejected, "{failure:?}");
    }
}

/// The first of several that are ready counts, and all others are cancelled.
#[tokio::test]
async fn a_race_of_more_than_two_has_one_winner() {
    async fn race(ctx: Workflow, naps: [u64; 3]) -> Result<u64, StepError> {
        let [a, b, c] = naps.map(|nap| ctx.sleep(seconds(nap)));
        Ok(match ctx.select((a, b, c)).await {
            OneOf3::First(over) => over.map(|()| 1)?,
            OneOf3::Second(over) => over.map(|()| 2)?,
            OneOf3::Third(over) => over.map(|()| 3)?,
        })
    }
    let rows = [([1, 2, 3], 1, [2, 3]), ([2, 1, 1], 2, [1, 3]), ([3, 2, 1], 3, [1, 2])];
    for (naps, expected, given_up) in rows {
        let tested = WorkflowTest::new(race, &naps).run().await.unwrap();
        assert_eq!(tested.result, Ok(expected), "{naps:?}");
        let cancels = given_up.map(|step| format!("cancel (step {step})"));
        assert_eq!(made(tested.history())[3..], cancels, "{naps:?}");
    }
    async fn eight(ctx: Workflow, (): ()) -> Result<bool, StepError> {
        let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| ctx.sleep(seconds(9 - n as u64)));
        Ok(matches!(ctx.select((a, b, c, d, e, f, g, h)).await, OneOf8::Eighth(Ok(()))))
    }
    assert_eq!(WorkflowTest::new(eight, &()).run().await.unwrap().result, Ok(true));
}

#[tokio::test]
async fn the_loser_of_a_race_is_cancelled() {
    async fn race(ctx: Workflow, (): ()) -> Result<String, StepError> {
        match ctx.select((ctx.activity(charge, &1), ctx.sleep(seconds(5)))).await {
            Either::First(paid) => paid,
            Either::Second(over) => over.map(|()| "too late".to_owned()),
        }
    }
    for (takes, expected, cancelled) in [(4, "paid", 2), (5, "paid", 2), (6, "too late", 1)] {
        let test = WorkflowTest::new(race, &())
            .activity(charge, |_| Ok("paid".to_owned()))
            .mock_duration(seconds(takes));
        let tested = test.run().await.unwrap();
        assert_eq!(tested.result.as_deref(), Ok(expected), "{takes}");
        let cancel = format!("cancel (step {cancelled})");
        assert_eq!(made(tested.history())[2..], [cancel]);
    }
}

#[tokio::test]
async fn select_returns_the_first_of_many() {
    async fn first(ctx: Workflow, (): ()) -> Result<usize, StepError> {
        let sleeps = [9, 3, 5].map(|n| ctx.sleep(seconds(n)));
        let (place, slept) = ctx.select(Vec::from(sleeps)).await;
        slept?;
        ctx.sleep(seconds(100)).await?;
        Ok(place)
    }
    let tested = WorkflowTest::new(first, &()).run().await.unwrap();
    assert_eq!(tested.result, Ok(1));
    assert_eq!(tested.elapsed, seconds(103), "the others are cancelled");
    let made = made(tested.history());
    assert_eq!(made[3..], ["cancel (step 1)", "cancel (step 3)", "timer (step 4)"]);
}

/// What arrives first wins, also when both arrive in one turn.
#[test]
fn the_order_of_arrival_decides() {
    async fn race(ctx: Workflow, (): ()) -> Result<usize, StepError> {
        let sleeps = [1, 2].map(|n| ctx.sleep(seconds(n)));
        Ok(ctx.select(Vec::from(sleeps)).await.0)
    }
    let program = WorkflowDefinition::of(race).unwrap();
    for (inputs, expected) in [(vec![fired(1), fired(2)], "0"), (vec![fired(2), fired(1)], "1")] {
        let mut instance = instance(&program);
        turn(&mut instance, 0, Vec::new());
        let finished = turn(&mut instance, 5_000, inputs);
        assert_eq!(json(&finished.state), expected);
        assert_eq!(finished.delivered, 1, "inputs after the end are left");
    }
}

#[test]
fn dropped_steps_are_cancelled() {
    async fn invoice(_: Workflow, (): ()) -> Result<(), Failure> {
        Ok(())
    }
    async fn dropping(ctx: Workflow, (): ()) -> Result<(), StepError> {
        let activity = ctx.activity(charge, &1).start();
        let child = ctx.child(invoice, &()).start();
        let timer = ctx.sleep(seconds(1)).start();
        let unpolled = ctx.activity(charge, &2);
        let pending = ctx.activity(pack, &3).start();
        drop((activity, child, timer, unpolled));
        pending.await?;
        Ok(())
    }
    let mut instance = instance(&WorkflowDefinition::of(dropping).unwrap());
    let finished = turn(&mut instance, 0, Vec::new());
    let commands = &finished.parts[0].commands;
    assert_eq!(commands.len(), 7, "{commands:?}");
    assert!(matches!(commands[4], PlannedCommand::CancelActivity { step: 1 }));
    assert!(
        matches!(&commands[5], PlannedCommand::CancelChild { step: 2, id } if id.as_str() == "w/2")
    );
    assert!(matches!(commands[6], PlannedCommand::CancelTimer { step: 3 }));
    let finished = turn(&mut instance, 1, vec![done(1, "\"late\""), fired(3), done(4, "3")]);
    assert_eq!(json(&finished.state), "null");
    assert_eq!(finished.parts[0].row.inputs.len(), 3, "ignored, but recorded");
}

#[test]
fn the_options_of_an_activity_are_in_its_task() {
    async fn order(ctx: Workflow, (): ()) -> Result<String, StepError> {
        let activity = ctx.activity(charge, &5).retry(RetryPolicy::fixed(3, 100));
        let activity = activity.timeout(seconds(2)).total_timeout(seconds(9));
        activity.lane("money").tag("eu").session("s").await
    }
    let mut instance = instance(&WorkflowDefinition::of(order).unwrap());
    let finished = turn(&mut instance, 0, Vec::new());
    let [PlannedCommand::Activity { step: 1, task }] = finished.parts[0].commands.as_slice() else {
        panic!("{finished:?}")
    };
    assert_eq!((task.id.as_str(), task.kind.as_str()), ("w/1", "charge"));
    assert_eq!(task.parent, Some(TaskId::from("w")));
    assert_eq!(task.payload.as_ref().map(|payload| &*payload.bytes), Some(&b"5"[..]));
    assert_eq!(task.policy.retry, Some(RetryPolicy::fixed(3, 100)));
    assert_eq!((task.policy.attempt_timeout_ms, task.deadline_ms), (Some(2_000), Some(9_000)));
    assert_eq!((task.lane.as_str(), task.tag.as_deref()), ("money", Some("eu")));
    let ExecutionState::Waiting { count: 1, first } = finished.state else {
        panic!("{finished:?}")
    };
    assert_eq!(first, ["activity `charge` (step 1)"]);
}

#[tokio::test]
async fn invalid_requests_are_returned_to_the_code() {
    async fn order(ctx: Workflow, which: u32) -> Result<(), StepError> {
        match which {
            0 => ctx.activity(|_: Context, (): ()| async { Ok::<_, Failure>(()) }, &()).await,
            1 => ctx.activity(refund, &"x".repeat(5_000_000)).await,
            2 => ctx.activity_named::<()>("", &()).await,
            3 => ctx.activity_named::<()>("a", &()).timeout(Duration::ZERO).await,
            4 => ctx.set_status("x".repeat(300_000)),
            5 => ctx.set_value("v", &"x".repeat(70_000)),
            6 => (0..151).try_for_each(|n| ctx.set_value(&n.to_string(), &n)),
            7 => ctx.wait_signal::<()>("a\nb").await,
            8 => ctx.signal("", "go", &()),
            _ => ctx.activity_named::<()>("a", &()).retry(RetryPolicy::fixed(0, 0)).await,
        }
    }
    for which in 0..10 {
        let tested = WorkflowTest::new(order, &which).run().await.unwrap();
        let Err(ExecutionState::Failed(failure)) = &tested.result else { panic!("{tested:?}") };
        assert_eq!(failure.class(), FailureClass::Permanent, "{which}");
        assert!(failure.reason().contains("was rejected: "), "{which}: {failure}");
        assert_eq!(made(tested.history()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn local_activities_run_within_the_turn() {
    async fn order(ctx: Workflow, log: u64) -> Result<(u64, String), Failure> {
        let first =
            ctx.local_activity("one", move || async move { Ok::<_, Failure>(log + 1) }).await?;
        let bad = ctx.local_activity("bad", async || Err::<u64, _>(Failure::permanent("no")));
        let loud = ctx.local_activity("loud", async || -> Result<u64, Failure> { panic!("boom") });
        let (bad, loud) = ctx.join((bad, loud)).await;
        let text = format!("{} / {}", bad.unwrap_err(), loud.unwrap_err());
        ctx.sleep(seconds(1)).await?;
        Ok((first, text))
    }
    let tested = WorkflowTest::new(order, &41).replay_every_turn().run().await.unwrap();
    let expected =
        "`bad` failed (permanent): no / `loud` failed (crash): it panicked: boom".to_owned();
    assert_eq!(tested.result, Ok((42, expected)));
    assert_eq!(tested.history().len(), 2, "all of it in the first turn");
    assert_eq!(tested.history()[0].inputs.len(), 3);
}

/// A local activity that has an outcome in the history is not run again.
#[tokio::test]
async fn local_activities_run_once() {
    static RUNS: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    async fn order(ctx: Workflow, (): ()) -> Result<(), StepError> {
        for name in ["a", "b", "c"] {
            let noted = async move || {
                RUNS.lock().unwrap().push(name);
                Ok::<_, Failure>(())
            };
            ctx.local_activity(name, noted).await?;
            ctx.sleep(seconds(1)).await?;
        }
        Ok(())
    }
    WorkflowTest::new(order, &()).replay_every_turn().run().await.unwrap().result.unwrap();
    assert_eq!(*RUNS.lock().unwrap(), ["a", "b", "c"]);
}

#[tokio::test]
async fn children() {
    async fn invoice(ctx: Workflow, cents: u64) -> Result<String, StepError> {
        let id = ctx.info().id;
        ctx.activity(charge, &cents).await.map(|paid| format!("{id}: {paid}"))
    }
    async fn failing(_: Workflow, (): ()) -> Result<(), Failure> {
        Err(Failure::permanent("broke"))
    }
    async fn order(ctx: Workflow, (): ()) -> Result<(String, String, String), StepError> {
        let named = ctx.child(invoice, &2).id("invoice-2");
        let (one, two) = ctx.join((ctx.child(invoice, &1), named)).await;
        let failed = ctx.child(failing, &()).await.unwrap_err();
        ctx.start_detached(invoice, &3).id("left-alone").await?;
        ctx.start_detached_named("unknown", &4).await?;
        Ok((one?, two?, failed.to_string()))
    }
    let charged = |cents| Ok(format!("paid {cents}"));
    let test = WorkflowTest::new(order, &()).workflow(invoice).workflow(failing);
    let tested = test.activity(charge, charged).run().await.unwrap();
    let (one, two, failed) = tested.result.unwrap();
    assert_eq!(one, "workflow-under-test/1: paid 1");
    assert_eq!(two, "invoice-2: paid 2");
    assert_eq!(failed, "`failing` failed (permanent): broke");
    let started: Vec<_> = tested.started.iter().map(TaskId::as_str).collect();
    assert_eq!(started, ["left-alone", "workflow-under-test/5"]);

    let mocked = WorkflowTest::new(order, &()).child(invoice, |_| Ok("mocked".to_owned()));
    let tested = mocked.workflow(failing).run().await.unwrap();
    assert_eq!(tested.result.unwrap().0, "mocked");
    let unsaid = WorkflowTest::new(order, &()).run().await.unwrap_err();
    assert_eq!(unsaid, TestFailure::NoMock { name: "invoice".to_owned() });
}

#[tokio::test]
async fn time_and_random_numbers_are_the_same_in_replay() {
    async fn dice(ctx: Workflow, (): ()) -> Result<Vec<String>, StepError> {
        let mut thrown = Vec::new();
        for _ in 0..3 {
            thrown.push(format!("{} {} {}", ctx.now(), ctx.random(), ctx.uuid()));
            ctx.sleep(seconds(60)).await?;
        }
        Ok(thrown)
    }
    let once = WorkflowTest::new(dice, &()).run().await.unwrap().result.unwrap();
    let again =
        WorkflowTest::new(dice, &()).replay_every_turn().run().await.unwrap().result.unwrap();
    assert_eq!(once, again);
    let other = WorkflowTest::new(dice, &()).seed(2).run().await.unwrap().result.unwrap();
    let uuids = |thrown: &[String]| -> Vec<String> {
        thrown.iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
    };
    let (mut all, others) = (uuids(&once), uuids(&other));
    all.extend(others);
    assert!(all.iter().all(|uuid| uuid.len() == 36 && &uuid[14..15] == "4"), "{all:?}");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6);
}

#[tokio::test]
async fn attempts_follow_their_policy_in_virtual_time() {
    async fn order(ctx: Workflow, total: u64) -> Result<String, StepError> {
        let activity = ctx.activity(charge, &1).retry(RetryPolicy::fixed(3, 10_000));
        activity.total_timeout(seconds(total)).await
    }
    let tries = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&tries);
    let flaky = move |_| {
        let mut tries = counted.lock().unwrap();
        *tries += 1;
        if *tries == 3 { Ok("paid".to_owned()) } else { Err(Failure::transient("away")) }
    };
    let test = WorkflowTest::new(order, &60).activity(charge, flaky).mock_duration(seconds(1));
    let tested = test.run().await.unwrap();
    assert_eq!(tested.result.as_deref(), Ok("paid"));
    assert_eq!((tested.elapsed, *tries.lock().unwrap()), (seconds(23), 3));

    let never = |_| Err::<String, _>(Failure::transient("away"));
    let test = WorkflowTest::new(order, &5).activity(charge, never);
    let tested = test.run().await.unwrap();
    let Err(ExecutionState::Failed(failure)) = tested.result else { panic!("{tested:?}") };
    assert_eq!(failure.class(), FailureClass::Timeout);
    assert_eq!(tested.elapsed, seconds(5));
}

#[tokio::test]
async fn status_and_values() {
    async fn telling(ctx: Workflow, (): ()) -> Result<Option<u64>, StepError> {
        ctx.set_status("begun")?;
        ctx.set_value("a", &1)?;
        ctx.set_value("b", &2)?;
        ctx.sleep(seconds(1)).await?;
        ctx.set_status("half")?;
        ctx.set_status("done")?;
        ctx.remove_value("b");
        assert_eq!(ctx.get_value::<u64>("b")?, None);
        ctx.get_value("a")
    }
    let tested = WorkflowTest::new(telling, &()).replay_every_turn().run().await.unwrap();
    assert_eq!(tested.result, Ok(Some(1)));
    assert_eq!(tested.status.as_deref(), Some("done"));
    let values: Vec<_> = tested.values.keys().map(String::as_str).collect();
    assert_eq!(values, ["a"]);
}

#[tokio::test]
async fn a_future_of_any_kind_has_a_timeout() {
    async fn order(ctx: Workflow, (): ()) -> Result<bool, StepError> {
        let both = ctx.join((ctx.activity(charge, &1), ctx.activity(pack, &1)));
        let late = ctx.timeout(seconds(5), both).await;
        Ok(matches!(late, Err(StepError::TimedOut)))
    }
    let test = WorkflowTest::new(order, &()).activity(pack, Ok).mock_duration(seconds(6));
    let test = test.activity(charge, |_| Ok(String::new())).mock_duration(seconds(2));
    let tested = test.run().await.unwrap();
    assert_eq!(tested.result, Ok(true));
    assert_eq!(made(tested.history())[3..], ["cancel (step 2)"]);
}

/// Futures after the first one that is ready are never started.
#[tokio::test]
async fn a_select_with_a_ready_future_starts_no_other() {
    type Branch<'b> = Pin<Box<dyn Future<Output = ()> + Send + 'b>>;
    async fn race(ctx: Workflow, (): ()) -> Result<usize, Failure> {
        let slow = async { ctx.sleep(seconds(1)).await.unwrap() };
        let branches: Vec<Branch<'_>> = vec![Box::pin(ready(())), Box::pin(slow)];
        let (place, ()) = ctx.select(branches).await;
        ctx.select((ready(()), ctx.sleep(seconds(1)))).await;
        Ok(place)
    }
    let tested = WorkflowTest::new(race, &()).run().await.unwrap();
    assert_eq!(tested.result, Ok(0));
    assert_eq!(made(tested.history()), Vec::<String>::new());
}

/// The clock of a worker may go back, the time of a workflow does not.
#[test]
fn workflow_time_does_not_go_back() {
    async fn clock(ctx: Workflow, (): ()) -> Result<Vec<i64>, StepError> {
        let before = ctx.now().millis();
        ctx.sleep(seconds(1)).await?;
        Ok(vec![before, ctx.now().millis()])
    }
    let mut instance = instance(&WorkflowDefinition::of(clock).unwrap());
    turn(&mut instance, 5_000, Vec::new());
    let finished = turn(&mut instance, 4_000, vec![fired(1)]);
    assert_eq!(json(&finished.state), "[5000,5000]");
    assert_eq!(finished.parts[0].row.at.millis(), 5_000);
}
