use std::sync::Arc;

use windlass_core::command::{
    Admit, Charge, Claim, ClaimEffect, Complete, CompleteRequest, Create, DeleteTask, NewTask,
    SettleEffect, Spend, Sweep,
};
use windlass_core::{
    Command, EffectOwner, Outcome, Payload, PayloadKey, Rate, Rejection, RequestKey, RequestTtls,
    Table, TaskKey, Tenant, fingerprint,
};
use windlass_store::{Query, Store};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};
use crate::runner::execute;

const DAY_MS: u64 = 86_400_000;

fn request() -> RequestKey {
    let (principal, account) = ("p\u{e4}/%".to_owned(), String::new());
    RequestKey { tenant: Tenant::default(), principal, account, key: "k\u{1f511}ey".into() }
}

fn admit(owner: &str, body: &[u8]) -> Admit {
    let (fingerprint, ttls) = (fingerprint("pay", body, &[]), RequestTtls::default());
    Admit { request: request(), fingerprint, owner: owner.into(), ttls, rate_limit: None }
}

fn complete(owner: &str, text: &str) -> CompleteRequest {
    CompleteRequest { request: request(), owner: owner.into(), response: Payload::json(text) }
}

async fn payload(context: &Context<'_>, key: PayloadKey) -> Result<Option<Payload>, Wrong> {
    Ok(context.store.payloads(&[key]).await?.pop().flatten())
}

async fn count(context: &Context<'_>, table: Table) -> Result<usize, Wrong> {
    Ok(context.store.query(&Query::all(table, 100)).await?.len())
}

pub(super) async fn a_request_is_completed_once(context: &Context<'_>) -> Verdict {
    let admitted = context.must(admit("o1", b"1")).await?;
    ensure(matches!(admitted, Outcome::Admitted { .. }), || format!("{admitted:?}"))?;
    let rejected = context.run(admit("o2", b"1")).await?;
    let in_flight = Rejection::IdempotencyInFlight { retry_after_ms: 1_000 };
    same("meanwhile", &rejected, &Err(in_flight))?;
    let rejected = context.run(admit("o2", b"2")).await?;
    same("another", &rejected, &Err(Rejection::IdempotencyConflict))?;
    same("wrong owner", &context.run(complete("o2", "2")).await?, &Err(Rejection::RequestLost))?;
    let Outcome::RequestCompleted(key) = context.must(complete("o1", "\"\u{1f4b6}\"")).await?
    else {
        return Err(Wrong("unexpected outcome of a completion".into()));
    };
    let stored = payload(context, key.clone()).await?;
    same("kept", &stored, &Some(Payload::json("\"\u{1f4b6}\"")))?;
    same(
        "again",
        &context.must(admit("o3", b"1")).await?,
        &Outcome::RequestCompleted(key.clone()),
    )?;
    context.clock.advance_ms(DAY_MS + 1);
    context.must(Sweep::default()).await?;
    same("afterwards", &payload(context, key).await?, &None)?;
    let expired = context.run(admit("o4", b"1")).await?;
    same("too late", &expired, &Err(Rejection::IdempotencyExpired))?;
    context.clock.advance_ms(30 * DAY_MS);
    context.must(Sweep::default()).await?;
    same("forgotten", &count(context, Table::Admission).await?, &0)
}

pub(super) async fn a_call_is_claimed_before_it_is_made(context: &Context<'_>) -> Verdict {
    context.must(Create::one(NewTask::new("t", "k"))).await?;
    let Outcome::Claimed(tasks) = context.must(Claim::new("w")).await? else {
        return Err(Wrong("unexpected outcome of a claim".into()));
    };
    let fence = tasks[0].fence();
    let claim = |request_id: &str| ClaimEffect {
        owner: EffectOwner::Task(fence.clone()),
        provider: "b\u{e4}nk".into(),
        name: "charge".into(),
        fingerprint: fingerprint("charge", b"1", &[]),
        request_id: request_id.into(),
    };
    let claimed =
        |existed, result| Outcome::EffectClaimed { request_id: "r1".into(), existed, result };
    same("first", &context.must(claim("r1")).await?, &claimed(false, None))?;
    same("again", &context.must(claim("r2")).await?, &claimed(true, None))?;
    let ClaimEffect { owner, provider, name, .. } = claim("r3");
    context.must(SettleEffect { owner, provider, name, result: Payload::json("1") }).await?;
    let Outcome::EffectClaimed { result: Some(key), .. } = context.must(claim("r4")).await? else {
        return Err(Wrong("the result of the effect is missing".into()));
    };
    same("kept", &payload(context, key.clone()).await?, &Some(Payload::json("1")))?;
    context.must(Complete { fence: fence.clone(), result: None }).await?;
    context.must(DeleteTask { task: TaskKey::new(&Tenant::default(), &"t".into()) }).await?;
    same("left over", &count(context, Table::Effect).await?, &0)?;
    same("its result", &payload(context, key).await?, &None)
}

/// Two handles spend concurrently: together never more than the limit.
pub(super) async fn handles_race_for_a_rate_limit(context: &Context<'_>) -> Verdict {
    const STARTS: u32 = 10;
    let spend = |key: String| -> Command {
        let rate = Rate { limit: STARTS, window_ms: 60_000 };
        let charges = vec![Charge { limiter: "api".into(), units: 1, rate }];
        Spend { tenant: Tenant::default(), key: key.into(), charges }.into()
    };
    let work = |store: Arc<dyn Store>, who: &'static str| async move {
        let mut spent = 0;
        for n in 0..STARTS {
            match execute(&*store, &spend(format!("{who}{n}"))).await? {
                Ok(Outcome::Spent) => spent += 1,
                Err(Rejection::RateLimited { .. }) => {}
                other => return Err(Wrong(format!("unexpected result: {other:?}"))),
            }
            tokio::task::yield_now().await;
        }
        Ok(spent)
    };
    let other = context.another().await;
    let (one, two) = tokio::join!(work(context.store.clone(), "a"), work(other, "b"));
    same("spent", &(one? + two?), &STARTS)?;
    context.clock.advance_ms(120_000);
    context.must(Sweep::default()).await?;
    same("left over", &count(context, Table::Limiter).await?, &0)
}
