//! Code is replayed over its history, and deviations are reported.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};
use windlass_core::{HistoryPayload, Payload, RecordedCommand, TurnRecord};
use windlass_worker::Failure;
use windlass_worker::workflow::testing::{RecordedExecution, WorkflowTest, replay_check};
use windlass_worker::workflow::{
    ExecutionStart, ExecutionState, StepError, TurnFailure, Workflow, WorkflowDefinition,
};

use crate::workflow_cast::{done, fired, instance, json, message, rows, seconds, turn};

async fn act(ctx: &Workflow, name: &str) -> Result<u64, StepError> {
    ctx.activity_named::<u64>(name, &()).await
}

/// The code of the histories below.
async fn original(ctx: Workflow, (): ()) -> Result<u64, StepError> {
    let a = act(&ctx, "a").await?;
    ctx.sleep(seconds(5)).await?;
    Ok(a + act(&ctx, "b").await?)
}

/// The history of `original`, up to its last activity.
fn history() -> RecordedExecution {
    let mut instance = instance(&WorkflowDefinition::of(original).unwrap());
    let mut written = rows(&turn(&mut instance, 0, Vec::new()));
    written.extend(rows(&turn(&mut instance, 10, vec![done(1, "1")])));
    written.extend(rows(&turn(&mut instance, 5_010, vec![fired(2)])));
    RecordedExecution { start: ExecutionStart::new("w", 7), rows: written }
}

const ADVICE: &str = "The history is unchanged, and the workflow resumes once the code matches it: \
                      deploy the code that wrote it, or put the change behind ctx.patched(..)";

/// The deviation of the code from the history.
fn found(program: &WorkflowDefinition) -> String {
    let text = history().check(program).unwrap_err().to_string();
    text.strip_suffix(ADVICE).unwrap_or_else(|| panic!("{text}")).trim_end().to_owned()
}

#[test]
fn a_renamed_step_is_found() {
    let program =
        WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| act(&ctx, "x").await);
    let expected = "turn 0, position 1: the history has activity `a` (step 1), \
                    the code makes activity `x` (step 1).";
    assert_eq!(found(&program), expected);
}

#[test]
fn a_removed_step_is_found() {
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        act(&ctx, "a").await?;
        act(&ctx, "b").await
    });
    let expected = "turn 1, position 1: the history has timer (step 2), \
                    the code makes activity `b` (step 2).";
    assert_eq!(found(&program), expected);
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        act(&ctx, "a").await?;
        ctx.sleep(seconds(5)).await
    });
    let expected = "turn 2, position 1: the history has activity `b` (step 3), \
                    the code makes nothing.";
    assert_eq!(found(&program), expected);
}

#[test]
fn an_added_step_is_found() {
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        act(&ctx, "a").await?;
        act(&ctx, "between").await
    });
    let expected = "turn 1, position 1: the history has timer (step 2), \
                    the code makes activity `between` (step 2).";
    assert_eq!(found(&program), expected);
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        ctx.join((act(&ctx, "a"), act(&ctx, "beside"))).await.0
    });
    let expected = "turn 0, position 2: the history has nothing, \
                    the code makes activity `beside` (step 2).";
    assert_eq!(found(&program), expected);
}

#[test]
fn reordered_steps_are_found() {
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        ctx.sleep(seconds(5)).await?;
        act(&ctx, "a").await
    });
    let expected = "turn 0, position 1: the history has activity `a` (step 1), \
                    the code makes timer (step 1).";
    assert_eq!(found(&program), expected);
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        let first = ctx.wait_signal::<()>("go");
        ctx.select((first, act(&ctx, "a"))).await;
        Ok::<_, Failure>(())
    });
    let expected = "turn 0, position 1: the history has activity `a` (step 1), \
                    the code makes wait `go` (step 1).";
    assert_eq!(found(&program), expected);
}

#[test]
fn a_step_of_another_kind_is_found() {
    let local = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        ctx.local_activity("a", async || Ok::<u64, Failure>(1)).await
    });
    let child = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        ctx.child_named::<u64>("a", &()).await
    });
    let start = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        ctx.start_detached_named("a", &()).await?;
        ctx.sleep(seconds(1)).await
    });
    let signal = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        ctx.signal("x", "a", &())?;
        ctx.sleep(seconds(1)).await
    });
    let kinds = [(local, "local activity"), (child, "child"), (start, "start"), (signal, "signal")];
    for (program, kind) in kinds {
        let expected = format!(
            "turn 0, position 1: the history has activity `a` (step 1), \
             the code makes {kind} `a` (step 1)."
        );
        assert_eq!(found(&program), expected);
    }
}

