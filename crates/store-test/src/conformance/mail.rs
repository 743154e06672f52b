use windlass_core::command::{
    Cancel, Claim, Create, CreateWaitpoint, CreatedWaitpoint, DeleteTask, NewMessage, NewTask,
    NewWaitpoint, Post, Posted, Resume, RotateKey, Signal, Suspend, SuspendTimeout, Sweep,
    TakeMessages,
};
use windlass_core::{
    Command, Condition, Fence, Mailbox, OnTimeout, Outcome, Payload, PublicState, Rejection,
    Secret, Table, Task, TaskKey, Tenant, Token, read_row,
};
use windlass_store::{Query, Store};

use super::case::{Verdict, Wrong};
use super::ground::{Ground, ensure, same};
use crate::runner::execute;

fn key() -> TaskKey {
    TaskKey::new(&Tenant::default(), &"t".into())
}

/// Task `t` under a lease.
async fn held(ground: &Ground<'_>) -> Result<Fence, Wrong> {
    ground.must(Create::one(NewTask::new("t", "k"))).await?;
    claimed(ground).await
}

async fn claimed(ground: &Ground<'_>) -> Result<Fence, Wrong> {
    match ground.must(Claim::new("w")).await? {
        Outcome::Claimed(tasks) if tasks.len() == 1 => Ok(tasks[0].fence()),
        other => Err(Wrong(format!("claimed {other:?}"))),
    }
}

async fn state(ground: &Ground<'_>) -> Result<Option<PublicState>, Wrong> {
    let row = ground.row(&key().row_key()).await?;
    let task = row.and_then(|row| read_row::<Task>(row.schema, &row.body));
    Ok(task.map(|task| task.lifecycle.public()))
}

async fn rows(ground: &Ground<'_>, table: Table) -> Result<usize, Wrong> {
    Ok(ground.store.query(&Query::all(table, 10_000)).await?.len())
}

fn message(name: &str) -> NewMessage {
    NewMessage::new("t", name, "ops")
}

async fn post(ground: &Ground<'_>, message: NewMessage) -> Result<Posted, Wrong> {
    match ground.must(Post::one(message)).await? {
        Outcome::Posted(posted) if posted.len() == 1 => Ok(posted[0].clone()),
        other => Err(Wrong(format!("posted {other:?}"))),
    }
}

fn rotation(id: &str, secret: &str) -> RotateKey {
    let secret = Secret::new(secret.repeat(32));
    RotateKey { tenant: Tenant::default(), id: id.into(), secret, grace_ms: 60_000, seed: false }
}

fn waitpoint(id: &str) -> CreateWaitpoint {
    let waitpoint = NewWaitpoint { id: id.into(), expires_ms: 120_000 };
    CreateWaitpoint { task: key(), epoch: None, waitpoint }
}

async fn made(ground: &Ground<'_>, id: &str) -> Result<CreatedWaitpoint, Wrong> {
    match ground.must(waitpoint(id)).await? {
        Outcome::WaitpointCreated(made) => Ok(made),
        other => Err(Wrong(format!("made {other:?}"))),
    }
}

fn signal(token: &Token) -> Signal {
    Signal {
        tenant: Tenant::default(),
        token: token.clone(),
        name: "yes".into(),
        source: "ada".into(),
        idempotency: None,
        payload: Some(Payload::json("true")),
    }
}

async fn refused(ground: &Ground<'_>, what: &str, command: Command, code: &str) -> Verdict {
    let found = ground.run(command).await?.map_err(|rejection| rejection.code());
    ensure(found == Err(code), || format!("{what}: {found:?} instead of {code}"))
}

pub(super) async fn a_message_resumes_a_suspended_task(ground: &Ground<'_>) -> Verdict {
    let fence = held(ground).await?;
    let condition = Condition::All(vec![Condition::signal("a"), Condition::signal("b")]);
    let suspend = Suspend::new(fence.clone(), condition);
    let first = ground.must(suspend.clone()).await?;
    same("a repeat", &ground.must(suspend).await?, &first)?;
    same("after one", &post(ground, message("b")).await?.resumed, &false)?;
    same("the state", &state(ground).await?, &Some(PublicState::Suspended))?;
    same("after both", &post(ground, message("a")).await?.resumed, &true)?;
    same("the state", &state(ground).await?, &Some(PublicState::Resumable))?;
    let again = claimed(ground).await?;
    same("the epoch", &again.epoch, &(fence.epoch + 1))?;
    let taken = ground.must(TakeMessages { fence: again, seqs: vec![1, 2, 3] }).await?;
    same("taken", &taken, &Outcome::Taken { taken: 2 })?;
    same("messages", &rows(ground, Table::Message).await?, &0)
}

