//! Invariants of workflows, and the turns of a small one.

use std::collections::BTreeSet;

use windlass_core::command::{CommitTurn, NewTask, TurnEnd, WorkflowCommand};
use windlass_core::{
    Change, Command, Event, Execution, Fence, Lease, Lifecycle, Message, Outcome, Payload,
    PayloadKey, Task, TaskId,
};

use crate::batch::new_task;
use crate::explore::LEASE_MS;
use crate::invariants::{Held, View, ensure};
use crate::messages::all;
use crate::steps::Step;

/// What a turn of a workflow does, besides consuming its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Starts an activity and a timer, and waits.
    Make,
    /// Cancels all open steps, and waits.
    CancelSteps,
    End,
    StartOver,
    /// Has the number of the turn before the last.
    Earlier,
}

/// A turn under this fence. Its row lists the messages that it consumes.
pub(crate) fn turn(view: &View, fence: Fence, operation: Operation) -> Option<Command> {
    let task = view.tasks.get(&fence.task.id)?;
    let workflow = task.workflow.as_deref()?;
    let visible = |message: &Message| message.task == task.id && message.due_at.is_none();
    let messages = all::<Message>(view).into_iter().filter(visible);
    let consumed: Vec<u64> = messages.map(|message| message.seq).collect();
    let step = workflow.next_step;
    let (commands, next_step, end) = match operation {
        Operation::Make => (make(view, task, step), step + 2, TurnEnd::AwaitMessages),
        Operation::CancelSteps => (cancel_steps(view, task), step, TurnEnd::AwaitMessages),
        Operation::Earlier => (Vec::new(), step, TurnEnd::AwaitMessages),
        Operation::End => {
            (cancel_steps(view, task), step, TurnEnd::Complete(Some(Payload::json("1"))))
        }
        Operation::StartOver => {
            let (input, carried) = (Some(Payload::json("2")), Some(Payload::json("{}")));
            let end = TurnEnd::ContinueAsNew { input, version: None, carried };
            (cancel_steps(view, task), step, end)
        }
    };
    let turn = match operation {
        Operation::Earlier => workflow.turns.checked_sub(1)?,
        _ => workflow.turns,
    };
    let row = Some(Payload::json(format!("{{\"taken\":{consumed:?},\"by\":{}}}", fence.epoch)));
    let sticky_ms = Some(LEASE_MS);
    let commit = CommitTurn {
        fence,
        turn,
        row,
        consumed,
        commands,
        next_step,
        end,
        sticky_ms,
        eager: None,
        metadata: None,
    };
    Some(commit.into())
}

fn make(view: &View, task: &Task, step: u64) -> Vec<WorkflowCommand> {
    let id = format!("{}/{step}", task.id);
    let payload = Some(Payload::json("0"));
    let activity = NewTask { payload, ..new_task(&id) };
    let at = view.now.plus_ms(LEASE_MS);
    vec![
        WorkflowCommand::Activity { step, task: activity, eager: false },
        WorkflowCommand::Timer { step: step + 1, at },
    ]
}

fn cancel_steps(view: &View, task: &Task) -> Vec<WorkflowCommand> {
    let own = |other: &&Task| other.parent.as_ref() == Some(&task.id);
    let steps = view.tasks.values().filter(own);
    let steps = steps.filter_map(|task| {
        Some(WorkflowCommand::CancelTask { step: task.step?, id: task.id.clone() })
    });
    let timers = all::<Message>(view).into_iter().filter(|message| message.task == task.id);
    let timers = timers.filter(|message| message.due_at.is_some());
    let timers = timers.filter_map(|message| {
        Some(WorkflowCommand::CancelTimer { step: message.completion?.step })
    });
    steps.chain(timers).collect()
}

fn is_open(task: &Task) -> bool {
    task.lifecycle.ended_at().is_none()
}

