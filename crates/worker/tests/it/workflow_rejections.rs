//! Errors are reported where they can be fixed, change nothing, and block no other workflow.

use std::time::Duration;

use windlass_core::command::{Claim, CommitTurn, TurnEnd};
use windlass_core::{
    ChangeSet, FailureClass, Lifecycle, Payload, PayloadKey, PublicState, StepOutcome, Task,
    WorkflowInput,
};
use windlass_engine::Error;
use windlass_worker::Worker;
use windlass_worker::workflow::{
    MAX_VALUES, STATUS_BYTES, StepError, VALUE_BYTES, Workflow, WorkflowDefinition,
};

use crate::stage::{EVER, Stage, key};

async fn order(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    ctx.wait_signal::<()>("go").await?;
    Ok(n + 1)
}

/// Another workflow of the same lane completes.
async fn another_workflow_completes(stage: &Stage, id: &str) {
    let other = stage.other.start_workflow_named::<u32>("order", &1).id(id).await.unwrap();
    other.signal("go", &()).await.unwrap();
    assert_eq!(other.result().await.unwrap(), 2);
}

async fn until(stage: &Stage, id: &str, is_so: impl Fn(&Task) -> bool) {
    let wait = async {
        while !is_so(&*stage.task(id).await) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(24 * EVER, wait)
        .await
        .unwrap_or_else(|_| panic!("{id} does not change: {}", stage.history(id)));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_workflow_waits_for_a_worker_with_its_code() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(order).start().unwrap();
    let unknown = stage.other.start_workflow_named::<u32>("ordr", &1).id("u").await.unwrap();
    until(&stage, "u", |task| task.progress.is_some()).await;
    let progress = stage.task("u").await.progress.clone().unwrap();
    assert_eq!(progress.message, "this worker has no code for ordr");
    assert_eq!(stage.task("u").await.lifecycle.public(), PublicState::Delayed);
    another_workflow_completes(&stage, "o").await;
    running.drain(EVER).await;
    let knows = Worker::new(stage.engine.clone(), "v")
        .workflow_definition(WorkflowDefinition::named("ordr", order));
    let running = knows.start().unwrap();
    unknown.signal("go", &()).await.unwrap();
    assert_eq!(unknown.result().await.unwrap(), 2);
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn an_input_that_does_not_decode_fails_only_its_workflow() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(order).start().unwrap();
    let wrong = stage.other.start_workflow_named::<u32>("order", "one").id("w").await.unwrap();
    let error = wrong.result().await.unwrap_err();
    assert!(matches!(error, Error::NotCompleted { .. }), "{error}");
    let Lifecycle::Failed { class, reason, .. } = &wrong.task().await.unwrap().lifecycle else {
        panic!("it has failed")
    };
    assert_eq!(*class, FailureClass::Permanent);
    assert!(reason.starts_with("the payload does not decode"), "{reason}");
    another_workflow_completes(&stage, "o").await;
    running.drain(EVER).await;
}

/// The error is shown as the progress of the task and returned to callers. After some hours the
/// workflow fails. Stored data is not changed.
#[tokio::test(start_paused = true)]
async fn a_history_that_does_not_decode_fails_its_workflow_in_the_end() {
    let stage = Stage::new().await;
    let broken = stage.other.start_workflow_named::<u32>("order", &1).id("b").await.unwrap();
    let claimed = stage.other.claim(Claim::new("w"), EVER).await.unwrap();
    let row = Payload::json("{\"at\":\"soon\"}");
    let turn = CommitTurn {
        fence: claimed[0].task.fence(),
        turn: 0,
        row: Some(row.clone()),
        consumed: Vec::new(),
        commands: Vec::new(),
        next_step: 0,
        end: TurnEnd::AwaitMessages,
        sticky_ms: None,
        eager: None,
        metadata: None,
    };
    stage.other.submit(turn).await.unwrap();
    broken.signal("go", &()).await.unwrap();
    let running = stage.worker().workflow(order).start().unwrap();
    until(&stage, "b", |task| task.progress.is_some()).await;
    let message = stage.task("b").await.progress.clone().unwrap().message;
    assert!(message.starts_with("row 0 of the history cannot be read: "), "{message}");
    assert_eq!(broken.history().await.unwrap_err().code(), "history_unreadable");
    another_workflow_completes(&stage, "o").await;
    let ended = broken.wait().await.unwrap();
    let Lifecycle::Failed { class, reason, .. } = &ended.lifecycle else { panic!("{ended:?}") };
    assert_eq!((*class, reason), (FailureClass::Crash, &message));
    assert_eq!(ended.attempts, 11);
    assert!(ended.created_at.ms_until(stage.other.now()) > 3_600_000);
    let stored = stage.other.payload(&ended.turn_key(0)).await.unwrap();
    assert_eq!(stored, Some(row));
    running.drain(EVER).await;
}

/// A lost payload differs from none: the code does not get the input, and the progress of the task
/// shows the error. Once the payload is restored, the workflow resumes.
#[tokio::test(start_paused = true)]
async fn a_lost_payload_is_not_treated_as_none() {
    async fn relay(ctx: Workflow, n: u32) -> Result<(u32, Option<u32>), StepError> {
        let got = ctx.wait_signal::<Option<u32>>("go").await?;
        if n > 1 {
            match ctx.continue_as_new(&(n - 1)).await? {}
        }
        Ok((n, got))
    }
    for (n, messages, slot) in [(1, 1, "message/"), (1, 1, "input"), (2, 2, "carried")] {
        let stage = Stage::new().await;
        let first = stage
            .worker()
            .workflow_definition(WorkflowDefinition::named("relay", relay))
            .start()
            .unwrap();
        let handle = stage.other.start_workflow_named::<(u32, Option<u32>)>("relay", &n).id("l");
        let handle = handle.await.unwrap();
        until(&stage, "l", |task| task.lifecycle.public() == PublicState::Suspended).await;
        for nth in 1..messages {
            handle.signal("go", &nth).await.unwrap();
            until(&stage, "l", |task| {
                task.execution == nth && task.lifecycle.public() == PublicState::Suspended
            })
            .await;
        }
        first.drain(EVER).await;
        handle.signal("go", &7).await.unwrap();
        let tables = stage.memory.snapshot();
        let is_it = |key: &PayloadKey| key.slot.as_str().starts_with(slot);
        let (lost, payload) = tables.payloads().find(|(key, _)| is_it(key)).unwrap();
        let dropped_payloads = vec![lost.clone()];
        stage.tamper(ChangeSet { dropped_payloads, ..ChangeSet::default() }).await;
        let second = stage
            .worker()
            .workflow_definition(WorkflowDefinition::named("relay", relay))
            .start()
            .unwrap();
        until(&stage, "l", |task| task.progress.is_some()).await;
        let message = stage.task("l").await.progress.clone().unwrap().message;
        let slot = lost.slot.as_str();
        assert_eq!(message, format!("payload {slot} of l is missing"));
        let task = stage.task("l").await;
        assert_eq!(task.lifecycle.public(), PublicState::Delayed, "{slot}");
        assert_eq!(stage.other.messages(&key("l"), 0, 9).await.unwrap().len(), 1, "{slot}");
        let payloads = vec![(lost.clone(), payload.clone())];
        stage.tamper(ChangeSet { payloads, ..ChangeSet::default() }).await;
        assert_eq!(handle.result().await.unwrap(), (1, Some(7)), "{slot}");
        second.drain(EVER).await;
    }
}

/// The code gets the error, earlier values stay, and the workflow continues.
#[tokio::test(start_paused = true)]
async fn oversized_status_and_values_are_rejected_and_change_nothing() {
    async fn large(ctx: Workflow, _: u32) -> Result<Vec<String>, StepError> {
        ctx.set_status("fine")?;
        ctx.set_value("v", &1)?;
        let long = "x".repeat(STATUS_BYTES + 1);
        let mut rejected = vec![
            ctx.set_status(long.clone()).unwrap_err(),
            ctx.set_status("a\0b").unwrap_err(),
            ctx.set_value("v", &long[..VALUE_BYTES]).unwrap_err(),
            ctx.set_value("", &1).unwrap_err(),
        ];
        for n in 1..MAX_VALUES {
            ctx.set_value(&n.to_string(), &n)?;
        }
        rejected.push(ctx.set_value("one more", &1).unwrap_err());
        ctx.set_value("7", &"there is room for what is there")?;
        Ok(rejected.iter().map(ToString::to_string).collect())
    }
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("large", large))
        .start()
        .unwrap();
    let handle =
        stage.other.start_workflow_named::<Vec<String>>("large", &1).id("l").await.unwrap();
    let rejected = handle.result().await.unwrap();
    let parts = ["262144 at most", "a NUL", "65536 at most", "its name", "150 values"];
    assert_eq!(rejected.len(), parts.len());
    for (rejection, part) in rejected.iter().zip(parts) {
        assert!(rejection.contains("was rejected") && rejection.contains(part), "{rejection}");
    }
    assert_eq!(handle.status().await.unwrap().unwrap().text, "fine");
    assert_eq!(handle.value::<u32>("v").await.unwrap(), Some(1));
    assert_eq!(handle.properties().await.unwrap().len(), MAX_VALUES);
    running.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn requests_to_missing_or_ended_workflows_change_nothing() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(order).start().unwrap();
    another_workflow_completes(&stage, "ended").await;
    running.drain(EVER).await;
    let before = stage.memory.snapshot();
    for (id, code) in [("ended", "already_terminal"), ("never", "task_not_found")] {
        let handle = stage.other.workflow(key(id));
        assert_eq!(handle.signal("go", &()).await.unwrap_err().code(), code);
        assert_eq!(handle.cancel("stop").await.unwrap_err().code(), code);
        assert_eq!(handle.terminate("stop").await.unwrap_err().code(), code);
    }
    let missing = stage.other.workflow(key("never"));
    assert_eq!(missing.delete(true).await.unwrap_err().code(), "task_not_found");
    assert_eq!(missing.prune(0, None).await.unwrap_err().code(), "task_not_found");
    assert_eq!(missing.task().await.unwrap_err().code(), "task_not_found");
    let (rows, was) = (stage.memory.snapshot(), before);
    assert_eq!(rows.rows().collect::<Vec<_>>(), was.rows().collect::<Vec<_>>());
    let running = stage.worker().workflow(order).start().unwrap();
    another_workflow_completes(&stage, "after").await;
    running.drain(EVER).await;
}

