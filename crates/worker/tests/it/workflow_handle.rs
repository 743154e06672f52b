//! A workflow as its caller sees it.

use std::time::Duration;

use windlass_core::{PublicState, Rejection};
use windlass_engine::{Engine, Error, WorkflowBuilder, WorkflowHandle};
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};

use crate::stage::{Stage, key};

async fn tells(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    let mut sum = 0;
    for nth in 0..n {
        ctx.set_status(format!("{nth} of {n}"))?;
        sum += ctx.wait_signal::<u32>("add").await?;
        ctx.set_value("sum", &sum)?;
    }
    ctx.set_status("done")?;
    Ok(sum)
}

fn start<'e>(engine: &'e Engine, name: &str, input: u32) -> WorkflowBuilder<'e, u32> {
    engine.start_workflow_named(name, &input).id(name)
}

#[tokio::test(start_paused = true)]
async fn a_handle_follows_the_status_and_reads_values() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(tells).start().unwrap();
    let handle = start(&stage.other, "tells", 2).label("customer", "7").await.unwrap();
    let first = handle.wait_for_status(None).await.unwrap().unwrap();
    assert_eq!(first.text, "0 of 2");
    assert_eq!(handle.status().await.unwrap(), Some(first.clone()));
    handle.signal("add", &3).await.unwrap();
    let second = handle.wait_for_status(Some(first.revision)).await.unwrap().unwrap();
    assert!((second.text.as_str(), second.revision > first.revision) == ("1 of 2", true));
    assert_eq!(handle.value("sum").await.unwrap(), Some(3));
    for _ in 0..2 {
        let sent = handle.signal("add", &4).idempotency_key("once").await.unwrap();
        assert_eq!(sent.seq, 2);
    }
    let done = handle.wait_until(|status| status.text == "done").await.unwrap().unwrap();
    assert_eq!(handle.result().await.unwrap(), 7);
    assert_eq!(handle.wait_for_status(Some(done.revision)).await.unwrap(), None, "it has ended");
    assert_eq!(handle.wait_for_status(None).await.unwrap(), Some(done));
    let values = handle.properties().await.unwrap();
    assert_eq!((values.len(), values[0].text.as_str()), (1, "7"));
    assert_eq!(handle.history().await.unwrap().len(), 3);
    let info = handle.task().await.unwrap();
    assert_eq!((info.labels["customer"].as_str(), info.execution), ("7", 0));
    let changes = stage.history("tells").matches("status_changed").count();
    assert_eq!(changes, 3, "the log has each of them");
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn many_callers_wait_for_the_status_of_one_workflow() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(tells).start().unwrap();
    let handle = start(&stage.other, "tells", 1).await.unwrap();
    let waits = (0..20).map(|_| {
        let handle = handle.clone();
        tokio::spawn(async move { handle.wait_until(|status| status.text == "done").await })
    });
    let waits: Vec<_> = waits.collect();
    handle.signal("add", &1).await.unwrap();
    for wait in waits {
        assert_eq!(wait.await.unwrap().unwrap().unwrap().text, "done");
    }
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_id_is_a_duplicate_or_a_conflict() {
    let stage = Stage::new().await;
    let first = start(&stage.other, "tells", 1).await.unwrap();
    assert!(!first.is_duplicate());
    let again = start(&stage.engine, "tells", 1).await.unwrap();
    assert!(again.is_duplicate());
    assert_eq!(again.key(), first.key());
    let other = start(&stage.other, "tells", 2).await.unwrap_err();
    assert!(matches!(other, Error::Rejected(Rejection::Conflict)), "{other}");
    let running = stage.worker().workflow(tells).start().unwrap();
    first.signal("add", &1).await.unwrap();
    assert_eq!(again.result().await.unwrap(), 1);
    let late = start(&stage.other, "tells", 1).await.unwrap();
    assert!(late.is_duplicate());
    assert_eq!(start(&stage.other, "tells", 2).await.unwrap_err().code(), "conflict");
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_workflow_is_cancelled_or_terminated() {
    async fn cleans(ctx: Workflow, _: u32) -> Result<u32, StepError> {
        ctx.set_status("waits")?;
        let waited = ctx.wait_signal::<u32>("never").await;
        ctx.set_status("cleaned up")?;
        waited
    }
    let stage = Stage::new().await;
    let worker = stage
        .worker()
        .concurrency(2)
        .workflow_definition(WorkflowDefinition::named("cleans", cleans));
    let running = worker.start().unwrap();
    for (id, force, last) in [("a", false, "cleaned up"), ("b", true, "waits")] {
        let handle: WorkflowHandle<u32> = start(&stage.other, "cleans", 0).id(id).await.unwrap();
        handle.wait_for_status(None).await.unwrap();
        match force {
            true => handle.terminate("enough").await.unwrap(),
            false => handle.cancel("enough").await.unwrap(),
        }
        let ended = handle.wait().await.unwrap();
        assert_eq!(ended.lifecycle.public(), PublicState::Cancelled);
        assert_eq!(handle.result().await.unwrap_err().code(), "not_completed");
        assert_eq!(handle.status().await.unwrap().unwrap().text, last);
        assert_eq!(handle.signal("never", &1).await.unwrap_err().code(), "already_terminal");
    }
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_missing_workflow_are_rejected_and_change_nothing() {
    let stage = Stage::new().await;
    let missing = stage.other.workflow(key("missing")).returning::<u32>();
    let before = stage.memory.snapshot();
    assert_eq!(missing.signal("add", &1).await.unwrap_err().code(), "task_not_found");
    assert_eq!(missing.cancel("enough").await.unwrap_err().code(), "task_not_found");
    assert_eq!(missing.terminate("enough").await.unwrap_err().code(), "task_not_found");
    assert_eq!(missing.result().await.unwrap_err().code(), "task_not_found");
    assert_eq!(missing.wait_for_status(None).await.unwrap_err().code(), "task_not_found");
    assert_eq!(stage.memory.snapshot(), before);
    assert_eq!(missing.status().await.unwrap(), None);
    stage.create("plain", "1").await;
    let plain = stage.other.workflow(key("plain"));
    assert_eq!(plain.history().await.unwrap_err().code(), "not_a_workflow");

    // Nothing is stalled by it, and a message to an existing workflow waits for its code.
    let handle = start(&stage.other, "tells", 1).await.unwrap();
    handle.signal("add", &5).await.unwrap();
    let running = stage.worker().workflow(tells).start().unwrap();
    assert_eq!(handle.result().await.unwrap(), 5);
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn all_executions_are_listed() {
    async fn counts(ctx: Workflow, n: u32) -> Result<u32, StepError> {
        if n == 0 {
            return Ok(ctx.info().execution);
        }
        match ctx.continue_as_new(&(n - 1)).await? {}
    }
    let stage = Stage::new().await;
    let running = stage
        .worker()
        .workflow_definition(WorkflowDefinition::named("counts", counts))
        .start()
        .unwrap();
    let handle = start(&stage.other, "counts", 4).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 4);
    let numbers: Vec<u32> =
        handle.executions().await.unwrap().iter().map(|execution| execution.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_signal_may_be_buffered_before_the_workflow_starts() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(tells).start().unwrap();
    let keep = Duration::from_secs(3_600);
    let expected = stage.other.workflow(key("tells")).returning::<u32>();
    let rejected = expected.signal("add", &1).await.unwrap_err();
    assert_eq!(rejected.code(), "task_not_found", "it is not buffered by default");
    for number in [3, 4] {
        let sent = expected.signal("add", &number).buffer_for(keep).await.unwrap();
        assert!(sent.buffered);
    }
    start(&stage.other, "tells", 3).await.unwrap();
    let sent = expected.signal("add", &5).buffer_for(keep).await.unwrap();
    assert_eq!((sent.seq, sent.buffered), (3, false));
    assert_eq!(expected.result().await.unwrap(), 12);
    let rejected = expected.signal("add", &6).buffer_for(keep).await.unwrap_err();
    assert_eq!(rejected.code(), "already_terminal");
    let missing = stage.other.workflow(key("missing"));
    missing.signal("add", &1).buffer_for(keep).await.unwrap();
    tokio::time::sleep(keep + Duration::from_secs(5)).await;
    assert_eq!(stage.other.messages(missing.key(), 0, 10).await.unwrap().len(), 0);
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_signal_may_start_its_workflow() {
    let stage = Stage::new().await;
    let running = stage.worker().workflow(tells).start().unwrap();
    for (number, duplicate) in [(3, false), (4, false), (4, true), (5, false)] {
        let signal = stage.other.signal("tells", "add").payload(&number);
        let signal = signal.idempotency_key(format!("add {number}"));
        // The id of the signal replaces that of the builder.
        let sent = signal.start_if_absent(start(&stage.other, "tells", 3).id("ignored")).await;
        let sent = sent.unwrap();
        assert_eq!((sent.duplicate, sent.buffered), (duplicate, false), "{number}");
    }
    let handle = stage.other.workflow(key("tells")).returning::<u32>();
    assert_eq!(handle.result().await.unwrap(), 12);
    let signal = stage.other.signal("tells", "add").payload(&6);
    let late = signal.start_if_absent(start(&stage.other, "tells", 3)).await.unwrap_err();
    assert_eq!(late.code(), "already_terminal");
    let invalid = stage.other.signal("other", "add").start_if_absent(stage.other.create(""));
    assert_eq!(invalid.await.unwrap_err().code(), "invalid");
    let other = stage.other.workflow(key("other")).task().await.unwrap_err();
    assert_eq!(other.code(), "task_not_found", "a rejected start leaves nothing");
    running.drain(Duration::from_secs(10)).await;
}

/// Whichever commits first, each workflow gets its message.
#[tokio::test(start_paused = true)]
async fn a_start_and_a_buffered_signal_may_race() {
    async fn speaks(ctx: Workflow, n: u32) -> Result<(), StepError> {
        let keep = Duration::from_secs(60);
        for id in 0..n {
            ctx.signal_buffered(format!("by {id}"), "add", &1, keep)?;
        }
        let rejected = ctx.signal_buffered("x", "add", &1, Duration::ZERO).unwrap_err();
        assert!(rejected.to_string().contains("ttl_ms"), "{rejected}");
        Ok(())
    }
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(16).workflow(tells);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("speaks", speaks)).start().unwrap();
    let keep = Duration::from_secs(60);
    let mut started = Vec::new();
    for n in 0..40 {
        let id = format!("t{n}");
        let (speaker, starter) = (stage.other.clone(), stage.engine.clone());
        let to = id.clone();
        let speaks =
            tokio::spawn(
                async move { speaker.signal(to, "add").payload(&7).buffer_for(keep).await },
            );
        let handle = starter.start_workflow_named::<u32>("tells", &1).id(id).await.unwrap();
        speaks.await.unwrap().unwrap();
        started.push((handle, 7));
    }
    let speaker = stage.other.start_workflow_named::<()>("speaks", &5).await.unwrap();
    for id in 0..5 {
        let one = stage.engine.start_workflow_named::<u32>("tells", &1).id(format!("by {id}"));
        started.push((one.await.unwrap(), 1));
    }
    speaker.result().await.unwrap();
    for (handle, expected) in started {
        assert_eq!(handle.result().await.unwrap(), expected, "{}", handle.id());
    }
    running.drain(Duration::from_secs(10)).await;
}