/// Every execution has exactly the rows that it counts, and no other row exists.
pub(crate) fn a_history_has_its_rows(view: &View) -> Held {
    let mut rows = BTreeSet::new();
    for task in view.tasks.values() {
        let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        rows.extend((0..turns).map(|turn| task.turn_key(turn)));
    }
    for execution in all::<Execution>(view) {
        rows.extend((0..execution.turns).map(|turn| execution.turn_key(turn)));
    }
    let is_row = |key: &&PayloadKey| key.slot.as_str().starts_with("turn/");
    let stored = view.tables.payloads().map(|(key, _)| key).filter(is_row);
    let stored: BTreeSet<PayloadKey> = stored.cloned().collect();
    ensure(stored == rows, || format!("{stored:?}, where {rows:?} are expected"))
}

/// Every past execution belongs to an existing workflow, and comes before its current execution.
pub(crate) fn executions_have_their_workflow(view: &View) -> Held {
    all::<Execution>(view).iter().try_for_each(|execution| {
        let task = view.tasks.get(&execution.task);
        let fits = task.is_some_and(|task| execution.number < task.execution);
        ensure(fits, || format!("{execution:?} of {task:?}"))
    })
}

/// A step is open, or its end is reported, or neither: never both, and never two reports.
pub(crate) fn a_step_ends_once(view: &View) -> Held {
    let messages = all::<Message>(view);
    let mut completed = BTreeSet::new();
    for message in &messages {
        let Some(report) = &message.completion else { continue };
        let workflow = view.tasks.get(&message.task).and_then(|task| task.workflow.as_deref());
        let is_issued = workflow.is_some_and(|workflow| report.step < workflow.next_step);
        ensure(is_issued, || format!("{message:?} is of no step of {workflow:?}"))?;
        let first = completed.insert((message.task.clone(), report.step));
        ensure(first, || format!("{message:?} reports it again"))?;
    }
    let steps =
        view.tasks.values().filter_map(|task| Some((task, task.parent.clone()?, task.step?)));
    steps.filter(|(task, ..)| is_open(task)).try_for_each(|(task, parent, step)| {
        ensure(!completed.contains(&(parent, step)), || format!("{task:?} is open after its end"))
    })
}

/// An activity exists only while it is open, and its workflow receives its end or will cancel it.
pub(crate) fn an_activity_has_its_workflow(view: &View) -> Held {
    let activities = view.tasks.values().filter(|task| task.step.is_some());
    activities.filter(|task| task.workflow.is_none()).try_for_each(|task| {
        ensure(is_open(task), || format!("{task:?} has ended and still exists"))?;
        let parent = task.parent.as_ref();
        let listens = parent.and_then(|id| view.tasks.get(id)).is_some_and(|parent| {
            let first = parent.workflow.as_ref().map(|workflow| workflow.first_step);
            is_open(parent) && first <= task.step
        });
        let children = parent.and_then(|id| view.children.get(id));
        let doomed = children.is_some_and(|children| children.due_at.is_some());
        ensure(listens || doomed, || format!("no workflow waits for {task:?}: {children:?}"))
    })
}

/// A turn is committed by the lease holder, as the one after the last, and adds one row.
pub(crate) fn a_turn_is_the_next_of_its_holder(step: &Step<'_>) -> Held {
    let Command::CommitTurn(commit) = step.command else { return Ok(()) };
    let (Ok(Outcome::TurnCommitted { .. }), false) = (step.outcome, step.changes.is_empty()) else {
        return Ok(());
    };
    let was = step.before.tasks.get(&commit.fence.task.id);
    let holds = was.is_some_and(|was| {
        let alive =
            matches!(&was.lifecycle, Lifecycle::Active(lease) if step.after.now < lease.expires_at);
        alive && was.epoch == commit.fence.epoch
    });
    let turns = was.and_then(|was| was.workflow.as_deref()).map(|workflow| workflow.turns);
    ensure(holds && turns == Some(commit.turn), || format!("{commit:?} was accepted over {was:?}"))
}

