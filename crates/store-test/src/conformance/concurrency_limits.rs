//! Concurrency limits on every store: keys, rates, quotas, sessions, and races of two handles.

use std::sync::Arc;

use windlass_core::command::{
    Claim, Complete, Create, NewTask, QuotaScope, ReleaseSession, RenewSessions, SetQuota, Sweep,
};
use windlass_core::{
    ConcurrencyLimit, Fence, LimitKey, LimitKind, Outcome, PublicState, Rate, SESSIONS, Table,
    Task, TaskKey, Tenant, read_row,
};
use windlass_store::{Query, Store};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};
use crate::runner::execute;

fn keyed(id: &str) -> NewTask {
    NewTask { limit_key: Some(LimitKey::Concurrency("k\u{e9}y".into())), ..NewTask::new(id, "k") }
}

fn of_session(id: &str) -> NewTask {
    NewTask { limit_key: Some(LimitKey::Session("s".into())), ..NewTask::new(id, "k") }
}

async fn create(context: &Context<'_>, tasks: Vec<NewTask>) -> Verdict {
    context.must(Create { tenant: Tenant::default(), tasks }).await.map(drop)
}

fn claim_as(worker: &str, limit: u32) -> Claim {
    let mut claim = Claim { limit, ..Claim::new(worker) };
    claim.capabilities.names.insert(SESSIONS.to_owned());
    claim
}

async fn claimed(context: &Context<'_>, claim: Claim) -> Result<Vec<Arc<Task>>, Wrong> {
    match context.must(claim).await? {
        Outcome::Claimed(tasks) => Ok(tasks),
        other => Err(Wrong(format!("unexpected outcome of a claim: {other:?}"))),
    }
}

