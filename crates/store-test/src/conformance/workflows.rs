use std::sync::Arc;

use windlass_core::command::{
    Claim, ClaimGranted, CommitTurn, Complete, CompleteAndCommitTurn, Create, DeleteTask, IfAbsent,
    NewMessage, NewTask, NewWorkflow, SendMessages, Sweep, TurnEnd, WorkflowCommand,
};
use windlass_core::{Fence, Message, Outcome, Payload, Table, Task, TaskKey, Tenant, read_row};
use windlass_store::{Clock as _, Query};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};

const ID: &str = "w\u{f6}rkflow";

fn turn(fence: Fence, turn: u32, end: TurnEnd) -> CommitTurn {
    CommitTurn {
        fence,
        turn,
        row: Some(Payload::json(format!("{{\"at\":{turn}}}"))),
        consumed: Vec::new(),
        commands: Vec::new(),
        next_step: 2,
        end,
        sticky_ms: None,
        eager: None,
        metadata: None,
    }
}

async fn claim(context: &Context<'_>, lane: &str) -> Result<Arc<Task>, Wrong> {
    let claim = Claim { lanes: vec![lane.into()], ..Claim::new("w") };
    match context.must(claim).await? {
        Outcome::Claimed(tasks) if tasks.len() == 1 => Ok(tasks[0].clone()),
        other => Err(Wrong(format!("expected one claimed task, not {other:?}"))),
    }
}

async fn started(context: &Context<'_>) -> Result<Arc<Task>, Wrong> {
    let workflow = Some(NewWorkflow::default());
    context.must(Create::one(NewTask { workflow, ..NewTask::new(ID, "order") })).await?;
    claim(context, "default").await
}

fn activity() -> WorkflowCommand {
    let (lane, payload) = ("work".into(), Some(Payload::json("1")));
    let task = NewTask { lane, payload, ..NewTask::new(format!("{ID}/0"), "charge") };
    WorkflowCommand::Activity { step: 0, task, eager: false }
}

async fn count(context: &Context<'_>, table: Table) -> Result<usize, Wrong> {
    Ok(context.store.query(&Query::all(table, 100)).await?.len())
}

pub(super) async fn a_step_completes_and_its_workflow_resumes(context: &Context<'_>) -> Verdict {
    let first = started(context).await?;
    let at = context.clock.now().plus_ms(60_000);
    let commands = vec![
        activity(),
        WorkflowCommand::Timer { step: 1, at },
        WorkflowCommand::SetProperty { name: String::new(), text: Some("h\u{e4}lf way".into()) },
    ];
    context.must(CommitTurn { commands, ..turn(first.fence(), 0, TurnEnd::AwaitMessages) }).await?;
    let step = claim(context, "work").await?;
    let result = Some(Payload::json("\"\u{1f4b6}\""));
    context.must(Complete { fence: step.fence(), result: result.clone() }).await?;
    let messages = context.store.query(&Query::all(Table::Message, 100)).await?;
    same("a step completion and a timer", &messages.len(), &2)?;
    let second = claim(context, "default").await?;
    let key = windlass_core::PayloadKey {
        tenant: Tenant::default(),
        task: step.id.clone(),
        execution: 0,
        slot: windlass_core::Slot::RESULT,
    };
    let stored = context.store.payloads(std::slice::from_ref(&key)).await?.pop().flatten();
    same("the result exists until its message is consumed", &stored, &result)?;
    let consume = CommitTurn {
        consumed: vec![Message::of_step(0)],
        ..turn(second.fence(), 1, TurnEnd::AwaitMessages)
    };
    context.must(consume).await?;
    let stored = context.store.payloads(std::slice::from_ref(&key)).await?.pop().flatten();
    same("the result is deleted with its message", &stored, &None)?;
    context.clock.advance_ms(60_000);
    context.must(Sweep::default()).await?;
    let third = claim(context, "default").await?;
    let end = TurnEnd::Complete(Some(Payload::json("7")));
    context.must(turn(third.fence(), 2, end)).await?;
    let rows: Vec<_> = (0..3).map(|row| third.turn_key(row)).collect();
    let rows = context.store.payloads(&rows).await?;
    ensure(rows.iter().all(Option::is_some), || "a history row is missing".into())?;
    context.must(DeleteTask { task: TaskKey::new(&Tenant::default(), &ID.into()) }).await?;
    for table in
        [Table::Task, Table::Message, Table::Mailbox, Table::WorkflowProperty, Table::Children]
    {
        same("leftover rows", &(table, count(context, table).await?), &(table, 0))?;
    }
    Ok(())
}