/// Sends messages and starts that are rejected, and continues.
async fn sender(ctx: Workflow, _: u32) -> Result<Vec<String>, StepError> {
    ctx.signal("missing", "go", &())?;
    ctx.start_detached(order, &2).id("exists").await?;
    ctx.signal("exists", "go", &())?;
    ctx.start_detached(order, &1).id("exists").await?;
    let long = "x".repeat(201);
    let start = ctx.start_detached(order, &1).id(long.as_str()).await.unwrap_err();
    let child = ctx.child(order, &1).id(long.as_str()).await.unwrap_err();
    ctx.wait_signal::<()>("go").await?;
    Ok(vec![start.to_string(), child.to_string()])
}

/// Replayed by another worker, it continues over the recorded rejections.
#[tokio::test(start_paused = true)]
async fn rejected_signals_and_starts_are_in_the_history() {
    let stage = Stage::new().await;
    let exists = stage.other.start_workflow_named::<u32>("order", &1).id("exists").await.unwrap();
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("sender", sender))
        .start()
        .unwrap();
    let handle =
        stage.other.start_workflow_named::<Vec<String>>("sender", &1).id("s").await.unwrap();
    until(&stage, "s", |task| {
        let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        turns >= 2 && task.lifecycle.public() == PublicState::Suspended
    })
    .await;
    running.drain(EVER).await;
    let task = stage.task("s").await;
    let rows = stage.other.history(&task, 0).await.unwrap();
    let failures = rows.iter().flat_map(|row| &row.inputs).map(|input| match input {
        WorkflowInput::StepCompletion { step, outcome: StepOutcome::Failed { class, reason } } => {
            assert_eq!(*class, FailureClass::Permanent);
            (*step, reason.as_str())
        }
        other => panic!("{other:?}"),
    });
    let failures: Vec<_> = failures.collect();
    assert_eq!(failures.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 1]);
    assert!(failures[0].1.starts_with("go could not be sent to missing: "), "{failures:?}");
    assert!(failures[1].1.starts_with("exists could not be created: "), "{failures:?}");
    let other = Worker::new(stage.engine.clone(), "v").workflow(order);
    let running =
        other.workflow_definition(WorkflowDefinition::named("sender", sender)).start().unwrap();
    handle.signal("go", &()).await.unwrap();
    for rejection in handle.result().await.unwrap() {
        assert!(rejection.contains("was rejected") && rejection.contains("200"), "{rejection}");
    }
    assert_eq!(exists.result().await.unwrap(), 2, "it is unchanged, and has its message");
    running.drain(EVER).await;
}
