use windlass_core::command::{
    Claim, ClaimGranted, Complete, Create, DeleteSubscription, DeregisterWorker, Grant,
    MoveSubscriptionCursor, NewTask, RegisterWorker, Revoke, Sweep,
};
use windlass_core::{
    Cursor, HeldLeases, LaneName, LeaseRequest, Lifecycle, Outcome, Rejection, SubscriptionCursor,
    Task, TaskKey, Tenant, Worker, WorkerCapabilities, read_row,
};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};

const HOUR_MS: u64 = 3_600_000;

fn key(id: &str) -> TaskKey {
    TaskKey { tenant: Tenant::default(), id: id.into() }
}

async fn create(context: &Context<'_>, ids: &[&str]) -> Verdict {
    for id in ids {
        context.must(Create::one(NewTask::new(*id, "k"))).await?;
    }
    Ok(())
}

async fn task(context: &Context<'_>, id: &str) -> Result<Task, Wrong> {
    let row = context.row(&key(id).row_key()).await?;
    let task = row.and_then(|row| read_row::<Task>(row.schema, &row.body));
    task.map(|task| (*task).clone()).ok_or_else(|| Wrong(format!("{id} cannot be decoded")))
}

async fn claimed(context: &Context<'_>, claim: Claim) -> Result<Vec<String>, Wrong> {
    match context.must(claim).await? {
        Outcome::Claimed(tasks) => Ok(tasks.iter().map(|task| task.id.to_string()).collect()),
        other => Err(Wrong(format!("unexpected outcome of a claim: {other:?}"))),
    }
}

pub(super) async fn a_task_is_granted_to_a_worker(context: &Context<'_>) -> Verdict {
    create(context, &["a", "b"]).await?;
    let grant = |id: &str| Grant { task: key(id), worker: "w".into(), ttl_ms: 10_000 };
    context.must(grant("a")).await?;
    context.must(grant("b")).await?;
    same("claimed", &claimed(context, Claim::new("v")).await?, &Vec::new())?;
    let rejected = context.run(ClaimGranted::new("a", "v")).await?;
    same("of another worker", &rejected, &Err(Rejection::NotGranted))?;
    let Outcome::Claimed(tasks) = context.must(ClaimGranted::new("a", "w")).await? else {
        return Err(Wrong("a granted task can be claimed".into()));
    };
    same("taken", &tasks.len(), &1)?;
    context.must(Complete { fence: tasks[0].fence(), result: None }).await?;
    // Every commit has raised the time a little.
    context.clock.advance_ms(10_001);
    context.must(Sweep::default()).await?;
    same("afterwards", &claimed(context, Claim::new("v")).await?, &vec!["b".to_owned()])
}

pub(super) async fn leases_of_a_dead_worker_end_early(context: &Context<'_>) -> Verdict {
    create(context, &["a", "b", "c"]).await?;
    let (tenant, lanes) = (Tenant::default(), [LaneName::default()].into());
    let (capabilities, heartbeat_interval_ms) = (WorkerCapabilities::default(), 1_000);
    let id = "w".into();
    let register =
        RegisterWorker { tenant, id, lanes, capabilities, heartbeat_interval_ms, held: None };
    context.must(register.clone()).await?;
    let claim =
        |worker: &str, registered| Claim { registered, lease_ms: HOUR_MS, ..Claim::new(worker) };
    for claim in [claim("w", true), claim("w", false), claim("v", true)] {
        same("claimed", &claimed(context, claim).await?.len(), &1)?;
    }
    context.clock.advance_ms(HOUR_MS / 2);
    context.must(Sweep::default()).await?;
    context.clock.advance_ms(998);
    context.must(Sweep::default()).await?;
    let held = async |id: &str| {
        let task = task(context, id).await?;
        Ok::<bool, Wrong>(matches!(task.lifecycle, Lifecycle::Active(_)))
    };
    ensure(held("a").await?, || "the lease ended too early".into())?;
    context.clock.advance_ms(2);
    context.must(Sweep::default()).await?;
    let found = (held("a").await?, held("b").await?, held("c").await?);
    same("still held", &found, &(false, true, true))?;
    let freed = task(context, "a").await?;
    same("counted", &(freed.attempts, freed.lost_leases), &(1, 1))?;
    let gone = context.row(&Worker::key_of(&Tenant::default(), &"w".into())).await?;
    same("the worker", &gone, &None)?;
    context.must(register).await?;
    context.must(DeregisterWorker { tenant: Tenant::default(), id: "w".into() }).await?;
    let gone = context.row(&Worker::key_of(&Tenant::default(), &"w".into())).await?;
    same("the worker", &gone, &None)
}