#[test]
fn an_additional_cancel_is_found() {
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        act(&ctx, "a").await?;
        ctx.select((ctx.sleep(seconds(5)), std::future::ready(()))).await;
        act(&ctx, "b").await
    });
    let expected = "turn 1, position 2: the history has nothing, the code makes cancel (step 2).";
    assert_eq!(found(&program), expected);
}

#[test]
fn code_that_ends_before_its_history() {
    async fn waiting(ctx: Workflow, (): ()) -> Result<(), StepError> {
        ctx.wait_signal("go").await
    }
    async fn hasty(ctx: Workflow, (): ()) -> Result<(), StepError> {
        ctx.select((ctx.wait_signal::<()>("go"), std::future::ready(()))).await;
        Ok(())
    }
    let mut instance = instance(&WorkflowDefinition::of(waiting).unwrap());
    let mut written = rows(&turn(&mut instance, 0, Vec::new()));
    written.extend(rows(&turn(&mut instance, 1, vec![message("other", "1")])));
    let recorded = RecordedExecution { start: ExecutionStart::new("w", 7), rows: written };
    assert_eq!(replay_check(waiting, &recorded), Ok(()));
    let text = replay_check(hasty, &recorded).unwrap_err().to_string();
    let expected = "turn 1, position 1: the history has a further turn, the code makes an end.";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn code_that_panics_where_it_did_not() {
    let program =
        WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| -> Result<(), StepError> {
            act(&ctx, "a").await?;
            panic!("boom")
        });
    let expected = "turn 1, position 1: the history has timer (step 2), \
                    the code makes a failure (the workflow's code panicked: boom).";
    assert_eq!(found(&program), expected);
}

/// The reason is reported, not the commands that are missing because of it.
#[test]
fn code_that_fails_where_it_did_not() {
    #[derive(serde::Deserialize)]
    struct Order {
        #[expect(dead_code, reason = "only its presence matters")]
        added: u64,
    }
    let program =
        WorkflowDefinition::named("w", async |ctx: Workflow, _: Order| act(&ctx, "a").await);
    let recorded = RecordedExecution {
        start: ExecutionStart {
            input: Some(HistoryPayload(Payload::json("{}"))),
            ..history().start
        },
        ..history()
    };
    let text = recorded.check(&program).unwrap_err().to_string();
    let expected = "turn 0, position 1: the history has activity `a` (step 1), the code makes a \
                    failure (the payload does not decode: missing field `added`";
    assert!(text.starts_with(expected), "{text}");
    // The history has a further turn, and this row has no commands.
    let mut longer = history();
    longer.rows[0].commands.clear();
    let text = RecordedExecution { start: recorded.start, ..longer }
        .check(&program)
        .unwrap_err()
        .to_string();
    let expected = "turn 1, position 1: the history has a further turn, the code makes a failure (";
    assert!(text.starts_with(expected), "{text}");
}

/// A deviation in the last row is reported by the next turn, which changes nothing.
#[test]
fn a_turn_of_code_that_does_not_match_is_rejected() {
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        act(&ctx, "a").await?;
        ctx.sleep(seconds(5)).await?;
        act(&ctx, "c").await
    });
    let mut misfit = instance(&program);
    for row in &history().rows {
        misfit.replay(row).unwrap();
    }
    let rejected = misfit.turn(crate::workflow_cast::at(9_000), vec![done(3, "1")]).unwrap_err();
    let TurnFailure::Nondeterminism(found) = &rejected else { panic!("{rejected}") };
    assert_eq!((found.turn, found.position, found.expected.name()), (2, 1, Some("b")));
    assert_eq!((found.found.kind(), found.found.name()), (Some("activity"), Some("c")));
    let again = misfit.turn(crate::workflow_cast::at(9_000), Vec::new()).unwrap_err();
    assert_eq!(again, rejected);

    let mut fixed = history().replay(&WorkflowDefinition::of(original).unwrap()).unwrap();
    let finished = turn(&mut fixed, 9_000, vec![done(3, "2")]);
    assert_eq!(json(&finished.state), "3");
}

