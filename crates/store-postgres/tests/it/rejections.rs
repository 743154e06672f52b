//! Data that Postgres cannot store: core rejects it first, and a change that Postgres still rejects
//! fails only its own command.

use std::collections::BTreeSet;

use windlass_core::command::{
    Begin, Cancel, CancelHeld, ChangePriority, Claim, Complete, Create, DeleteTask, Fail,
    IdempotencyWindow, LimitLane, NewTask, Release, Renew, Replay, ReportProgress, SetLaneState,
    Snooze,
};
use windlass_core::{
    Command, FailureClass, Fence, LaneState, Outcome, Payload, Rejection, Retry, TagFilter,
    TaskKey, Tenant, WorkerCapabilities, limits,
};
use windlass_engine::{Error, RequestScope};
use windlass_store::{Store, StoreError};
use windlass_store_test::postgres::Server;
use windlass_store_test::{Random, execute};

use crate::stage::{create, engine, must, open};

/// An incompressible text that fills its limit.
fn wide(random: &mut Random, bytes: usize) -> String {
    const CHARACTERS: &[u8] =
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:/-+";
    (0..bytes).map(|_| char::from(*random.pick(CHARACTERS))).collect()
}

/// As many capabilities of this length as fit into a route beside a tag.
fn many(random: &mut Random, bytes_each: usize) -> BTreeSet<String> {
    let most = limits::CAPABILITIES.max as usize;
    let room = limits::ROUTE_BYTES.max as usize - limits::TAG.max_bytes - 1;
    // Each but the last is followed by a comma.
    let fit = (room + 1) / (bytes_each + 1);
    (0..fit.min(most)).map(|_| wide(random, bytes_each)).collect()
}

/// A task with all fields at their maximum length.
fn widest(random: &mut Random, capabilities: BTreeSet<String>) -> Create {
    let labels = (0..limits::LABELS.max).map(|_| {
        let name = wide(random, limits::LABEL_NAME.max_bytes);
        (name, wide(random, limits::LABEL_VALUE.max_bytes))
    });
    let labels = labels.collect();
    let content_type = wide(random, limits::CONTENT_TYPE.max_bytes);
    let idempotency = IdempotencyWindow {
        key: wide(random, limits::IDEMPOTENCY_KEY.max_bytes).into(),
        window_ms: limits::WINDOW_MS.max as u64,
    };
    let task = NewTask {
        lane: wide(random, limits::LANE.max_bytes).into(),
        payload: Some(Payload::new(content_type, wide(random, 10_000).into_bytes())),
        priority: limits::PRIORITY.max as i32,
        labels,
        capabilities,
        tag: Some(wide(random, limits::TAG.max_bytes)),
        idempotency: Some(idempotency),
        ..NewTask::new(
            wide(random, limits::TASK_ID.max_bytes),
            wide(random, limits::KIND.max_bytes),
        )
    };
    Create { tenant: wide(random, limits::TENANT.max_bytes).into(), tasks: vec![task] }
}

async fn fence(store: &dyn Store, claim: &Claim) -> Fence {
    match must(store, claim.clone()).await {
        Outcome::Claimed(tasks) if tasks.len() == 1 => tasks[0].fence(),
        other => panic!("{other:?}"),
    }
}

/// A full task lifecycle, with every text at its maximum length.
async fn live(store: &dyn Store, random: &mut Random, capabilities: BTreeSet<String>) {
    let create = widest(random, capabilities);
    let (tenant, task) = (create.tenant.clone(), &create.tasks[0]);
    let (lane, offered) = (task.lane.clone(), task.capabilities.clone());
    let key = TaskKey { tenant: tenant.clone(), id: task.id.clone() };
    must(store, create.clone()).await;
    let claim = Claim {
        tenant: tenant.clone(),
        lanes: vec![lane.clone()],
        capabilities: WorkerCapabilities {
            names: offered,
            tags: TagFilter::Any,
            ..WorkerCapabilities::default()
        },
        ..Claim::new(wide(random, limits::WORKER.max_bytes))
    };
    must(store, LimitLane { tenant: tenant.clone(), lane: lane.clone(), limit: Some(1) }).await;
    let held = fence(store, &claim).await;
    let message = wide(random, limits::PROGRESS.max_bytes);
    must(store, ReportProgress { fence: held.clone(), percent: 1, message }).await;
    must(store, Renew { fence: held.clone(), lease_ms: limits::LEASE_MS.max as u64 }).await;
    let reason = wide(random, limits::REASON.max_bytes);
    let fail = Fail {
        fence: held,
        class: FailureClass::Transient,
        reason: reason.clone(),
        retry: Retry::After { ms: 0 },
    };
    must(store, fail).await;
    let result = Payload::new(wide(random, limits::CONTENT_TYPE.max_bytes), *b"done");
    let complete = Complete { fence: fence(store, &claim).await, result: Some(result) };
    must(store, complete).await;
    must(store, Replay { task: key.clone(), execution: 0 }).await;
    must(store, Cancel { task: key.clone(), reason }).await;
    must(store, SetLaneState { tenant, lane, state: LaneState::Paused }).await;
    must(store, DeleteTask { task: key }).await;
}

/// One table of limits applies to all stores: Postgres can store everything within them. Its
/// indexes hold at most 2,704 bytes per entry.
#[tokio::test]
async fn everything_within_the_limits_can_be_stored() {
    let server = Server::start();
    let store = open(&server).await;
    let mut random = Random::new(7);
    for bytes_each in [limits::CAPABILITY.max_bytes, 64, 16, 2] {
        let capabilities = many(&mut random, bytes_each);
        live(&store, &mut random, capabilities).await;
    }
}

