use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use windlass_core::command::{Claim, Complete, Create, NewTask};
use windlass_core::{
    ChangeSet, LaneName, LoadRequest, Outcome, RowKey, Tenant, Update, Version, Wake,
};
use windlass_store::{Notification, Notifications, Store, StoreError};

use super::case::{Verdict, Wrong};
use super::context::{Context, commit, ensure, same};
use crate::fixture::{inserts, lane_key, lane_row};
use crate::runner::execute;
use crate::snapshot::Snapshot;

pub(super) async fn handles_share_their_records(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    context.must(Create::one(NewTask::new("t", "k"))).await?;
    same(
        "seen by the other",
        &Snapshot::of(&*other).await?,
        &Snapshot::of(&*context.store).await?,
    )?;
    let claimed = execute(&*other, &Claim::new("w").into()).await?;
    let Ok(Outcome::Claimed(tasks)) = claimed else {
        return Err(Wrong(format!("the other claimed {claimed:?}")));
    };
    same("claimed by the other", &tasks.len(), &1)?;
    context.must(Complete { fence: tasks[0].fence(), result: None }).await?;
    same(
        "seen by the other",
        &Snapshot::of(&*other).await?,
        &Snapshot::of(&*context.store).await?,
    )?;
    same("commits of the other", &other.describe().await?.commits, &1)?;
    same("commits", &context.store.describe().await?.commits, &2)
}

pub(super) async fn records_outlive_their_handles(context: &Context<'_>) -> Verdict {
    context.must(Create::one(NewTask::new("t", "k"))).await?;
    context.must(Claim::new("w")).await?;
    let before = Snapshot::of(&*context.store).await?;
    context.store.close().await?;
    let reopened = context.another().await;
    same("the snapshot", &Snapshot::of(&*reopened).await?, &before)?;
    same("commits", &reopened.describe().await?.commits, &0)?;
    let answer = execute(&*reopened, &Create::one(NewTask::new("u", "k")).into()).await?;
    ensure(answer.is_ok(), || format!("the reopened store rejects a create: {answer:?}"))
}

async fn version(store: &dyn Store, key: RowKey) -> Result<Option<Version>, StoreError> {
    let wanted = LoadRequest { rows: vec![key], ..LoadRequest::default() };
    let loaded = store.begin().await?.load(Arc::new(wanted)).await?;
    Ok(loaded.rows.first().map(|row| row.version))
}

/// One handle loads its records in a transaction that ends before the other one commits, so that a
/// store with one transaction at a time can run this case.
pub(super) async fn a_stale_change_set_conflicts_across_handles(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    let (a, b) = (lane_key("a"), lane_key("b"));
    context.commit(inserts([lane_row("a", 1), lane_row("b", 1)])).await?;
    let seen = version(&*other, a.clone()).await?;
    same("the other sees", &seen, &Some(Version(1)))?;
    same("the other sees", &version(&*other, lane_key("c")).await?, &None)?;
    let update = |name, at| Update { row: lane_row(name, at + 1), expected: Version(at) };
    let updates = vec![update("a", 1)];
    context.commit(ChangeSet { updates, ..inserts([lane_row("c", 5)]) }).await?;
    let before = Snapshot::of(&*context.store).await?;
    let none = ChangeSet::default;
    for (what, stale) in [
        (
            "a read",
            ChangeSet {
                updates: vec![update("b", 1)],
                reads: vec![(a.clone(), Version(1))],
                ..none()
            },
        ),
        ("a read alone", ChangeSet { reads: vec![(a.clone(), Version(1))], ..none() }),
        ("an update", ChangeSet { updates: vec![update("a", 1), update("b", 1)], ..none() }),
        ("a delete", ChangeSet { deletes: vec![(a, Version(1)), (b, Version(1))], ..none() }),
        ("an insert", ChangeSet { updates: vec![update("b", 1)], ..inserts([lane_row("c", 9)]) }),
    ] {
        let found = commit(&*other, stale).await;
        let conflict = matches!(found, Err(StoreError::Conflict));
        ensure(conflict, || format!("{what}: {found:?} instead of a conflict"))?;
        same(what, &Snapshot::of(&*context.store).await?, &before)?;
    }
    Ok(())
}

