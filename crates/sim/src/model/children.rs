//! Parents and children: a waiting parent resumes with the end of its last child, in the same
//! commit and not before. Children of a parent that was cancelled or expired are cancelled.

use windlass_core::command::{Create, NewTask};
use windlass_core::{
    ChildCounts, Children, Fence, PublicState, Rejection, Settled, TaskId, Tenant, Timestamp,
};
use windlass_store::MemoryStore;

use crate::client::new_task;
use crate::model::facts::{Content, Facts, PausedAttempt, State};
use crate::model::lease::held;
use crate::model::log::Step;
use crate::model::outcome::{Fenced, Submission};
use crate::model::record::one;
use crate::model::state::Model;
use crate::script::TaskSpec;
use crate::violation::{Breach, Kind, breach};

/// The engine's reason for cancelling the children of an ended task.
pub(crate) const ORPHANED: &str = "its parent has ended";

impl Facts {
    fn called_off(&self) -> bool {
        use PublicState::{Cancelled, Expired};
        matches!(self.state, State::Ended(Cancelled | Expired))
    }

    fn is_open(&self) -> bool {
        self.exists() && !self.ended()
    }

    /// Marks the open children for cancellation if the task was cancelled or expired.
    pub(super) fn doom(&mut self) {
        if self.called_off() {
            self.doomed = self.open.clone();
        }
    }
}

impl Model {
    /// The create requests of every child that a task can have.
    pub(crate) fn children_to_be(&self, parent: &TaskId) -> Vec<Create> {
        let own = |spec: &&TaskSpec| spec.parent.as_deref() == Some(parent.as_str());
        let each = self.specs.iter().filter(own).flat_map(|spec| {
            let ids = 0..u8::try_from(spec.ids.len()).unwrap_or(0);
            ids.map(|id| Create::one(new_task(spec, id, 0)))
        });
        each.collect()
    }

    /// A handler that waits for children may find none open. It then starts again under the same
    /// lease.
    pub(crate) fn may_start_again(&mut self, fenced: &Fenced) {
        self.started.remove(fenced);
        self.leased.remove(fenced);
    }

    /// Checks the parent of a new task: it exists and has not ended.
    pub(super) fn joins(
        &self,
        at: &Step<'_>,
        facts: &mut Facts,
        spec: &TaskSpec,
    ) -> Result<(), Breach> {
        facts.created_at = Some(at.at);
        facts.parent = spec.parent.as_deref().map(TaskId::new);
        match &facts.parent {
            Some(parent) if !self.facts(parent).is_open() => {
                breach(Kind::Family, format!("{parent} does not exist or has ended"))
            }
            _ => Ok(()),
        }
    }

    /// Handles a replayed task: it stays a child, unless its parent was deleted.
    pub(super) fn joins_again(&self, facts: &mut Facts) {
        facts.doomed.clear();
        let created_at = facts.created_at;
        facts.parent = facts.parent.take().filter(|parent| {
            let parent = self.facts(parent);
            parent.has_children && parent.created_at <= created_at
        });
    }

    /// Counts the open children of a task's parent.
    pub(super) fn count_children(
        &mut self,
        at: &Step<'_>,
        was: &Facts,
        is: &Facts,
    ) -> Result<(), Breach> {
        let parent = if is.is_open() { &is.parent } else { &was.parent };
        let Some(parent) = parent.clone().filter(|_| was.is_open() != is.is_open()) else {
            return Ok(());
        };
        let mut facts = self.facts(&parent).clone();
        if !facts.exists() {
            return breach(Kind::Family, format!("{parent} is missing, of its child {}", at.id));
        }
        if is.is_open() {
            facts.has_children = true;
            facts.open.insert(at.id.clone());
        } else {
            facts.open.remove(at.id);
            facts.doomed.remove(at.id);
        }
        self.track(&parent).push(at.seq, facts);
        Ok(())
    }

    /// Checks that the engine cancels a child only if its parent was cancelled or expired.
    pub(super) fn check_called_off(&self, facts: &Facts) -> Result<(), Breach> {
        match &facts.parent {
            Some(parent) if self.facts(parent).called_off() => Ok(()),
            other => breach(Kind::Family, format!("its parent is not cancelled: {other:?}")),
        }
    }

    /// Checks that a task is retained while a child of it is open, and that the engine retains a
    /// child while its parent is open.
    pub(super) fn check_family_done(&self, at: &Step<'_>, facts: &Facts) -> Result<(), Breach> {
        if !facts.open.is_empty() {
            return breach(Kind::Family, format!("{:?} are open", facts.open));
        }
        let parent = facts.parent.as_ref().map(|parent| self.facts(parent));
        let waits = parent.is_some_and(|it| it.is_open() && it.created_at <= facts.created_at);
        if waits && !self.deleting.contains(at.id) {
            return breach(Kind::DeletedEarly, "its parent is still open");
        }
        Ok(())
    }

