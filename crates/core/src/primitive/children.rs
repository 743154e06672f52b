//! Parents and children. An ended task is retained while a child of it is open, so that no child
//! outlives its parent. The sweep retains an ended child while its parent is open, so that the
//! parent can read its result and never creates it a second time.

use std::sync::Arc;

use crate::children::{ChildCounts, Children};
use crate::event::{Change, Event};
use crate::name::{TaskId, Tenant};
use crate::primitive::{
    are_related_records_readable, complete_step, prefetch_step_completion, transition_to,
};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, ResumeCause, Resumption, SuspendedAttempt, Task, TaskKey};
use crate::world::{Halt, World, unless_quarantined};

/// Prefetches the records of a parent that its child needs.
pub(crate) fn prefetch_parent(world: &mut World, tenant: &Tenant, parent: &TaskId) {
    if world.prefetch(Children::key_of(tenant, parent)) {
        world.prefetch(TaskKey::new(tenant, parent).row_key());
    }
}

/// Counts one more open child. The parent is read and written only for its first child; after that
/// the `Children` record decides whether more may be created.
pub(crate) fn count_open_child(
    world: &mut World,
    tenant: &Tenant,
    parent: &TaskId,
) -> Result<(), Halt> {
    let children = match world.get::<Children>(&Children::key_of(tenant, parent))? {
        Some(children) if children.closed => return Err(Rejection::ParentTerminal.into()),
        Some(children) => (*children).clone(),
        None => open_first_child(world, tenant, parent)?,
    };
    world.put::<Children>(Children { open: children.open.saturating_add(1), ..children });
    Ok(())
}

fn open_first_child(world: &mut World, tenant: &Tenant, parent: &TaskId) -> Result<Children, Halt> {
    let Some(task) = world.get::<Task>(&TaskKey::new(tenant, parent).row_key())? else {
        return Err(Rejection::ParentNotFound.into());
    };
    if task.lifecycle.ended_at().is_some() {
        return Err(Rejection::ParentTerminal.into());
    }
    world.put::<Task>(Task { has_children: true, ..(*task).clone() });
    Ok(Children::empty(tenant, parent))
}

/// The counts of the children of a task.
pub(crate) fn children_of(world: &mut World, task: &Task) -> Result<ChildCounts, Halt> {
    let children = children_record(world, task)?;
    Ok(children.map_or_else(ChildCounts::default, |children| children.counts()))
}

/// The `Children` record of a task. An absent row has no version to check. If `task.has_children`
/// says that it exists, the load predates the insert. Inserting an empty record then forces a key
/// conflict, and the batch is retried.
fn children_record(world: &mut World, task: &Task) -> Result<Option<Arc<Children>>, Halt> {
    let children = world.get::<Children>(&Children::key_of(&task.tenant, &task.id))?;
    if children.is_none() && task.has_children {
        world.put::<Children>(Children::empty(&task.tenant, &task.id));
    }
    Ok(children)
}

/// Updates the parent and the children of a task that has ended.
pub(super) fn on_end(world: &mut World, task: &Task) -> Result<(), Halt> {
    if task.has_children {
        close_children(world, task)?;
    }
    let Some(parent) = &task.parent else { return Ok(()) };
    prefetch_parent(world, &task.tenant, parent);
    if task.step.is_some() {
        prefetch_step_completion(world, task);
    }
    let siblings = world.get::<Children>(&Children::key_of(&task.tenant, parent))?;
    let Some(siblings) = siblings else {
        // Either its parent counts it, or its parent was deleted.
        let parent = world.get::<Task>(&TaskKey::new(&task.tenant, parent).row_key())?;
        return parent.map_or(Ok(()), |parent| children_record(world, &parent).map(drop));
    };
    let mut siblings = (*siblings).clone();
    siblings.count_end(&task.lifecycle);
    let was_last = siblings.open == 0;
    world.put::<Children>(siblings);
    if was_last {
        notify_parent(world, &TaskKey::new(&task.tenant, parent))?;
    }
    match task.step {
        Some(step) => complete_step(world, task, step),
        None => Ok(()),
    }
}

/// Rejects further children. Open ones are cancelled, unless a plain task completed or failed.
fn close_children(world: &mut World, task: &Task) -> Result<(), Halt> {
    let Some(children) = children_record(world, task)? else { return Ok(()) };
    let cancels_children = task.workflow.is_some()
        || matches!(task.lifecycle, Lifecycle::Cancelled { .. } | Lifecycle::Expired { .. });
    let due_at = (cancels_children && children.open > 0).then(|| world.now());
    world.put::<Children>(Children { closed: true, due_at, ..(*children).clone() });
    Ok(())
}

/// Resumes a parent that waits for its last child. An ended parent becomes due for deletion as if
/// it had no children.
fn notify_parent(world: &mut World, key: &TaskKey) -> Result<(), Halt> {
    let Some(parent) = world.get::<Task>(&key.row_key())? else { return Ok(()) };
    match &parent.lifecycle {
        Lifecycle::WaitingChildren { suspended_attempt: paused, .. } => {
            resume(world, &parent, paused.clone())
        }
        other if other.ended_at().is_some() && parent.due_at != parent.next_due() => {
            world.put::<Task>(Task { due_at: parent.next_due(), ..(*parent).clone() });
            Ok(())
        }
        _ => Ok(()),
    }
}

fn resume(world: &mut World, task: &Task, paused: SuspendedAttempt) -> Result<(), Halt> {
    let (now, cause) = (world.now(), ResumeCause::Children);
    let change = Change::Resumed { cause, messages: Vec::new(), by: None };
    world.emit(Event::of_task(task, now, change));
    let task = Task {
        lifecycle: Lifecycle::resumed(paused, now),
        resumption: Some(Resumption { at: now, cause, messages: Vec::new(), request: None }),
        ..task.clone()
    };
    transition_to(world, task)
}