#[tokio::test]
async fn changed_code_takes_the_old_branch_for_old_executions() {
    async fn changed(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        let a = if ctx.patched("x for a") { act(&ctx, "x").await? } else { act(&ctx, "a").await? };
        ctx.sleep(seconds(5)).await?;
        let b = if ctx.patched("x for a") { 40 } else { act(&ctx, "b").await? };
        let y = if ctx.patched("y") { act(&ctx, "y").await? } else { 0 };
        let asked_again = if ctx.patched("x for a") { 0 } else { 100 };
        Ok(a + b + y + asked_again)
    }
    async fn cleaned_up(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        let a = act(&ctx, "x").await?;
        ctx.sleep(seconds(5)).await?;
        Ok(a + 40 + act(&ctx, "y").await?)
    }
    // This execution has passed the first change, and not the second.
    let mut old = history().replay(&WorkflowDefinition::of(changed).unwrap()).unwrap();
    let finished = turn(&mut old, 9_000, vec![done(3, "1")]);
    assert_eq!(
        crate::workflow_cast::made(&rows(&finished)),
        ["patch `y`", "activity `y` (step 4)"]
    );
    let finished = turn(&mut old, 9_001, vec![done(4, "5")]);
    assert_eq!(json(&finished.state), "107", "the first answer is final");

    let test = WorkflowTest::new(changed, &()).activity_named("x", |(): ()| Ok(1));
    let tested = test.activity_named("y", |(): ()| Ok(1)).replay_every_turn().run().await.unwrap();
    assert_eq!(tested.result, Ok(42));
    let recorded = &tested.executions[0];
    assert_eq!(replay_check(changed, recorded), Ok(()));
    assert_eq!(replay_check(cleaned_up, recorded), Ok(()), "the calls may be removed");
    let text = replay_check(original, recorded).unwrap_err().to_string();
    assert!(
        text.contains("history has activity `x` (step 1), the code makes activity `a`"),
        "{text}"
    );
}

#[test]
fn recordings_can_be_stored_in_a_file() {
    let text = serde_json::to_string(&history()).unwrap();
    let read: RecordedExecution = serde_json::from_str(&text).unwrap();
    assert_eq!(read, history());
    assert_eq!(replay_check(original, &read), Ok(()));
}

/// The failure of a turn that cannot be committed.
fn failure<E: Into<Failure>, Fut: Future<Output = Result<(), E>> + Send + 'static>(
    code: impl Fn(Workflow, ()) -> Fut + Send + Sync + 'static,
) -> TurnFailure {
    let program = WorkflowDefinition::named("w", code);
    instance(&program).turn(crate::workflow_cast::at(0), Vec::new()).unwrap_err()
}

#[test]
fn a_panic_is_a_failure_of_the_turn() {
    let failed = failure(async |_, ()| -> Result<(), Failure> { panic!("at {}", 7) });
    assert_eq!(failed, TurnFailure::Panicked { text: "at 7".to_owned() });
    assert_eq!(failed.to_string(), "the workflow's code panicked: at 7");
}

#[test]
fn foreign_awaits_and_endless_wakes_are_reported() {
    let non_workflow_await = async |ctx: Workflow, ()| -> Result<(), Failure> {
        let _started = ctx.sleep(seconds(1)).start();
        pending().await
    };
    assert_eq!(failure(non_workflow_await), TurnFailure::NonWorkflowAwait);
    let restless = async |_: Workflow, ()| -> Result<(), Failure> {
        poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    };
    assert_eq!(failure(restless), TurnFailure::BusyLoop);
}

/// Futures may wake each other inside of a workflow without its help.
#[tokio::test]
async fn branches_may_talk_to_each_other() {
    async fn talking(ctx: Workflow, (): ()) -> Result<u64, StepError> {
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<u64>(1);
        let reader = async {
            let mut sum = 0;
            while let Some(n) = receiver.recv().await {
                sum += n;
            }
            sum
        };
        let writer = async {
            for n in 0..10 {
                sender.send(n).await.unwrap();
                if n == 5 {
                    ctx.sleep(seconds(1)).await?;
                }
            }
            drop(sender);
            Ok(())
        };
        let (sum, written) = ctx.join((reader, writer)).await;
        written.map(|()| sum)
    }
    let tested = WorkflowTest::new(talking, &()).replay_every_turn().run().await.unwrap();
    assert_eq!(tested.result, Ok(45));
}