    /// Checks a lease holder that waits for children: `open` is their number.
    pub(super) fn gathers(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        spec: &TaskSpec,
        epoch: u64,
        open: u32,
    ) -> Result<(), Breach> {
        let mut hold = *held(facts, epoch, at, spec)?;
        if open == 0 || facts.open.len() != open as usize {
            return breach(Kind::Family, format!("{:?} are open, not {open}", facts.open));
        }
        if hold.began_at.is_none() {
            self.count(at, facts, epoch, facts.attempts + 1, spec)?;
            hold.over_at = spec.timeout_ms.map(|ms| at.at.plus_ms(ms));
        }
        let began_at: Timestamp = hold.began_at.unwrap_or(at.at);
        let left_ms = hold.over_at.map(|over_at| at.at.ms_until(over_at));
        let content = Some(Content::WaitChildren);
        self.settled(at, facts, epoch, content, Settled::WaitingChildren);
        facts.state =
            State::Gathering { since: at.at, paused: PausedAttempt { began_at, left_ms } };
        Ok(())
    }

    /// Compares the record of a task's children with the log.
    pub(super) fn compare_children(
        &self,
        memory: &MemoryStore,
        parent: &TaskId,
    ) -> Result<(), Breach> {
        let children = one::<Children>(memory, Children::key_of(&Tenant::default(), parent));
        let facts = self.facts(parent);
        let agrees = match &children {
            None => !facts.has_children,
            Some(children) => {
                facts.has_children
                    && facts.open.len() == children.open as usize
                    && facts.ended() == children.closed
                    && (facts.doomed.is_empty() || children.due_at.is_some())
            }
        };
        if agrees {
            return Ok(());
        }
        let what = format!("{parent} has {children:?}, but the log gives {facts:?}");
        breach(Kind::Family, what)
    }

    /// Checks that the children of a task that was cancelled or expired do not stay open.
    pub(crate) fn check_doomed(&self, within_ms: u64) -> Result<(), Breach> {
        let late = |facts: &Facts| {
            let by = facts.ended_at.map(|ended_at| ended_at.plus_ms(within_ms));
            !facts.doomed.is_empty() && by.is_some_and(|by| by < self.latest)
        };
        match self.present().find(|(_, facts)| late(facts)) {
            Some((id, facts)) => {
                breach(Kind::Family, format!("{:?} are open after the end of {id}", facts.doomed))
            }
            None => Ok(()),
        }
    }

    /// Whether no child was open while the lease existed.
    pub(super) fn are_done(
        &self,
        submission: &Submission<'_>,
        fence: &Fence,
        counts: &ChildCounts,
    ) -> bool {
        let done = |facts: &Facts| {
            facts.hold().is_some_and(|hold| hold.epoch == fence.epoch) && facts.open.is_empty()
        };
        counts.open == 0 && self.tasks[&fence.task.id].was(submission.seq, done)
    }

    /// Whether an existing child may belong to an earlier task with the id of its parent.
    pub(super) fn may_be_of_other_parent(
        &self,
        submission: &Submission<'_>,
        create: &Create,
        new: &NewTask,
    ) -> bool {
        let Some(parent) = &new.parent else { return false };
        let made_with_it = create.tasks.iter().any(|other| other.id == *parent);
        let made_after = |child: &Facts| {
            let after = |facts: &Facts| match facts.exists() {
                true => facts.created_at > child.created_at,
                false => made_with_it,
            };
            child.exists() && self.tasks[parent].was(submission.seq, after)
        };
        self.tasks[&new.id].was(submission.seq, made_after)
    }

    /// Whether a child may be rejected because its parent is missing or has ended.
    pub(super) fn may_lack_parent(
        &self,
        submission: &Submission<'_>,
        new: &NewTask,
        rejection: &Rejection,
    ) -> bool {
        let Some(track) = new.parent.as_ref().map(|parent| &self.tasks[parent]) else {
            return false;
        };
        match rejection {
            Rejection::ParentNotFound => track.was(submission.seq, |facts| !facts.exists()),
            _ => track.was(submission.seq, Facts::ended),
        }
    }
}

/// Checks that a parent resumes with the end of its last child.
pub(super) fn gathered(at: &Step<'_>, facts: &mut Facts, plain: bool) -> Result<(), Breach> {
    let State::Gathering { paused, .. } = facts.state else {
        return breach(Kind::IllegalMove, "it does not wait for children");
    };
    if !facts.open.is_empty() || !plain {
        return breach(Kind::Family, format!("{:?} are open", facts.open));
    }
    facts.state = State::Waiting { lost: None, since: at.at, paused: Some(paused) };
    Ok(())
}