/// The messages that a turn consumes are deleted, and no other visible message.
pub(crate) fn consumed_messages_are_deleted(step: &Step<'_>) -> Held {
    let seen = |view: &View, id: &TaskId| -> BTreeSet<u64> {
        let own = |message: &Message| message.task == *id && message.due_at.is_none();
        all::<Message>(view).into_iter().filter(own).map(|message| message.seq).collect()
    };
    step.before.tasks.values().filter(|task| task.workflow.is_some()).try_for_each(|task| {
        let Some(after) = step.after.tasks.get(&task.id) else { return Ok(()) };
        let consumed: BTreeSet<u64> = match (step.command, step.outcome) {
            (Command::CommitTurn(commit), Ok(_)) if commit.fence.task.id == task.id => {
                commit.consumed.iter().copied().collect()
            }
            _ => BTreeSet::new(),
        };
        let (was, is) = (seen(step.before, &task.id), seen(step.after, &task.id));
        let lost: Vec<&u64> = was.difference(&is).filter(|seq| !consumed.contains(seq)).collect();
        let fits = lost.is_empty() && (step.changes.is_empty() || consumed.is_disjoint(&is));
        ensure(fits || !is_open(after), || {
            format!("{consumed:?} of {was:?} was consumed, {is:?} left")
        })
    })
}

pub(crate) fn is_activity(task: &Task) -> bool {
    task.step.is_some() && task.workflow.is_none()
}

/// Changes without an event of the task itself: the creation of an activity, which the event of its
/// turn names, and what a message changes in a workflow whose lease stays the same.
pub(crate) fn needs_no_entry(step: &Step<'_>, was: Option<&Task>, is: Option<&Task>) -> bool {
    match (was, is) {
        (None, Some(task)) if is_activity(task) => {
            step.changes.events.iter().any(|event| creates(event, task))
        }
        (Some(was), Some(is)) if was.workflow.is_some() => {
            lease(was) == lease(is)
                && is_open(was)
                && is_open(is)
                && without_messages(was, is) == *is
        }
        _ => false,
    }
}

/// The workflow before, with all that a message or the loss of its sticky worker changes taken from
/// the workflow after.
fn without_messages(was: &Task, is: &Task) -> Task {
    let mut task = was.clone();
    task.lifecycle = is.lifecycle.clone();
    (task.due_at, task.has_mailbox, task.has_children) =
        (is.due_at, is.has_mailbox, is.has_children);
    if let (Some(workflow), Some(is)) = (&mut task.workflow, &is.workflow) {
        workflow.sticky = is.sticky.clone();
    }
    task
}

fn creates(event: &Event, activity: &Task) -> bool {
    let (Some((id, _)), Change::TurnCommitted { activities, .. }) = (&event.task, &event.change)
    else {
        return false;
    };
    activity.parent.as_ref() == Some(id) && activities.contains(&activity.id)
}

fn lease(task: &Task) -> Option<&Lease> {
    match &task.lifecycle {
        Lifecycle::Active(lease) => Some(lease),
        _ => None,
    }
}

/// An activity is deleted when its end is reported, or when its workflow does not need it.
pub(crate) fn an_activity_ends_with_a_report(step: &Step<'_>) -> Held {
    let (before, after) = (&step.before.tasks, &step.after.tasks);
    let gone = before.values().filter(|task| is_activity(task) && !after.contains_key(&task.id));
    gone.into_iter().try_for_each(|task| {
        let parent = task.parent.as_ref().and_then(|id| after.get(id));
        let listens = parent.is_some_and(|parent| {
            let first = parent.workflow.as_ref().map(|workflow| workflow.first_step);
            is_open(parent) && first <= task.step
        });
        let given_up = |command: &WorkflowCommand| matches!(command, WorkflowCommand::CancelTask { id, .. } if *id == task.id);
        let given_up = match step.command {
            Command::CommitTurn(commit) => commit.commands.iter().any(given_up),
            _ => false,
        };
        let notified = all::<Message>(step.after).iter().any(|message| {
            Some(&message.task) == task.parent.as_ref()
                && message.completion.as_ref().map(|report| report.step) == task.step
        });
        ensure(notified || given_up || !listens, || format!("{task:?} was deleted"))
    })
}

/// Whether a payload belongs to a past execution.
pub(crate) fn is_of_a_past_execution(view: &View, key: &PayloadKey) -> bool {
    let task = view.tasks.get(&key.task).filter(|task| task.workflow.is_some());
    task.is_some_and(|task| key.execution < task.execution)
}