fn ids(tasks: &[Arc<Task>]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

async fn complete(context: &Context<'_>, fence: Fence) -> Verdict {
    context.must(Complete { fence, result: None }).await.map(drop)
}

async fn set(
    context: &Context<'_>,
    scope: QuotaScope,
    limit: Option<u32>,
    rate: Option<Rate>,
) -> Verdict {
    context.must(SetQuota { tenant: Tenant::default(), scope, limit, rate }).await.map(drop)
}

async fn state(context: &Context<'_>, id: &str) -> Result<PublicState, Wrong> {
    let row = context.row(&TaskKey::new(&Tenant::default(), &id.into()).row_key()).await?;
    let task = row.and_then(|row| read_row::<Task>(row.schema, &row.body));
    Ok(task.ok_or_else(|| Wrong(format!("{id} cannot be decoded")))?.lifecycle.public())
}

async fn limits(store: &dyn Store) -> Result<Vec<Arc<ConcurrencyLimit>>, Wrong> {
    let rows = store.query(&Query::all(Table::ConcurrencyLimit, 100)).await?;
    let read = |row: &windlass_core::StoredRow| read_row::<ConcurrencyLimit>(row.schema, &row.body);
    rows.iter().map(|row| read(row).ok_or_else(|| Wrong(format!("{row:?}")))).collect()
}

pub(super) async fn a_concurrency_key_admits_one_task_at_a_time(context: &Context<'_>) -> Verdict {
    let low = NewTask { priority: -1, ..keyed("a") };
    create(context, vec![keyed("b"), low, keyed("c"), NewTask::new("free", "k")]).await?;
    let first = claimed(context, claim_as("w", 9)).await?;
    same("the first of a key", &ids(&first), &vec!["b", "free"])?;
    same("behind it", &state(context, "c").await?, &PublicState::Blocked)?;
    complete(context, first[0].fence()).await?;
    let second = claimed(context, claim_as("w", 9)).await?;
    same("the next", &ids(&second), &vec!["c"])?;
    complete(context, second[0].fence()).await?;
    let third = claimed(context, claim_as("w", 9)).await?;
    same("the last", &ids(&third), &vec!["a"])?;
    complete(context, third[0].fence()).await?;
    same("leftover limits", &limits(&*context.store).await?.len(), &0)
}

pub(super) async fn a_higher_key_limit_admits_more_tasks(context: &Context<'_>) -> Verdict {
    let names: Vec<String> = (0..30).map(|n| format!("t{n:02}")).collect();
    create(context, names.iter().map(|name| keyed(name)).collect()).await?;
    let key = || QuotaScope::Concurrency("k\u{e9}y".into());
    set(context, key(), Some(20), None).await?;
    let leased = claimed(context, claim_as("w", 10)).await?;
    same("up to the claim limit", &leased.len(), &10)?;
    set(context, key(), Some(12), None).await?;
    same("up to the lower key limit", &claimed(context, claim_as("w", 10)).await?.len(), &2)?;
    set(context, key(), None, None).await?;
    let limit = limits(&*context.store).await?;
    let limit =
        limit.first().ok_or_else(|| Wrong("the concurrency limit does not exist".into()))?;
    same("counted", &(limit.running, limit.admitted, limit.blocked), &(12, 0, 18))
}

pub(super) async fn a_rate_limit_admits_tasks_after_its_window(context: &Context<'_>) -> Verdict {
    let rate = Rate { limit: 2, window_ms: 1_000 };
    set(context, QuotaScope::Concurrency("k\u{e9}y".into()), None, Some(rate)).await?;
    create(context, ["a", "b", "c"].map(keyed).into()).await?;
    same("starts", &claimed(context, claim_as("w", 9)).await?.len(), &2)?;
    context.clock.advance_ms(999);
    context.must(Sweep::default()).await?;
    same("too early", &claimed(context, claim_as("w", 9)).await?.len(), &0)?;
    context.clock.advance_ms(100);
    context.must(Sweep::default()).await?;
    same("in time", &ids(&claimed(context, claim_as("w", 9)).await?), &vec!["c"])
}

pub(super) async fn quotas_count_what_is_claimed(context: &Context<'_>) -> Verdict {
    let plain = |n| NewTask::new(format!("t{n}"), "k");
    create(context, (0..9).map(plain).collect()).await?;
    set(context, QuotaScope::Tenant, Some(3), None).await?;
    set(context, QuotaScope::Lane("default".into()), Some(2), None).await?;
    let leased = claimed(context, claim_as("w", 9)).await?;
    same("by the narrower one", &leased.len(), &2)?;
    same("none left", &claimed(context, claim_as("w", 9)).await?.len(), &0)?;
    complete(context, leased[0].fence()).await?;
    same("one more", &claimed(context, claim_as("w", 9)).await?.len(), &1)?;
    set(context, QuotaScope::Lane("default".into()), None, None).await?;
    same("by the wider one", &claimed(context, claim_as("w", 9)).await?.len(), &1)?;
    let counted: Vec<_> =
        limits(&*context.store).await?.iter().map(|g| (g.kind, g.running)).collect();
    same("counted", &counted, &vec![(LimitKind::Lane, 2), (LimitKind::Tenant, 3)])
}

pub(super) async fn a_session_stays_with_its_owner(context: &Context<'_>) -> Verdict {
    create(context, ["a", "b", "c"].map(of_session).into()).await?;
    same("without sessions", &claimed(context, Claim::new("w")).await?.len(), &0)?;
    let first = claimed(context, claim_as("w", 9)).await?;
    same("the first", &ids(&first), &vec!["a"])?;
    complete(context, first[0].fence()).await?;
    same("for another", &claimed(context, claim_as("v", 9)).await?.len(), &0)?;
    let second = claimed(context, claim_as("w", 9)).await?;
    same("for its owner", &ids(&second), &vec!["b"])?;
    complete(context, second[0].fence()).await?;
    // Every commit raises the time a little.
    context.clock.advance_ms(60_001);
    context.must(Sweep::default()).await?;
    let third = claimed(context, claim_as("v", 9)).await?;
    same("after its owner was idle", &ids(&third), &vec!["c"])?;
    complete(context, third[0].fence()).await?;
    context
        .must(ReleaseSession { tenant: Tenant::default(), session: "s".into(), affinity: false })
        .await?;
    same("leftover limits", &limits(&*context.store).await?.len(), &0)
}

/// Tasks of an affinity go to the holder of its lock, which is renewed and expires.
pub(super) async fn an_affinity_has_a_lock(context: &Context<'_>) -> Verdict {
    let of = |id: &str| NewTask {
        limit_key: Some(LimitKey::Affinity("s".into())),
        ..NewTask::new(id, "k")
    };
    let locked = |worker, limit| Claim { session_idle_ms: 1_000, ..claim_as(worker, limit) };
    let renew = || RenewSessions {
        tenant: Tenant::default(),
        workers: vec!["w".into(), "v".into()],
        lock_ms: 1_000,
        idle_ms: 60_000,
    };
    create(context, vec![of("a"), of("b"), of("c")]).await?;
    same("at once", &ids(&claimed(context, locked("w", 2)).await?), &vec!["a", "b"])?;
    same("for another", &claimed(context, locked("v", 9)).await?.len(), &0)?;
    context.clock.advance_ms(900);
    same("renewed", &context.must(renew()).await?, &Outcome::SessionsRenewed { renewed: 1 })?;
    context.clock.advance_ms(900);
    context.must(Sweep::default()).await?;
    same("for another still", &claimed(context, locked("v", 9)).await?.len(), &0)?;
    context.clock.advance_ms(200);
    context.must(Sweep::default()).await?;
    same("after the lock", &ids(&claimed(context, locked("v", 9)).await?), &vec!["c"])?;
    same("its own", &context.must(renew()).await?, &Outcome::SessionsRenewed { renewed: 1 })
}

/// Two handles concurrently complete and claim tasks of one key: never do two of them run at once,
/// and in the end all have run.
pub(super) async fn handles_race_for_a_concurrency_key(context: &Context<'_>) -> Verdict {
    const TASKS: usize = 20;
    let names: Vec<String> = (0..TASKS).map(|n| format!("t{n:02}")).collect();
    create(context, names.iter().map(|name| keyed(name)).collect()).await?;
    let other = context.another().await;
    let work = |store: Arc<dyn Store>, worker: &'static str| async move {
        let mut done = 0;
        for _ in 0..20 * TASKS {
            let answer = execute(&*store, &claim_as(worker, 3).into()).await?;
            let Ok(Outcome::Claimed(tasks)) = answer else {
                return Err(Wrong(format!("unexpected outcome of a claim: {answer:?}")));
            };
            ensure(tasks.len() <= 1, || format!("{tasks:?} at once"))?;
            for task in tasks {
                let running = limits(&*store).await?;
                let running = running.first().map_or(0, |limit| limit.running);
                same("running", &running, &1)?;
                let complete = Complete { fence: task.fence(), result: None }.into();
                let answer = execute(&*store, &complete).await?;
                answer.map_err(|rejection| Wrong(format!("{rejection}")))?;
                done += 1;
            }
            tokio::task::yield_now().await;
        }
        Ok(done)
    };
    let (one, two) = tokio::join!(work(context.store.clone(), "w"), work(other, "v"));
    same("all of them", &(one? + two?), &TASKS)?;
    same("leftover limits", &limits(&*context.store).await?.len(), &0)
}
