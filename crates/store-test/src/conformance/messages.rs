use windlass_core::command::{
    Cancel, Claim, CompleteWaitpoint, ConsumeMessages, Create, CreateWaitpoint, CreatedWaitpoint,
    Delay, DeleteTask, NewMessage, NewTask, NewWaitpoint, Resume, RotateSigningKey, SendMessages,
    SentMessage, Suspend, SuspendTimeout, Sweep,
};
use windlass_core::{
    Command, Condition, Fence, Mailbox, OnTimeout, Outcome, Payload, PublicState, Rejection,
    Secret, Table, Task, TaskKey, Tenant, Token, read_row,
};
use windlass_store::{Query, Store};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};
use crate::runner::execute;

fn key() -> TaskKey {
    TaskKey::new(&Tenant::default(), &"t".into())
}

/// Task `t` under a lease.
async fn held(context: &Context<'_>) -> Result<Fence, Wrong> {
    context.must(Create::one(NewTask::new("t", "k"))).await?;
    claimed(context).await
}

async fn claimed(context: &Context<'_>) -> Result<Fence, Wrong> {
    match context.must(Claim::new("w")).await? {
        Outcome::Claimed(tasks) if tasks.len() == 1 => Ok(tasks[0].fence()),
        other => Err(Wrong(format!("claimed {other:?}"))),
    }
}

async fn state(context: &Context<'_>) -> Result<Option<PublicState>, Wrong> {
    let row = context.row(&key().row_key()).await?;
    let task = row.and_then(|row| read_row::<Task>(row.schema, &row.body));
    Ok(task.map(|task| task.lifecycle.public()))
}

async fn rows(context: &Context<'_>, table: Table) -> Result<usize, Wrong> {
    Ok(context.store.query(&Query::all(table, 10_000)).await?.len())
}

fn message(name: &str) -> NewMessage {
    NewMessage::new("t", name, "ops")
}

async fn send(context: &Context<'_>, message: NewMessage) -> Result<SentMessage, Wrong> {
    match context.must(SendMessages::one(message)).await? {
        Outcome::Sent(sent) if sent.len() == 1 => Ok(sent[0].clone()),
        other => Err(Wrong(format!("sent {other:?}"))),
    }
}

fn rotation(id: &str, secret: &str) -> RotateSigningKey {
    let secret = Secret::new(secret.repeat(32));
    RotateSigningKey {
        tenant: Tenant::default(),
        id: id.into(),
        secret,
        grace_ms: 60_000,
        if_absent: false,
    }
}

fn waitpoint(id: &str) -> CreateWaitpoint {
    let waitpoint = NewWaitpoint { id: id.into(), ttl_ms: 120_000 };
    CreateWaitpoint { task: key(), epoch: None, waitpoint }
}

async fn made(context: &Context<'_>, id: &str) -> Result<CreatedWaitpoint, Wrong> {
    match context.must(waitpoint(id)).await? {
        Outcome::WaitpointCreated(made) => Ok(made),
        other => Err(Wrong(format!("made {other:?}"))),
    }
}

fn signal(token: &Token) -> CompleteWaitpoint {
    CompleteWaitpoint {
        tenant: Tenant::default(),
        token: token.clone(),
        name: "yes".into(),
        source: "ada".into(),
        idempotency: None,
        payload: Some(Payload::json("true")),
    }
}

async fn rejected(context: &Context<'_>, what: &str, command: Command, code: &str) -> Verdict {
    let found = context.run(command).await?.map_err(|rejection| rejection.code());
    ensure(found == Err(code), || format!("{what}: {found:?} instead of {code}"))
}

pub(super) async fn a_message_resumes_a_suspended_task(context: &Context<'_>) -> Verdict {
    let fence = held(context).await?;
    let condition = Condition::All(vec![Condition::signal("a"), Condition::signal("b")]);
    let suspend = Suspend::new(fence.clone(), condition);
    let first = context.must(suspend.clone()).await?;
    same("a repeat", &context.must(suspend).await?, &first)?;
    same("after one", &send(context, message("b")).await?.resumed, &false)?;
    same("the state", &state(context).await?, &Some(PublicState::Suspended))?;
    same("after both", &send(context, message("a")).await?.resumed, &true)?;
    same("the state", &state(context).await?, &Some(PublicState::Resumable))?;
    let again = claimed(context).await?;
    same("the epoch", &again.epoch, &(fence.epoch + 1))?;
    let outcome = context.must(ConsumeMessages { fence: again, seqs: vec![1, 2, 3] }).await?;
    same("taken", &outcome, &Outcome::Consumed { consumed: 2 })?;
    same("messages", &rows(context, Table::Message).await?, &0)
}