/// Core rejects a NUL, which Postgres cannot store, in every field.
#[tokio::test]
async fn no_command_passes_a_nul_to_the_store() {
    const NUL: &str = "a\0b";
    let server = Server::start();
    let store = open(&server).await;
    must(&store, create("t")).await;
    let bad_key = TaskKey { tenant: Tenant::default(), id: NUL.into() };
    let bad_tenant = TaskKey { tenant: NUL.into(), id: "t".into() };
    let plain = || NewTask::new("n", "k");
    let lane_of = |tenant: &str, lane: &str| (Tenant::from(tenant), lane.into());
    let mut commands: Vec<Command> = vec![
        Create { tenant: NUL.into(), tasks: vec![plain()] }.into(),
        Create::one(NewTask::new(NUL, "k")).into(),
        Create::one(NewTask::new("n", NUL)).into(),
        Create::one(NewTask { lane: NUL.into(), ..plain() }).into(),
        Create::one(NewTask { tag: Some(NUL.into()), ..plain() }).into(),
        Create::one(NewTask { capabilities: [NUL.to_owned()].into(), ..plain() }).into(),
        Create::one(NewTask { labels: [(NUL.into(), "v".into())].into(), ..plain() }).into(),
        Create::one(NewTask { labels: [("n".into(), NUL.into())].into(), ..plain() }).into(),
        Create::one(NewTask { payload: Some(Payload::new(NUL, *b"x")), ..plain() }).into(),
        Claim { tenant: NUL.into(), ..Claim::new("w") }.into(),
        Claim { lanes: vec![NUL.into()], ..Claim::new("w") }.into(),
        Claim::new(NUL).into(),
    ];
    let idempotency = Some(IdempotencyWindow { key: NUL.into(), window_ms: 60_000 });
    commands.push(Create::one(NewTask { idempotency, ..plain() }).into());
    for (tenant, lane) in [lane_of(NUL, "l"), lane_of("t", NUL)] {
        let limit = LimitLane { tenant: tenant.clone(), lane, limit: Some(1) };
        let state = LaneState::Paused;
        commands.push(SetLaneState { tenant, lane: limit.lane.clone(), state }.into());
        commands.push(limit.into());
    }
    for task in [bad_key, bad_tenant] {
        let fence = Fence { task: task.clone(), epoch: 1 };
        let (reason, message) = (String::new(), String::new());
        let (class, retry) = (FailureClass::Transient, Retry::Policy);
        commands.extend::<[Command; 13]>([
            Begin { fence: fence.clone() }.into(),
            CancelHeld { fence: fence.clone(), reason: reason.clone() }.into(),
            Complete { fence: fence.clone(), result: None }.into(),
            Snooze { fence: fence.clone(), delay_ms: 1 }.into(),
            Fail { fence: fence.clone(), class, reason: reason.clone(), retry }.into(),
            Release { fence: fence.clone() }.into(),
            Renew { fence: fence.clone(), lease_ms: 1_000 }.into(),
            ReportProgress { fence, percent: 1, message }.into(),
            Cancel { task: task.clone(), reason }.into(),
            ChangePriority { task: task.clone(), priority: 1 }.into(),
            Replay { task: task.clone(), execution: 0 }.into(),
            DeleteTask { task: task.clone() }.into(),
            Cancel { task, reason: NUL.into() }.into(),
        ]);
    }
    for command in commands {
        match execute(&store, &command).await {
            Ok(Err(Rejection::Invalid { .. })) => {}
            other => panic!("{command:?}: {other:?}"),
        }
    }
}

/// One command of a batch is rejected by the database, here by a constraint that an operator added.
/// Only that command fails; the others succeed.
#[tokio::test]
async fn a_rejected_command_fails_alone() {
    const CALLERS: usize = 40;
    let server = Server::start();
    let engine = engine(&server).await;
    engine.submit(create("first")).await.unwrap();
    server.sql("ALTER TABLE windlass.task ADD CONSTRAINT their_rule CHECK (kind <> 'bad')");
    let batches = engine.stats().batches;
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let kind = if n % 13 == 5 { "bad" } else { "good" };
            let (engine, task) = (engine.clone(), NewTask::new(n.to_string(), kind));
            tokio::spawn(async move { (kind, engine.submit(Create::one(task)).await) })
        })
        .collect();
    for caller in callers {
        match caller.await.unwrap() {
            ("good", Ok(Outcome::Created(_))) => {}
            ("bad", Err(Error::Store(error))) => {
                assert!(matches!(*error, StoreError::Rejected(_)), "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(engine.stats().splits > 0, "they shared one batch");
    assert!(engine.stats().batches > batches);
    let good = "SELECT count(*) FROM windlass.task WHERE kind = 'good'";
    assert_eq!(server.sql(good), (CALLERS - 3).to_string());
}

/// Postgres shows the rejected row. Our errors do not: it may contain a secret.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_row_is_not_disclosed() {
    let server = Server::start();
    let engine = engine(&server).await;
    server.sql("ALTER TABLE windlass.admission ADD CONSTRAINT their_rule CHECK (due_at < 0)");
    let (scope, key) = (RequestScope::new("ada", "pay"), "abcdefgh-THE-TAIL-of-it");
    let rejected = engine.begin_request(&scope, key, b"1").await.unwrap_err();
    let printed = format!("{rejected} {rejected:?} {rejected:#?}");
    assert!(printed.contains("their_rule"), "{printed}");
    assert!(!printed.contains("THE-TAIL"), "{printed}");
    engine.shutdown().await.unwrap();
}