pub(super) async fn a_message_is_buffered_for_its_workflow(context: &Context<'_>) -> Verdict {
    let payload = Some(Payload::json("\"fr\u{fc}h\""));
    let buffered = |id: &str| NewMessage {
        if_absent: IfAbsent::Buffer { ttl_ms: 60_000 },
        payload: payload.clone(),
        ..NewMessage::new(id, "go", "ops")
    };
    for id in [ID, "never"] {
        context.must(SendMessages::one(buffered(id))).await?;
    }
    let unheard = context.run(SendMessages::one(NewMessage::new("never", "go", "ops"))).await?;
    same(
        "without buffering",
        &unheard.map_err(|rejection| rejection.code()),
        &Err("task_not_found"),
    )?;
    let task = started(context).await?;
    context.must(SendMessages::one(buffered(ID))).await?;
    let messages = context.store.query(&Query::all(Table::Message, 100)).await?;
    let read = |row: &windlass_core::StoredRow| read_row::<Message>(row.schema, &row.body);
    let seen: Vec<_> = messages.iter().filter_map(read).collect();
    let seen = seen.iter().filter(|message| message.due_at.is_none());
    let seen: Vec<_> = seen.map(|message| (message.task.as_str(), message.seq)).collect();
    same("visible messages", &seen, &vec![(ID, 1), (ID, 2)])?;
    let end = CommitTurn { consumed: vec![1, 2], ..turn(task.fence(), 0, TurnEnd::Complete(None)) };
    context.must(end).await?;
    context.must(DeleteTask { task: task.task_key() }).await?;
    context.clock.advance_ms(61_000);
    context.must(Sweep::default()).await?;
    for table in [Table::Message, Table::Mailbox] {
        same("leftover rows", &(table, count(context, table).await?), &(table, 0))?;
    }
    Ok(())
}

pub(super) async fn an_activity_completes_with_the_next_turn(context: &Context<'_>) -> Verdict {
    let first = started(context).await?;
    let commands = vec![activity()];
    let sticky_ms = Some(5_000);
    context
        .must(CommitTurn { commands, sticky_ms, ..turn(first.fence(), 0, TurnEnd::AwaitMessages) })
        .await?;
    let step = claim(context, "work").await?;
    let fence = Fence { epoch: first.epoch + 1, ..first.fence() };
    let advance = |turn: CommitTurn| CompleteAndCommitTurn {
        complete: Complete { fence: step.fence(), result: Some(Payload::json("1")) },
        claim: ClaimGranted::new(ID, "w"),
        turn: CommitTurn { consumed: vec![Message::of_step(0)], ..turn },
    };
    let other = context.run(advance(turn(fence.clone(), 7, TurnEnd::AwaitMessages))).await?;
    same("another turn", &other.map_err(|rejection| rejection.code()), &Err("turn_mismatch"))?;
    same("both tasks exist", &count(context, Table::Task).await?, &2)?;
    let end = advance(turn(fence, 1, TurnEnd::Complete(Some(Payload::json("2")))));
    context.must(end.clone()).await?;
    context.must(end).await?;
    same("the activity is deleted", &count(context, Table::Task).await?, &1)?;
    same("no message is written", &count(context, Table::Message).await?, &0)?;
    let rows = context.store.payloads(&[first.turn_key(0), first.turn_key(1)]).await?;
    ensure(rows.iter().all(Option::is_some), || "a history row is missing".into())?;
    context.must(DeleteTask { task: first.task_key() }).await?;
    for table in [Table::Task, Table::Mailbox, Table::Children] {
        same("leftover rows", &(table, count(context, table).await?), &(table, 0))?;
    }
    Ok(())
}

pub(super) async fn a_workflow_continues_as_new(context: &Context<'_>) -> Verdict {
    let first = started(context).await?;
    context.must(SendMessages::one(NewMessage::new(ID, "go", "ops"))).await?;
    let over = TurnEnd::ContinueAsNew {
        input: Some(Payload::json("8")),
        version: None,
        carried: Some(Payload::json("[]")),
    };
    context.must(CommitTurn { consumed: vec![1], ..turn(first.fence(), 0, over) }).await?;
    let second = claim(context, "default").await?;
    same("the next execution", &second.execution, &1)?;
    let input = second.input_key().ok_or_else(|| Wrong("the execution has no input".into()))?;
    let input = context.store.payloads(&[input]).await?.pop().flatten();
    same("its input", &input, &Some(Payload::json("8")))?;
    same("the previous execution", &count(context, Table::Execution).await?, &1)?;
    context.must(turn(second.fence(), 0, TurnEnd::Complete(None))).await?;
    context.clock.advance_ms(8 * 86_400_000);
    for _ in 0..3 {
        context.must(Sweep::default()).await?;
    }
    for table in [Table::Task, Table::Execution, Table::Mailbox] {
        same("leftover rows", &(table, count(context, table).await?), &(table, 0))?;
    }
    Ok(())
}