pub(super) async fn a_satisfied_condition_keeps_the_lease(context: &Context<'_>) -> Verdict {
    let fence = held(context).await?;
    send(context, message("go")).await?;
    let suspend = Suspend::new(fence, Condition::signal("go"));
    let first = context.must(suspend.clone()).await?;
    ensure(matches!(first, Outcome::AlreadySatisfied(_)), || format!("{first:?}"))?;
    same("a repeat", &context.must(suspend.clone()).await?, &first)?;
    let next = context.must(Suspend { nth: 1, ..suspend }).await?;
    same("the next one", &next, &Outcome::Suspended { waitpoints: Vec::new() })
}

pub(super) async fn each_timeout_action_ends_a_suspension(context: &Context<'_>) -> Verdict {
    let ways = [
        (OnTimeout::Fail, PublicState::Failed),
        (OnTimeout::Cancel, PublicState::Cancelled),
        (OnTimeout::Expire, PublicState::Expired),
        (OnTimeout::Resume, PublicState::Resumable),
        (OnTimeout::Escalate, PublicState::Suspended),
    ];
    for (action, expected) in ways {
        let fence = held(context).await?;
        let timeout = Some(SuspendTimeout { after_ms: 1_000, action });
        context.must(Suspend { timeout, ..Suspend::new(fence, Condition::signal("go")) }).await?;
        context.clock.advance_ms(1_001);
        context.must(Sweep::default()).await?;
        same(&format!("{action:?}"), &state(context).await?, &Some(expected))?;
        if action == OnTimeout::Escalate {
            context.must(Resume { task: key(), by: "ada".into() }).await?;
            same("by an operator", &state(context).await?, &Some(PublicState::Resumable))?;
        }
        if matches!(expected, PublicState::Resumable | PublicState::Suspended) {
            context.must(Cancel { task: key(), reason: "done".into() }).await?;
        }
        context.must(DeleteTask { task: key() }).await?;
        same("mailboxes", &rows(context, Table::Mailbox).await?, &0)?;
        same("messages", &rows(context, Table::Message).await?, &0)?;
    }
    Ok(())
}

pub(super) async fn a_timer_is_a_delayed_message(context: &Context<'_>) -> Verdict {
    let fence = held(context).await?;
    send(context, NewMessage { delay: Delay::For { ms: 5_000 }, ..message("go") }).await?;
    context.must(Suspend::new(fence, Condition::signal("go"))).await?;
    context.must(Sweep::default()).await?;
    same("before", &state(context).await?, &Some(PublicState::Suspended))?;
    context.clock.advance_ms(5_001);
    context.must(Sweep::default()).await?;
    same("after", &state(context).await?, &Some(PublicState::Resumable))
}

pub(super) async fn a_token_completes_its_waitpoint_once(context: &Context<'_>) -> Verdict {
    let fence = held(context).await?;
    rejected(context, "without a key", waitpoint("p").into(), "no_signing_key").await?;
    context.must(rotation("k1", "07")).await?;
    let first = made(context, "p").await?;
    same("repeated request", &made(context, "p").await?, &first)?;
    context.must(Suspend::new(fence, Condition::waitpoint("p"))).await?;
    let text = first.token.expose_secret();
    let end = if text.ends_with('0') { "1" } else { "0" };
    let tampered = Token::new(format!("{}{end}", &text[..text.len() - 1]));
    rejected(context, "tampered", signal(&tampered).into(), "token_invalid").await?;
    let of_other_tenant = CompleteWaitpoint { tenant: "acme".into(), ..signal(&first.token) };
    rejected(context, "foreign", of_other_tenant.into(), "token_invalid").await?;
    let answer = context.must(signal(&first.token)).await?;
    let resumed = matches!(&answer, Outcome::Sent(sent) if sent[0].resumed);
    ensure(resumed, || format!("{answer:?}"))?;
    rejected(context, "replayed", signal(&first.token).into(), "waitpoint_completed").await
}

