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
use super::ground::{Ground, ensure, same};
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

fn answer(owner: &str, text: &str) -> CompleteRequest {
    CompleteRequest { request: request(), owner: owner.into(), answer: Payload::json(text) }
}

async fn payload(ground: &Ground<'_>, key: PayloadKey) -> Result<Option<Payload>, Wrong> {
    Ok(ground.store.payloads(&[key]).await?.pop().flatten())
}

async fn count(ground: &Ground<'_>, table: Table) -> Result<usize, Wrong> {
    Ok(ground.store.query(&Query::all(table, 100)).await?.len())
}

pub(super) async fn a_request_is_answered_once(ground: &Ground<'_>) -> Verdict {
    let admitted = ground.must(admit("o1", b"1")).await?;
    ensure(matches!(admitted, Outcome::Admitted { .. }), || format!("{admitted:?}"))?;
    let refused = ground.run(admit("o2", b"1")).await?;
    let in_flight = Rejection::IdempotencyInFlight { retry_after_ms: 1_000 };
    same("meanwhile", &refused, &Err(in_flight))?;
    let refused = ground.run(admit("o2", b"2")).await?;
    same("another", &refused, &Err(Rejection::IdempotencyConflict))?;
    same("wrong owner", &ground.run(answer("o2", "2")).await?, &Err(Rejection::RequestReleased))?;
    let Outcome::RequestCompleted(key) = ground.must(answer("o1", "\"\u{1f4b6}\"")).await? else {
        return Err(Wrong("unexpected outcome of an answer".into()));
    };
    let kept = payload(ground, key.clone()).await?;
    same("kept", &kept, &Some(Payload::json("\"\u{1f4b6}\"")))?;
    same("again", &ground.must(admit("o3", b"1")).await?, &Outcome::RequestCompleted(key.clone()))?;
    ground.clock.advance_ms(DAY_MS + 1);
    ground.must(Sweep::default()).await?;
    same("afterwards", &payload(ground, key).await?, &None)?;
    let expired = ground.run(admit("o4", b"1")).await?;
    same("too late", &expired, &Err(Rejection::IdempotencyExpired))?;
    ground.clock.advance_ms(30 * DAY_MS);
    ground.must(Sweep::default()).await?;
    same("forgotten", &count(ground, Table::Admission).await?, &0)
}

pub(super) async fn a_call_is_claimed_before_it_is_made(ground: &Ground<'_>) -> Verdict {
    ground.must(Create::one(NewTask::new("t", "k"))).await?;
    let Outcome::Claimed(tasks) = ground.must(Claim::new("w")).await? else {
        return Err(Wrong("unexpected outcome of a claim".into()));
    };
    let fence = tasks[0].fence();
    let claim = |request_id: &str| ClaimEffect {
        caller: EffectOwner::Task(fence.clone()),
        provider: "b\u{e4}nk".into(),
        name: "charge".into(),
        fingerprint: fingerprint("charge", b"1", &[]),
        request_id: request_id.into(),
    };
    let claimed =
        |known, answer| Outcome::EffectClaimed { request_id: "r1".into(), existed: known, answer };
    same("first", &ground.must(claim("r1")).await?, &claimed(false, None))?;
    same("again", &ground.must(claim("r2")).await?, &claimed(true, None))?;
    let ClaimEffect { caller, provider, name, .. } = claim("r3");
    ground.must(SettleEffect { caller, provider, name, answer: Payload::json("1") }).await?;
    let Outcome::EffectClaimed { answer: Some(key), .. } = ground.must(claim("r4")).await? else {
        return Err(Wrong("the result of the effect is missing".into()));
    };
    same("kept", &payload(ground, key.clone()).await?, &Some(Payload::json("1")))?;
    ground.must(Complete { fence: fence.clone(), result: None }).await?;
    ground.must(DeleteTask { task: TaskKey::new(&Tenant::default(), &"t".into()) }).await?;
    same("left over", &count(ground, Table::Effect).await?, &0)?;
    same("its result", &payload(ground, key).await?, &None)
}

/// Two handles spend concurrently: together never more than the limit.
pub(super) async fn handles_race_for_a_rate_limit(ground: &Ground<'_>) -> Verdict {
    const STARTS: u32 = 10;
    let spend = |key: String| -> Command {
        let rate = Rate { starts: STARTS, window_ms: 60_000 };
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
    let other = ground.another().await;
    let (one, two) = tokio::join!(work(ground.store.clone(), "a"), work(other, "b"));
    same("spent", &(one? + two?), &STARTS)?;
    ground.clock.advance_ms(120_000);
    ground.must(Sweep::default()).await?;
    same("left over", &count(ground, Table::Limiter).await?, &0)
}
