use std::sync::Arc;

use windlass_core::command::{Cancel, Claim, Complete, Create, NewTask, Sweep, WaitChildren};
use windlass_core::{
    Children, Decided, Fence, Hints, Outcome, PublicState, Settled, Table, Task, TaskKey, Tenant,
    Value, World, decide, read_row,
};
use windlass_store::{Query, StoreError};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};
use crate::runner::execute;

fn key(id: &str) -> TaskKey {
    TaskKey { tenant: Tenant::default(), id: id.into() }
}

fn child(id: &str, parent: &str) -> NewTask {
    NewTask { parent: Some(parent.into()), ..NewTask::new(id, "k") }
}

fn bulk(tasks: Vec<NewTask>) -> Create {
    Create { tenant: Tenant::default(), tasks }
}

fn complete(fence: &Fence) -> Complete {
    Complete { fence: fence.clone(), result: None }
}

/// A parent and its children, all leased. The parent comes first.
async fn held(context: &Context<'_>, children: usize) -> Result<Vec<Fence>, Wrong> {
    let mut tasks = vec![NewTask { priority: 1, ..NewTask::new("t", "k") }];
    tasks.extend((0..children).map(|n| child(&format!("c{n}"), "t")));
    context.must(bulk(tasks)).await?;
    let claim = Claim { limit: 100, ..Claim::new("w") };
    match context.must(claim).await? {
        Outcome::Claimed(tasks) => Ok(tasks.iter().map(|task| task.fence()).collect()),
        other => Err(Wrong(format!("{other:?}"))),
    }
}

async fn task(context: &Context<'_>, id: &str) -> Result<Arc<Task>, Wrong> {
    let row = context.row(&key(id).row_key()).await?;
    let task = row.and_then(|row| read_row::<Task>(row.schema, &row.body));
    task.ok_or_else(|| Wrong(format!("{id} does not exist")))
}

async fn state(context: &Context<'_>, id: &str) -> Result<PublicState, Wrong> {
    Ok(task(context, id).await?.lifecycle.public())
}

async fn count_events(context: &Context<'_>, name: &str) -> Result<usize, Wrong> {
    let events = context.store.events(0, 1_000).await?;
    Ok(events.iter().filter(|event| event.name == name).count())
}

pub(super) async fn the_last_child_wakes_its_parent(context: &Context<'_>) -> Verdict {
    let fences = held(context, 3).await?;
    let waits = context.must(WaitChildren { fence: fences[0].clone() }).await?;
    same("the wait", &waits, &Outcome::Settled(Settled::WaitingChildren))?;
    for fence in &fences[1..] {
        same("so far", &state(context, "t").await?, &PublicState::WaitingChildren)?;
        context.must(complete(fence)).await?;
    }
    let parent = task(context, "t").await?;
    same("in the end", &parent.lifecycle.public(), &PublicState::Resumable)?;
    let Outcome::Claimed(tasks) = context.must(Claim::new("w")).await? else {
        return Err(Wrong("not a claim".into()));
    };
    same("attempts", &tasks.first().map(|task| task.attempts), &Some(1))?;
    same("resumed events", &count_events(context, "resumed").await?, &1)
}

pub(super) async fn the_last_two_children_wake_their_parent_once(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    let fences = held(context, 2).await?;
    let [wait, one, two] = &fences[..] else { return Err(Wrong(format!("{fences:?}"))) };
    context.must(WaitChildren { fence: wait.clone() }).await?;
    let (one, two) = (complete(one).into(), complete(two).into());
    let (one, two) = tokio::join!(execute(&*context.store, &one), execute(&*other, &two));
    ensure(one?.is_ok() && two?.is_ok(), || "a child could not be completed".into())?;
    same("the parent", &state(context, "t").await?, &PublicState::Resumable)?;
    same("resumed events", &count_events(context, "resumed").await?, &1)
}

/// The deciding transaction ends before the other one commits, so that a store with one transaction
/// at a time can run this case.
pub(super) async fn a_wait_based_on_a_stale_count_conflicts(context: &Context<'_>) -> Verdict {
    let fences = held(context, 1).await?;
    let wait = WaitChildren { fence: fences[0].clone() };
    let decided = {
        let mut tx = context.store.begin().await?;
        let mut world = World::new(tx.now(), Hints::default());
        while decide(&mut world, &wait.clone().into()) == Decided::Parked {
            let wanted =
                Arc::new(world.take_load_request().expect("a parked command needs a record"));
            let loaded = tx.load(wanted.clone()).await?;
            world.absorb(&wanted, loaded);
        }
        world.finish().0
    };
    context.must(complete(&fences[1])).await?;
    let found = context.store.begin().await?.commit(Arc::new(decided)).await;
    ensure(matches!(found, Err(StoreError::Conflict)), || format!("it returned {found:?}"))?;
    let again = context.must(wait).await?;
    ensure(matches!(again, Outcome::ChildrenDone(_)), || format!("the retry returned {again:?}"))
}

pub(super) async fn children_are_cancelled_page_by_page(context: &Context<'_>) -> Verdict {
    const MANY: usize = 150;
    let mut tasks = vec![NewTask::new("t", "k")];
    tasks.extend((0..MANY).map(|n| child(&format!("c{n:03}"), "t")));
    tasks.extend([child("leaf", "c000"), child("leaf-of-leaf", "leaf")]);
    context.must(bulk(tasks)).await?;
    context.must(Cancel { task: key("t"), reason: "enough".into() }).await?;
    for _ in 0..20 {
        let swept = context.must(Sweep::default()).await?;
        let Outcome::Swept { next_due, .. } = swept else { return Err(Wrong("no sweep".into())) };
        let before = count_events(context, "cancelled").await?;
        if next_due > Some(context.store.begin().await?.now()) {
            same("all of them", &before, &(MANY + 3))?;
            return children_left(context, MANY).await;
        }
    }
    Err(Wrong("the cascade does not end".into()))
}

async fn children_left(context: &Context<'_>, cancelled: usize) -> Verdict {
    let row = context.row(&Children::key_of(&Tenant::default(), &"t".into())).await?;
    let children = row.and_then(|row| read_row::<Children>(row.schema, &row.body));
    let found = children.map(|children| (children.open, children.cancelled as usize));
    same("the counts", &found, &Some((0, cancelled)))
}

pub(super) async fn children_are_listed_by_their_parent(context: &Context<'_>) -> Verdict {
    let fences = held(context, 3).await?;
    context.must(bulk(vec![NewTask::new("u", "k"), child("d", "u")])).await?;
    context.must(complete(&fences[2])).await?;
    let of = |parent: &str| Query {
        prefix: vec![Value::from("default")],
        filter: vec![("parent", parent.into())],
        ..Query::all(Table::Task, 10)
    };
    for (parent, expected) in [("t", "c0 c1 c2"), ("u", "d"), ("c0", ""), ("missing", "")] {
        let rows = context.store.query(&of(parent)).await?;
        let ids = rows.iter().filter_map(|row| match row.key.values.last() {
            Some(Value::Text(id)) => Some(id.to_string()),
            _ => None,
        });
        let ids = ids.collect::<Vec<_>>().join(" ");
        same(&format!("children of {parent}"), &ids, &expected.to_owned())?;
    }
    Ok(())
}