/// Counts log lines.
#[derive(Clone, Default)]
struct Lines(Arc<AtomicUsize>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().contains("workflow_replay")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn log_lines_are_not_repeated() {
    static REPLAYED: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    let program = WorkflowDefinition::named("w", async |ctx: Workflow, (): ()| {
        for n in 0..3 {
            tracing::info!(n, "asleep");
            REPLAYED.lock().unwrap().push(ctx.is_replaying());
            ctx.sleep(seconds(1)).await?;
        }
        Ok::<_, Failure>(())
    });
    let lines = Lines::default();
    with_default(lines.clone(), || {
        let mut live = instance(&program);
        let mut written = rows(&turn(&mut live, 0, Vec::new()));
        written.extend(rows(&turn(&mut live, 1, vec![fired(1)])));
        drop(live);
        let recorded = RecordedExecution { start: ExecutionStart::new("w", 7), rows: written };
        let mut replayed = recorded.replay(&program).unwrap();
        turn(&mut replayed, 2, vec![fired(2)]);
    });
    assert_eq!(lines.0.load(Ordering::Relaxed), 3);
    assert_eq!(*REPLAYED.lock().unwrap(), [false, false, true, true, false]);
}

/// Everything that a workflow holds is dropped with it, whether it has ended or not.
#[test]
fn nothing_is_leaked() {
    let held = Arc::new(());
    let given = Arc::clone(&held);
    let program = WorkflowDefinition::named("w", move |ctx: Workflow, (): ()| {
        let held = Arc::clone(&given);
        async move {
            let inner = (ctx.clone(), Arc::clone(&held), ctx.sleep(seconds(9)).start());
            let local = ctx.local_activity("l", move || async move {
                drop(inner);
                Ok::<_, Failure>(())
            });
            let typed = (0..10).map(|n| ctx.activity(crate::workflow_cast::pack, &n));
            let typed = ctx.join(typed.collect::<Vec<_>>());
            let all = ctx.join((local, ctx.wait_signal::<()>("go"), typed, ctx.cancelled()));
            let _all = all.await;
            drop(held);
            Ok::<_, Failure>(())
        }
    });
    let before = Arc::strong_count(&held);
    let unpolled = instance(&program);
    drop(unpolled);
    let mut waiting = instance(&program);
    let local = waiting.turn(crate::workflow_cast::at(0), Vec::new()).unwrap();
    assert!(Arc::strong_count(&held) > before);
    drop(local);
    drop(waiting);
    assert_eq!(Arc::strong_count(&held), before);
    // During a replay the local activity is not returned: the workflow owns it, and it owns the
    // workflow.
    let mut made = vec![
        RecordedCommand::Timer { step: 1, until: crate::workflow_cast::at(9_000) },
        RecordedCommand::LocalActivity { step: 2, name: "l".to_owned() },
        RecordedCommand::WaitSignal { step: 3, name: "go".to_owned() },
    ];
    let name = || "pack".to_owned();
    made.extend((4..14).map(|step| RecordedCommand::Activity { step, name: name(), input: None }));
    let row = TurnRecord { at: crate::workflow_cast::at(0), inputs: Vec::new(), commands: made };
    let mut replayed = instance(&program);
    replayed.replay(&row).unwrap();
    replayed.catch_up().unwrap();
    assert!(Arc::strong_count(&held) > before);
    drop(replayed);
    assert_eq!(Arc::strong_count(&held), before);
}

#[test]
fn an_input_that_does_not_decode_fails_the_workflow() {
    let program = WorkflowDefinition::named("w", async |_: Workflow, n: u64| Ok::<_, Failure>(n));
    let finished = turn(&mut instance(&program), 0, Vec::new());
    let ExecutionState::Failed(failure) = finished.state else { panic!("{finished:?}") };
    assert!(failure.reason().starts_with("the payload does not decode"), "{failure}");
}

/// A workflow can be driven from any thread, and moved while it waits.
#[test]
fn instances_can_move_between_threads() {
    fn moves<T: Send>() {}
    moves::<windlass_worker::workflow::Instance>();
    moves::<windlass_worker::workflow::TurnProgress>();
    moves::<Workflow>();
}