pub(super) async fn a_satisfied_condition_keeps_the_lease(ground: &Ground<'_>) -> Verdict {
    let fence = held(ground).await?;
    post(ground, message("go")).await?;
    let suspend = Suspend::new(fence, Condition::signal("go"));
    let first = ground.must(suspend.clone()).await?;
    ensure(matches!(first, Outcome::AlreadySatisfied(_)), || format!("{first:?}"))?;
    same("a repeat", &ground.must(suspend.clone()).await?, &first)?;
    let next = ground.must(Suspend { nth: 1, ..suspend }).await?;
    same("the next one", &next, &Outcome::Suspended { waitpoints: Vec::new() })
}

pub(super) async fn each_timeout_action_ends_a_suspension(ground: &Ground<'_>) -> Verdict {
    let ways = [
        (OnTimeout::Fail, PublicState::Failed),
        (OnTimeout::Cancel, PublicState::Cancelled),
        (OnTimeout::Expire, PublicState::Expired),
        (OnTimeout::Resume, PublicState::Resumable),
        (OnTimeout::Escalate, PublicState::Suspended),
    ];
    for (then, expected) in ways {
        let fence = held(ground).await?;
        let timeout = Some(SuspendTimeout { after_ms: 1_000, then });
        ground.must(Suspend { timeout, ..Suspend::new(fence, Condition::signal("go")) }).await?;
        ground.clock.advance_ms(1_001);
        ground.must(Sweep::default()).await?;
        same(&format!("{then:?}"), &state(ground).await?, &Some(expected))?;
        if then == OnTimeout::Escalate {
            ground.must(Resume { task: key(), by: "ada".into() }).await?;
            same("by an operator", &state(ground).await?, &Some(PublicState::Resumable))?;
        }
        if matches!(expected, PublicState::Resumable | PublicState::Suspended) {
            ground.must(Cancel { task: key(), reason: "done".into() }).await?;
        }
        ground.must(DeleteTask { task: key() }).await?;
        same("mailboxes", &rows(ground, Table::Mailbox).await?, &0)?;
        same("messages", &rows(ground, Table::Message).await?, &0)?;
    }
    Ok(())
}

pub(super) async fn a_timer_is_a_delayed_message(ground: &Ground<'_>) -> Verdict {
    let fence = held(ground).await?;
    post(ground, NewMessage { after_ms: 5_000, ..message("go") }).await?;
    ground.must(Suspend::new(fence, Condition::signal("go"))).await?;
    ground.must(Sweep::default()).await?;
    same("before", &state(ground).await?, &Some(PublicState::Suspended))?;
    ground.clock.advance_ms(5_001);
    ground.must(Sweep::default()).await?;
    same("after", &state(ground).await?, &Some(PublicState::Resumable))
}

pub(super) async fn a_token_completes_its_waitpoint_once(ground: &Ground<'_>) -> Verdict {
    let fence = held(ground).await?;
    refused(ground, "without a key", waitpoint("p").into(), "no_signing_key").await?;
    ground.must(rotation("k1", "07")).await?;
    let first = made(ground, "p").await?;
    same("repeated request", &made(ground, "p").await?, &first)?;
    ground.must(Suspend::new(fence, Condition::waitpoint("p"))).await?;
    let text = first.token.reveal();
    let end = if text.ends_with('0') { "1" } else { "0" };
    let tampered = Token::new(format!("{}{end}", &text[..text.len() - 1]));
    refused(ground, "tampered", signal(&tampered).into(), "token_invalid").await?;
    let foreign = Signal { tenant: "acme".into(), ..signal(&first.token) };
    refused(ground, "foreign", foreign.into(), "token_invalid").await?;
    let answer = ground.must(signal(&first.token)).await?;
    let resumed = matches!(&answer, Outcome::Posted(posted) if posted[0].resumed);
    ensure(resumed, || format!("{answer:?}"))?;
    refused(ground, "replayed", signal(&first.token).into(), "waitpoint_used").await
}