/// Reopens the family of a replayed task. It may have children again; those that ended before are
/// not counted. Its parent counts it as open again. If the parent was deleted, the task has no
/// parent, even if another task has taken that id.
pub(super) fn on_replay(world: &mut World, before: &Task, task: &mut Task) -> Result<(), Halt> {
    if task.has_children
        && let Some(own) = world.get::<Children>(&Children::key_of(&task.tenant, &task.id))?
    {
        let empty = Children::empty(&task.tenant, &task.id);
        world.put::<Children>(Children { open: own.open, ..empty });
    }
    let Some(parent) = task.parent.take() else { return Ok(()) };
    prefetch_parent(world, &task.tenant, &parent);
    let siblings = world.get::<Children>(&Children::key_of(&task.tenant, &parent))?;
    let Some(siblings) = siblings else { return Ok(()) };
    let stored = world.get::<Task>(&TaskKey::new(&task.tenant, &parent).row_key())?;
    if let Some(stored) = stored.filter(|stored| stored.created_at <= task.created_at) {
        let mut siblings = (*siblings).clone();
        let counted =
            stored.execution == 0 || before.lifecycle.ended_at() > Some(stored.started_at);
        siblings.count_reopened(counted.then_some(&before.lifecycle));
        world.put::<Children>(siblings);
        task.parent = Some(parent);
    }
    Ok(())
}

/// Whether the sweep may delete an ended task: its children have ended, and so has its parent.
pub(crate) fn is_deletable(world: &mut World, task: &Task) -> Result<bool, Halt> {
    let own = Children::key_of(&task.tenant, &task.id);
    if task.has_children {
        match unless_quarantined(world.get::<Children>(&own))? {
            Some(children) if children.as_ref().is_none_or(|children| children.open == 0) => {}
            _ => return Ok(false),
        }
    }
    let Some(parent) = task.parent.as_ref().filter(|_| !task.is_activity()) else {
        return Ok(true);
    };
    let siblings = world.get::<Children>(&Children::key_of(&task.tenant, parent));
    let siblings = unless_quarantined(siblings)?;
    Ok(siblings.is_some_and(|siblings| siblings.is_none_or(|siblings| siblings.closed)))
}

/// Deletes the `Children` record of a task; rejected while a child is open.
pub(crate) fn delete_children_record(world: &mut World, task: &Task) -> Result<(), Halt> {
    if !task.has_children {
        return Ok(());
    }
    let key = Children::key_of(&task.tenant, &task.id);
    match world.get::<Children>(&key)? {
        Some(children) if children.open > 0 => {
            Err(Rejection::ChildrenOpen { open: children.open }.into())
        }
        Some(_) => {
            world.remove(&key);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Whether this version can read the parent and children that the end of a task changes.
pub(crate) fn is_readable(world: &mut World, task: &Task) -> Result<bool, Halt> {
    let own = Children::key_of(&task.tenant, &task.id);
    if task.has_children && unless_quarantined(world.get::<Children>(&own))?.is_none() {
        return Ok(false);
    }
    let Some(parent) = &task.parent else { return Ok(true) };
    prefetch_parent(world, &task.tenant, parent);
    let siblings = world.get::<Children>(&Children::key_of(&task.tenant, parent));
    match unless_quarantined(siblings)? {
        None => Ok(false),
        Some(siblings) if siblings.as_ref().is_none_or(|siblings| siblings.open > 1) => Ok(true),
        Some(_) => is_parent_readable(world, &TaskKey::new(&task.tenant, parent)),
    }
}

fn is_parent_readable(world: &mut World, key: &TaskKey) -> Result<bool, Halt> {
    let parent = world.get::<Task>(&key.row_key());
    let Some(parent) = unless_quarantined(parent)? else { return Ok(false) };
    let Some(parent) = parent else { return Ok(true) };
    if !matches!(parent.lifecycle, Lifecycle::WaitingChildren { .. }) {
        return Ok(true);
    }
    are_related_records_readable(world, &parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Cancel, Claim, Command, Complete, Create, Outcome, WaitChildren};
    use crate::reference_tables::VersionConflict;
    use crate::testing::{Stage, child, claim, fence, key};

    fn decide_with_stale_absence(
        stage: &Stage,
        command: impl Into<Command>,
    ) -> Result<(), VersionConflict> {
        stage.decide_with_stale_absence(Children::key_of(&Tenant::default(), &"t".into()), command)
    }

    fn family() -> Stage {
        let mut stage = Stage::with_task("active");
        stage.must(Create::one(child("c")));
        stage
    }

    #[test]
    fn waiting_conflicts_if_children_were_loaded_too_early() {
        let stage = family();
        let wait = WaitChildren { fence: fence(1) };
        assert_eq!(decide_with_stale_absence(&stage, wait), Err(VersionConflict));
    }

    #[test]
    fn cancel_conflicts_if_children_were_loaded_too_early() {
        let stage = family();
        let cancel = Cancel { task: key("t"), reason: "no".into() };
        assert_eq!(decide_with_stale_absence(&stage, cancel), Err(VersionConflict));
    }

    #[test]
    fn complete_conflicts_if_siblings_were_loaded_too_early() {
        let mut stage = family();
        let claimed = stage.must(Claim { lanes: vec!["children".into()], ..claim() });
        let Outcome::Claimed(tasks) = claimed else { panic!("{claimed:?}") };
        let done = Complete { fence: tasks[0].fence(), result: None };
        assert_eq!(decide_with_stale_absence(&stage, done), Err(VersionConflict));
    }
}