pub(super) async fn leases_missing_from_a_heartbeat_end(context: &Context<'_>) -> Verdict {
    create(context, &["a", "b", "c"]).await?;
    for number in 0..3 {
        let request = Some(LeaseRequest { instance: 7, number });
        let (lease_ms, registered) = (HOUR_MS, true);
        let claim = Claim { lease_ms, registered, request, ..Claim::new("w") };
        same("claimed", &claimed(context, claim).await?.len(), &1)?;
    }
    let held = task(context, "a").await?;
    let leases = [(held.id.clone(), held.epoch)].into();
    let heartbeat = RegisterWorker {
        tenant: Tenant::default(),
        id: "w".into(),
        lanes: [LaneName::default()].into(),
        capabilities: WorkerCapabilities::default(),
        heartbeat_interval_ms: 1_000,
        held: Some(HeldLeases { instance: 7, responded_below: 2, leases }),
    };
    for (joined, lost) in [(true, 1), (false, 0)] {
        let outcome = context.must(heartbeat.clone()).await?;
        same("the heartbeat", &outcome, &Outcome::WorkerRegistered { joined, lost })?;
    }
    let mut found = Vec::new();
    for id in ["a", "b", "c"] {
        found.push(matches!(task(context, id).await?.lifecycle, Lifecycle::Active(_)));
    }
    same("still held", &found, &vec![true, false, true])?;
    same("afterwards", &claimed(context, Claim::new("v")).await?, &vec!["b".to_owned()])
}

pub(super) async fn a_lease_is_revoked(context: &Context<'_>) -> Verdict {
    create(context, &["a"]).await?;
    let Outcome::Claimed(tasks) = context.must(Claim::new("w")).await? else {
        return Err(Wrong("unexpected outcome of a claim".into()));
    };
    let fence = tasks[0].fence();
    context.must(Revoke { task: key("a"), reason: "elsewhere".into() }).await?;
    let complete = || Complete { fence: fence.clone(), result: None };
    same("at once", &context.run(complete()).await?, &Err(Rejection::NotLeased))?;
    same("claimed", &claimed(context, Claim::new("v")).await?, &vec!["a".to_owned()])?;
    let stale = Rejection::StaleFence { current: fence.epoch + 1 };
    same("later", &context.run(complete()).await?, &Err(stale))?;
    let task = task(context, "a").await?;
    same("counted", &(task.claims, task.attempts, task.lost_leases), &(2, 1, 0))
}

pub(super) async fn a_durable_subscription_keeps_its_cursor(context: &Context<'_>) -> Verdict {
    let (tenant, name) = (Tenant::default(), "m\u{e4}iler".to_owned());
    let at = |seq| Cursor { incarnation: "one".into(), seq };
    let move_to = |seq| MoveSubscriptionCursor {
        tenant: Tenant::default(),
        name: name.clone(),
        cursor: at(seq),
    };
    context.must(move_to(7)).await?;
    same("moved back", &context.must(move_to(3)).await?, &Outcome::SubscriptionCursorAt(at(7)))?;
    context.must(move_to(i64::MAX as u64)).await?;
    let row = context.row(&SubscriptionCursor::key_of(&tenant, &name)).await?;
    let stored = row.and_then(|row| read_row::<SubscriptionCursor>(row.schema, &row.body));
    same("kept", &stored.map(|stored| stored.cursor.clone()), &Some(at(i64::MAX as u64)))?;
    context.must(DeleteSubscription { tenant: tenant.clone(), name: name.clone() }).await?;
    same("dropped", &context.row(&SubscriptionCursor::key_of(&tenant, &name)).await?, &None)
}

pub(super) async fn labels_are_in_the_log(context: &Context<'_>) -> Verdict {
    let mut labelled = NewTask::new("a", "k");
    labelled.labels = [("who".to_owned(), "\"it's\" \u{1f600}".to_owned())].into();
    context.must(Create::one(labelled.clone())).await?;
    create(context, &["b"]).await?;
    let events = context.store.events(0, 10).await?;
    let found: Vec<_> = events.iter().map(windlass_core::LogEvent::labels).collect();
    same("labels", &found, &vec![labelled.labels, Default::default()])
}