pub(super) async fn a_signing_key_expires_after_its_grace(ground: &Ground<'_>) -> Verdict {
    held(ground).await?;
    ground.must(rotation("k1", "07")).await?;
    let (old, older) = (made(ground, "p").await?, made(ground, "q").await?);
    let rotated = ground.must(rotation("k2", "08")).await?;
    same("a fresh key", &rotated, &Outcome::KeyRotated { unchanged: false })?;
    let again = ground.must(rotation("k1", "07")).await?;
    same("a known key", &again, &Outcome::KeyRotated { unchanged: true })?;
    refused(ground, "another secret", rotation("k2", "09").into(), "conflict").await?;
    let fresh = made(ground, "r").await?;
    ground.must(signal(&old.token)).await?;
    ground.clock.advance_ms(60_001);
    refused(ground, "after its grace", signal(&older.token).into(), "token_invalid").await?;
    ground.must(Sweep::default()).await?;
    refused(ground, "forgotten", signal(&older.token).into(), "token_invalid").await?;
    ground.must(signal(&fresh.token)).await?;
    let late = made(ground, "s").await?;
    ground.clock.advance_ms(120_001);
    refused(ground, "expired", signal(&late.token).into(), "token_expired").await
}

/// Several pages of messages, and waitpoints.
pub(super) async fn a_mailbox_is_deleted_with_its_task(ground: &Ground<'_>) -> Verdict {
    let mut new = NewTask::new("t", "k");
    new.policy.retention_ms = 0;
    ground.must(Create::one(new)).await?;
    ground.must(rotation("k1", "07")).await?;
    let payload = Some(Payload::json("1"));
    let messages = vec![NewMessage { payload, ..message("a") }; 700];
    ground.must(Post { tenant: Tenant::default(), messages }).await?;
    for n in 0..10 {
        made(ground, &n.to_string()).await?;
    }
    let crowd = vec![message("a"); 301];
    let crowd = Post { tenant: Tenant::default(), messages: crowd };
    refused(ground, "too many", crowd.into(), "mailbox_full").await?;
    ground.must(Cancel { task: key(), reason: "stop".into() }).await?;
    refused(ground, "ended", Post::one(message("a")).into(), "ended").await?;
    for _ in 0..3 {
        ensure(state(ground).await?.is_some(), || "deleted before its messages".into())?;
        ground.must(Sweep::default()).await?;
    }
    same("the task", &state(ground).await?, &None)?;
    for table in [Table::Message, Table::Waitpoint, Table::Mailbox] {
        same("leftover rows", &rows(ground, table).await?, &0)?;
    }
    Ok(())
}

const ROUNDS: u64 = 40;

/// One handle suspends while another posts: the second to commit sees the first.
pub(super) async fn no_message_is_lost_between_suspend_and_post(ground: &Ground<'_>) -> Verdict {
    let other = ground.another().await;
    let mut fence = held(ground).await?;
    for round in 0..ROUNDS {
        let suspend = Suspend::new(fence.clone(), Condition::signal("go"));
        let suspended = run(&*ground.store, suspend.into());
        let posted = run(&*other, Post::one(message("go")).into());
        let (suspended, posted) = match round % 2 {
            0 => tokio::join!(suspended, posted),
            _ => {
                let (posted, suspended) = tokio::join!(posted, suspended);
                (suspended, posted)
            }
        };
        let resumed = matches!(&posted?, Ok(Outcome::Posted(posted)) if posted[0].resumed);
        let stayed = matches!(suspended?, Ok(Outcome::AlreadySatisfied(_)));
        ensure(resumed != stayed, || format!("round {round}: resumed {resumed}, stayed {stayed}"))?;
        if resumed {
            fence = claimed(ground).await?;
        } else {
            ground.must(windlass_core::command::Release { fence: fence.clone() }).await?;
            let cleared = claimed(ground).await?;
            let seqs = (1..=round + 1).collect();
            ground.must(TakeMessages { fence: cleared.clone(), seqs }).await?;
            fence = cleared;
        }
        let mailbox = ground.row(&Mailbox::key_of(&Tenant::default(), &"t".into())).await?;
        ensure(mailbox.is_some(), || "the mailbox is lost".into())?;
    }
    Ok(())
}

async fn run(store: &dyn Store, command: Command) -> Result<Result<Outcome, Rejection>, Wrong> {
    Ok(execute(store, &command).await?)
}