pub(super) async fn a_signing_key_expires_after_its_grace(context: &Context<'_>) -> Verdict {
    held(context).await?;
    context.must(rotation("k1", "07")).await?;
    let (old, older) = (made(context, "p").await?, made(context, "q").await?);
    let rotated = context.must(rotation("k2", "08")).await?;
    same("a fresh key", &rotated, &Outcome::SigningKeyRotated { unchanged: false })?;
    let again = context.must(rotation("k1", "07")).await?;
    same("a known key", &again, &Outcome::SigningKeyRotated { unchanged: true })?;
    rejected(context, "another secret", rotation("k2", "09").into(), "conflict").await?;
    let fresh = made(context, "r").await?;
    context.must(signal(&old.token)).await?;
    context.clock.advance_ms(60_001);
    rejected(context, "after its grace", signal(&older.token).into(), "token_invalid").await?;
    context.must(Sweep::default()).await?;
    rejected(context, "forgotten", signal(&older.token).into(), "token_invalid").await?;
    context.must(signal(&fresh.token)).await?;
    let late = made(context, "s").await?;
    context.clock.advance_ms(120_001);
    rejected(context, "expired", signal(&late.token).into(), "token_expired").await
}

/// Several pages of messages, and waitpoints.
pub(super) async fn a_mailbox_is_deleted_with_its_task(context: &Context<'_>) -> Verdict {
    let mut new = NewTask::new("t", "k");
    new.policy.retention_ms = 0;
    context.must(Create::one(new)).await?;
    context.must(rotation("k1", "07")).await?;
    let payload = Some(Payload::json("1"));
    let messages = vec![NewMessage { payload, ..message("a") }; 700];
    context.must(SendMessages { tenant: Tenant::default(), messages }).await?;
    for n in 0..10 {
        made(context, &n.to_string()).await?;
    }
    let crowd = vec![message("a"); 301];
    let crowd = SendMessages { tenant: Tenant::default(), messages: crowd };
    rejected(context, "too many", crowd.into(), "mailbox_full").await?;
    context.must(Cancel { task: key(), reason: "stop".into() }).await?;
    rejected(context, "ended", SendMessages::one(message("a")).into(), "already_terminal").await?;
    for _ in 0..3 {
        ensure(state(context).await?.is_some(), || "deleted before its messages".into())?;
        context.must(Sweep::default()).await?;
    }
    same("the task", &state(context).await?, &None)?;
    for table in [Table::Message, Table::Waitpoint, Table::Mailbox] {
        same("leftover rows", &rows(context, table).await?, &0)?;
    }
    Ok(())
}

const ROUNDS: u64 = 40;

/// One handle suspends while another sends: the second to commit sees the first.
pub(super) async fn no_message_is_lost_between_suspend_and_send(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    let mut fence = held(context).await?;
    for round in 0..ROUNDS {
        let suspend = Suspend::new(fence.clone(), Condition::signal("go"));
        let suspended = run(&*context.store, suspend.into());
        let sent = run(&*other, SendMessages::one(message("go")).into());
        let (suspended, sent) = match round % 2 {
            0 => tokio::join!(suspended, sent),
            _ => {
                let (sent, suspended) = tokio::join!(sent, suspended);
                (suspended, sent)
            }
        };
        let resumed = matches!(&sent?, Ok(Outcome::Sent(sent)) if sent[0].resumed);
        let stayed = matches!(suspended?, Ok(Outcome::AlreadySatisfied(_)));
        ensure(resumed != stayed, || format!("round {round}: resumed {resumed}, stayed {stayed}"))?;
        if resumed {
            fence = claimed(context).await?;
        } else {
            context.must(windlass_core::command::Release { fence: fence.clone() }).await?;
            let cleared = claimed(context).await?;
            let seqs = (1..=round + 1).collect();
            context.must(ConsumeMessages { fence: cleared.clone(), seqs }).await?;
            fence = cleared;
        }
        let mailbox = context.row(&Mailbox::key_of(&Tenant::default(), &"t".into())).await?;
        ensure(mailbox.is_some(), || "the mailbox is lost".into())?;
    }
    Ok(())
}

async fn run(store: &dyn Store, command: Command) -> Result<Result<Outcome, Rejection>, Wrong> {
    Ok(execute(store, &command).await?)
}