const TASKS: usize = 20;

/// Creates tasks, then claims and completes until none is left; returns the claimed ids.
async fn work(store: &dyn Store, name: &str) -> Result<Vec<String>, Wrong> {
    let mut claimed = Vec::new();
    for n in 0..TASKS {
        let create = Create::one(NewTask::new(format!("{name}-{n}"), "k"));
        let answer = execute(store, &create.into()).await?;
        ensure(answer.is_ok(), || format!("{answer:?}"))?;
        tokio::task::yield_now().await;
    }
    loop {
        let answer = execute(store, &Claim { limit: 2, ..Claim::new(name) }.into()).await?;
        let Ok(Outcome::Claimed(tasks)) = answer else {
            return Err(Wrong(format!("{answer:?}")));
        };
        if tasks.is_empty() {
            return Ok(claimed);
        }
        for task in tasks {
            tokio::task::yield_now().await;
            let complete = Complete { fence: task.fence(), result: None };
            let answer = execute(store, &complete.into()).await?;
            ensure(answer.is_ok(), || format!("{answer:?}"))?;
            claimed.push(task.id.to_string());
        }
    }
}

pub(super) async fn handles_share_the_work(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    let (one, two) = tokio::join!(work(&*context.store, "one"), work(&*other, "two"));
    let (mut claimed, two) = (one?, two?);
    claimed.extend(two);
    same("claims", &claimed.len(), &(2 * TASKS))?;
    let distinct: BTreeSet<String> = claimed.into_iter().collect();
    same("tasks claimed", &distinct.len(), &(2 * TASKS))
}

fn waking(lane: &str) -> ChangeSet {
    let wake = Wake { tenant: Tenant::default(), lane: LaneName::new(lane), route: None };
    ChangeSet { wakes: [(wake, 1)].into(), ..inserts([lane_row(lane, 1)]) }
}

/// Whether a notification covers this lane.
fn wakes_lane(notification: &Notification, lane: &str) -> bool {
    match notification {
        Notification::Anything => true,
        Notification::Changed { wakes, .. } => wakes.keys().any(|wake| wake.lane.as_str() == lane),
    }
}

/// A notification that has already arrived.
async fn ready(notifications: &mut Notifications) -> Option<Notification> {
    let mut next = pin!(notifications.next());
    poll_fn(|cx| match next.as_mut().poll(cx) {
        Poll::Ready(notification) => Poll::Ready(notification),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub(super) async fn a_notice_reaches_the_other_handle(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    let (mut own, mut others) = (context.store.notifications(), other.notifications());
    context.commit(waking("from-one")).await?;
    let Some(notification) = others.next().await else {
        return Err(Wrong("no notifications".into()));
    };
    ensure(wakes_lane(&notification, "from-one"), || {
        format!("the other handle got {notification:?}")
    })?;
    same("notification of the change to the handle that made it", &ready(&mut own).await, &None)?;
    commit(&*other, waking("from-two")).await?;
    let Some(notification) = own.next().await else { return Err(Wrong("no notifications".into())) };
    ensure(wakes_lane(&notification, "from-two"), || {
        format!("the first handle got {notification:?}")
    })
}

pub(super) async fn handles_have_one_incarnation(context: &Context<'_>) -> Verdict {
    let description = context.store.describe().await?;
    let other = context.another().await.describe().await?;
    ensure(!description.incarnation.is_empty(), || "the incarnation is empty".into())?;
    same("incarnation", &other.incarnation, &description.incarnation)?;
    same("backend", &other.backend, &description.backend)
}
