//! Workflows: the changes that each commit may make to them.
//!
//! The model stores the records it has seen, so that it knows what each commit changed: who held
//! the lease, which messages existed, and how long each history was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_core::command::CommitTurn;
use windlass_core::{
    ChangeSet, Command, Condition, Fence, Lifecycle, Mailbox, Message, Outcome, Payload,
    PayloadKey, RecordedCommand, RowKey, Slot, Table, Task, TaskId, TaskKey, Tenant, Timestamp,
    TurnRecord, Value, WorkerId, WorkflowInput,
};
use windlass_engine::Error;
use windlass_store::{MemoryStore, Store};

use crate::coverage::CoverageEvent;
use crate::model::record::{is_of_workflows, one};
use crate::model::workflow_execution::{WorkflowFacts, Written};
use crate::ready::ready;
use crate::violation::{Breach, Kind, breach};
use crate::workflow::{TENANT, WorkflowSpec};

/// Prefix of the payload slots of history rows.
const TURN: &str = "turn/";

/// The observed state of workflows and their steps.
#[derive(Debug, Default)]
pub(crate) struct Workflows {
    pub(super) specs: Vec<WorkflowSpec>,
    /// Workflows and activities, in their present state.
    pub(super) tasks: BTreeMap<TaskId, Arc<Task>>,
    pub(super) messages: BTreeMap<TaskId, BTreeMap<u64, Arc<Message>>>,
    pub(super) by_id: BTreeMap<TaskId, WorkflowFacts>,
    /// Leases that have ended, and by which commit.
    lost: BTreeMap<(TaskId, u64), u64>,
    /// All leases of turns.
    leases: Vec<Fence>,
    /// The number of cached instances of each workflow.
    in_memory: BTreeMap<String, u32>,
    pub(super) met: Vec<CoverageEvent>,
}

/// The origin and time of a commit.
#[derive(Debug)]
pub(super) struct Writer<'w> {
    /// The workflow worker of the same node.
    pub(super) worker: &'w str,
    pub(super) now: Timestamp,
    pub(super) moment: u64,
}

/// A task before and after a commit.
type Pair = (Option<Arc<Task>>, Option<Arc<Task>>);

/// What a commit changed.
#[derive(Debug, Default)]
struct Changed {
    tasks: BTreeMap<TaskId, Pair>,
    inserted: Vec<Arc<Message>>,
    gone: BTreeMap<TaskId, Vec<Arc<Message>>>,
    rows: BTreeMap<TaskId, Vec<Written>>,
    /// Workflows that lost an execution as soon as it ended: its last row was never visible.
    cut: BTreeSet<TaskId>,
    mailboxes: BTreeSet<TaskId>,
}

impl Changed {
    /// Whether a row records that a step has ended.
    fn is_recorded(&self, workflow: &TaskId, step: u64) -> bool {
        let rows = self.rows.get(workflow).into_iter().flatten();
        rows.flat_map(|written| &written.row.inputs).any(|input| match input {
            WorkflowInput::StepCompletion { step: of, .. } => *of == step,
            _ => false,
        })
    }

    /// The steps whose activities ended in the commit that recorded them in the history, written
    /// by the worker that leased them.
    fn ended_with_turn(&self, workflow: &TaskId, writer: &Writer<'_>) -> BTreeSet<u64> {
        let ended = self.tasks.values().filter_map(|(before, after)| {
            let task = before.as_ref().filter(|_| after.is_none())?;
            let Lifecycle::Active(lease) = &task.lifecycle else { return None };
            let is_his = lease.worker.as_str().ends_with(writer.worker);
            let is_alive = writer.now < lease.expires_at;
            let is_of_it = task.parent.as_ref() == Some(workflow) && task.workflow.is_none();
            task.step.filter(|_| is_his && is_alive && is_of_it)
        });
        ended.filter(|step| self.is_recorded(workflow, *step)).collect()
    }
}

impl Workflows {
    pub(crate) fn new(specs: Vec<WorkflowSpec>) -> Self {
        Self { specs, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    pub(crate) fn task(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id).map(Arc::as_ref)
    }

    /// Returns how many other instances are cached.
    pub(crate) fn comes_to_memory(&mut self, id: &str) -> u32 {
        let count = self.in_memory.entry(id.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    pub(crate) fn leaves_memory(&mut self, id: &str) {
        if let Some(count) = self.in_memory.get_mut(id) {
            *count -= 1;
        }
    }

    /// The worker that committed the last turn of a workflow.
    pub(crate) fn in_memory_of(&self, id: &TaskId) -> Option<&WorkerId> {
        self.by_id.get(id)?.made_by.as_ref()
    }

    /// Leases of turns, the latest last.
    pub(crate) fn leases(&self) -> &[Fence] {
        &self.leases
    }

    /// Judges the answer to a command about a workflow.
    pub(crate) fn answered(
        &self,
        command: &Command,
        moment: u64,
        answer: &Result<Outcome, Error>,
    ) -> Result<(), Breach> {
        let (Command::CommitTurn(CommitTurn { fence, row, turn, .. }), Ok(_)) = (command, answer)
        else {
            return Ok(());
        };
        if row.is_some() {
            let what = format!("turn {turn} of {}, which is not the next one", fence.task.id);
            return breach(Kind::History, what);
        }
        match self.lost.get(&(fence.task.id.clone(), fence.epoch)) {
            Some(since) if *since <= moment => {
                let what = format!("a turn under {}/{}", fence.task.id, fence.epoch);
                breach(Kind::StaleAccepted, what)
            }
            _ => Ok(()),
        }
    }

    /// Judges the changes of a commit, if it took effect.
    pub(super) fn observe(
        &mut self,
        memory: &MemoryStore,
        changes: &ChangeSet,
        writer: &Writer<'_>,
    ) -> Result<(), Breach> {
        if self.is_empty() {
            return Ok(());
        }
        let changed = self.changed(memory, changes)?;
        for (id, (before, after)) in &changed.tasks {
            self.begins(memory, id, before.as_deref(), after.as_deref());
        }
        self.check_rows(&changed, writer)?;
        self.check_reports(&changed)?;
        self.check_dropped(memory, changes)?;
        for (id, (before, after)) in &changed.tasks {
            self.resumes_attempt(memory, id, before.as_deref(), after.as_deref())?;
            self.check_gone(&changed, id, before.as_deref(), after.as_deref())?;
            self.note_lost(id, before.as_deref(), after.as_deref(), writer.moment);
            match after {
                Some(task) => drop(self.tasks.insert(id.clone(), task.clone())),
                None => drop(self.tasks.remove(id)),
            }
        }
        changed.rows.iter().try_for_each(|(id, rows)| self.check_given_up(id, rows))?;
        let touched = changed.tasks.keys().chain(&changed.mailboxes);
        touched.into_iter().try_for_each(|id| self.check_mail(memory, id))
    }

    /// Checks that cancelled steps do not continue: they are deleted, or asked to cancel.
    fn check_given_up(&self, id: &TaskId, rows: &[Written]) -> Result<(), Breach> {
        let steps = rows.iter().flat_map(|written| &written.row.commands).filter_map(|made| {
            let RecordedCommand::Cancel { step } = made else { return None };
            Some(*step)
        });
        let released: BTreeSet<u64> = steps.collect();
        let of_them = |step: Option<u64>| step.is_some_and(|step| released.contains(&step));
        let resumes_attempt = |task: &&Arc<Task>| {
            let submission =
                task.workflow.as_ref().is_some_and(|known| known.cancel_reason.is_some());
            let is_open = task.lifecycle.ended_at().is_none() && !submission;
            is_open && of_them(task.step) && task.parent.as_ref() == Some(id)
        };
        if let Some(task) = self.tasks.values().find(resumes_attempt) {
            return breach(Kind::Step, format!("{id} cancelled {task:?}, which is still open"));
        }
        let timers = self.messages.get(id).into_iter().flat_map(BTreeMap::values);
        let of_step = |message: &&Arc<Message>| {
            of_them(message.completion.as_ref().map(|report| report.step))
                && message.due_at.is_some()
        };
        match timers.into_iter().find(of_step) {
            Some(timer) => breach(Kind::Step, format!("{id} cancelled {timer:?}, which exists")),
            None => Ok(()),
        }
    }

    fn changed(&mut self, memory: &MemoryStore, changes: &ChangeSet) -> Result<Changed, Breach> {
        let mut changed = Changed::default();
        let inserts = changes.inserts.iter().map(|row| &row.key);
        let updates = changes.updates.iter().map(|update| &update.row.key);
        let deletes = changes.deletes.iter().map(|(key, _)| key);
        for key in inserts.chain(updates).chain(deletes).filter(|key| is_of_workflows(key)) {
            let Some(id) = text(key, 1).map(TaskId::new) else { continue };
            match key.table {
                Table::Task => {
                    let (before, after) = (self.tasks.get(&id).cloned(), one(memory, key.clone()));
                    if before != after {
                        changed.tasks.insert(id, (before, after));
                    }
                }
                Table::Message => {
                    changed.mailboxes.insert(id.clone());
                    self.moved(memory, key, id, &mut changed);
                }
                Table::Mailbox => drop(changed.mailboxes.insert(id)),
                _ => {}
            }
        }
        for (key, _) in changes.payloads.iter().filter(|(key, _)| is_row(key)) {
            let Some(payload) = payload(memory, key) else { continue };
            let row: TurnRecord = serde_json::from_slice(&payload.bytes).map_err(|error| {
                let what = format!("{key:?} cannot be read: {error}");
                Breach { kind: Kind::History, what }
            })?;
            let written = Written { execution: key.execution, number: number_of(key), row };
            changed.rows.entry(key.task.clone()).or_default().push(written);
        }
        let dropped = changes.dropped_payloads.iter().filter(|key| is_row(key));
        let cut = dropped.filter(|key| {
            let pair = changed.tasks.get(&key.task);
            let Some((Some(before), Some(after))) = pair else { return false };
            let ends = before.execution == key.execution && key.execution < after.execution;
            let facts = self.by_id.get(&key.task);
            ends && facts.is_some_and(|facts| facts.rows() <= number_of(key))
        });
        changed.cut = cut.map(|key| key.task.clone()).collect();
        Ok(changed)
    }

    /// Records a message that was inserted, deleted, or made visible.
    fn moved(&mut self, memory: &MemoryStore, key: &RowKey, id: TaskId, changed: &mut Changed) {
        let after = one::<Message>(memory, key.clone());
        let known = self.messages.entry(id.clone()).or_default();
        let seq = text(key, 2).and_then(|seq| seq.parse().ok()).unwrap_or_default();
        let before = known.get(&seq).cloned();
        match (before, after) {
            (None, Some(message)) => {
                known.insert(seq, message.clone());
                changed.inserted.push(message);
            }
            (Some(message), None) => {
                known.remove(&seq);
                changed.gone.entry(id).or_default().push(message);
            }
            (_, Some(message)) => drop(known.insert(seq, message)),
            (None, None) => {}
        }
    }

    fn begins(
        &mut self,
        memory: &MemoryStore,
        id: &TaskId,
        before: Option<&Task>,
        after: Option<&Task>,
    ) {
        if let (None, Some(task)) = (before, after.filter(|task| task.workflow.is_some())) {
            let input = payload_of(memory, task, "input");
            self.by_id.insert(id.clone(), WorkflowFacts::new(task, input));
        }
    }

    /// Checks that rows are written under a lease, and account for every consumed message.
    fn check_rows(&mut self, changed: &Changed, writer: &Writer<'_>) -> Result<(), Breach> {
        for id in &changed.cut {
            self.by_id.get_mut(id).into_iter().for_each(WorkflowFacts::cut);
        }
        let none = Vec::new();
        let with_rows: BTreeSet<&TaskId> = changed.rows.keys().chain(changed.gone.keys()).collect();
        for id in with_rows {
            let before = self.tasks.get(id).cloned();
            let Some(facts) = self.by_id.get_mut(id) else { continue };
            let rows = changed.rows.get(id).map_or(&none[..], Vec::as_slice);
            let fresh = facts.unwritten(id, rows)?;
            let has_ended = before.as_ref().is_none_or(|task| task.lifecycle.ended_at().is_some());
            if has_ended && fresh.is_empty() {
                continue;
            }
            let ahead = changed.ended_with_turn(id, writer);
            if !fresh.is_empty() {
                let has_ahead = !ahead.is_empty();
                facts.made_by = Some(check_held(id, before.as_deref(), writer, has_ahead)?);
            }
            let gone = changed.gone.get(id).map_or(&[][..], Vec::as_slice);
            facts.turned(id, fresh, gone, &ahead, writer.now)?;
        }
        Ok(())
    }

    /// Checks that each step completes once.
    fn check_reports(&mut self, changed: &Changed) -> Result<(), Breach> {
        for message in &changed.inserted {
            if let Some(report) = &message.completion
                && let Some(facts) = self.by_id.get_mut(&message.task)
                && !facts.reported.insert(report.step)
            {
                let what = format!("step {} of {} has ended again", report.step, message.task);
                return breach(Kind::Step, what);
            }
        }
        Ok(())
    }

    /// Checks that the rows of an open execution are retained.
    fn check_dropped(&self, memory: &MemoryStore, changes: &ChangeSet) -> Result<(), Breach> {
        for key in changes.dropped_payloads.iter().filter(|key| is_row(key)) {
            let task = one::<Task>(memory, TaskKey::new(&key.tenant, &key.task).row_key());
            let resumes_attempt = |task: &Arc<Task>| {
                task.execution == key.execution && task.lifecycle.ended_at().is_none()
            };
            // A row written and dropped by a failed commit never existed.
            let was_there =
                self.by_id.get(&key.task).is_none_or(|facts| number_of(key) < facts.rows());
            if was_there
                && task.as_ref().is_some_and(resumes_attempt)
                && payload(memory, key).is_none()
            {
                return breach(Kind::History, format!("{key:?} was dropped"));
            }
        }
        Ok(())
    }

    /// Checks the number of rows of a workflow, its continuations, and that it ends once.
    fn resumes_attempt(
        &mut self,
        memory: &MemoryStore,
        id: &TaskId,
        before: Option<&Task>,
        after: Option<&Task>,
    ) -> Result<(), Breach> {
        let (Some(facts), Some(task)) = (self.by_id.get_mut(id), after) else { return Ok(()) };
        if before.is_some_and(|before| before.lifecycle.ended_at().is_some()) {
            return facts.check_ended(id, task);
        }
        if before.is_some_and(|before| before.execution < task.execution) {
            let input = payload_of(memory, task, "input");
            let carried = payload_of(memory, task, "carried");
            self.met.push(CoverageEvent::ContinuedAsNew);
            if facts.starts_over(task, input, carried) {
                self.met.push(CoverageEvent::CarriedOver);
            }
        }
        facts.check_turns(id, task)?;
        if task.lifecycle.ended_at().is_some() {
            facts.ends(task, payload_of(memory, task, "result"));
            self.met.push(match task.lifecycle {
                Lifecycle::Completed { .. } => CoverageEvent::WorkflowCompleted,
                Lifecycle::Failed { .. } => CoverageEvent::WorkflowFailed,
                _ => CoverageEvent::WorkflowCancelled,
            });
        }
        Ok(())
    }

    /// Checks that a deleted activity reported its end, unless its workflow ignores it.
    fn check_gone(
        &self,
        changed: &Changed,
        id: &TaskId,
        before: Option<&Task>,
        after: Option<&Task>,
    ) -> Result<(), Breach> {
        let (Some(task), None) = (before, after) else { return Ok(()) };
        let (Some(parent), Some(step)) = (&task.parent, task.step) else { return Ok(()) };
        let Some(facts) = self.by_id.get(parent).filter(|facts| facts.ended.is_none()) else {
            return Ok(());
        };
        let tells = |message: &&Arc<Message>| {
            message.task == *parent && message.completion.as_ref().is_some_and(|r| r.step == step)
        };
        let sent = changed.inserted.iter().any(|message| tells(&message));
        let reported = sent || changed.is_recorded(parent, step);
        if reported || facts.cancelled.contains(&step) || step < facts.first_step() {
            return Ok(());
        }
        breach(Kind::Step, format!("{id} was deleted without a report to {parent}"))
    }

    fn note_lost(&mut self, id: &TaskId, was: Option<&Task>, is: Option<&Task>, moment: u64) {
        let held =
            |task: &Task| matches!(task.lifecycle, Lifecycle::Active(_)).then_some(task.epoch);
        if let Some(epoch) = was.and_then(held)
            && is.and_then(held) != Some(epoch)
        {
            self.lost.insert((id.clone(), epoch), moment);
        }
        if let Some(task) = is.filter(|task| task.workflow.is_some())
            && held(task).is_some()
            && was.and_then(held) != held(task)
        {
            self.leases.push(task.fence());
        }
    }

    /// Checks the counts of a mailbox, and that no workflow sleeps while a message is visible.
    fn check_mail(&self, memory: &MemoryStore, id: &TaskId) -> Result<(), Breach> {
        let none = BTreeMap::new();
        let messages = self.messages.get(id).unwrap_or(&none);
        let hidden = messages.values().filter(|message| message.due_at.is_some()).count();
        let mailbox = one::<Mailbox>(memory, Mailbox::key_of(&Tenant::new(TENANT), id));
        let counted = mailbox.as_ref().map_or((0, 0), |mailbox| (mailbox.messages, mailbox.hidden));
        let (counted_held, counted_hidden) = counted;
        if (counted_held as usize, counted_hidden as usize) != (messages.len(), hidden) {
            let what = format!("{id} has {mailbox:?}, and {messages:?}");
            return breach(Kind::Message, what);
        }
        let sleeps = |task: &Task| {
            let Lifecycle::Suspended(suspension) = &task.lifecycle else { return false };
            suspension.condition == Condition::AnyMessage
        };
        if hidden < messages.len() && self.task(id).is_some_and(sleeps) {
            return breach(Kind::MessageLost, format!("{id} is suspended despite {messages:?}"));
        }
        Ok(())
    }
}

/// Checks that turns are committed by the lease holder, before expiry and through its node; or
/// speculatively by the sticky worker, together with the end of an activity that it leases.
fn check_held(
    id: &TaskId,
    before: Option<&Task>,
    writer: &Writer<'_>,
    has_ahead: bool,
) -> Result<WorkerId, Breach> {
    let now = writer.now;
    let state = before.and_then(|task| task.workflow.as_ref());
    let keeper = state.and_then(|state| state.sticky.as_ref()).map(|sticky| &sticky.worker);
    let keeps = keeper.filter(|keeper| has_ahead && keeper.as_str().ends_with(writer.worker));
    match before.map(|task| &task.lifecycle) {
        Some(Lifecycle::Suspended(_) | Lifecycle::Granted { .. }) if keeps.is_some() => {
            Ok(keeps.cloned().expect("the guard has checked it"))
        }
        Some(Lifecycle::Active(lease)) if lease.expires_at <= now => {
            breach(Kind::LateAccepted, format!("a turn of {id} at {now}, under {lease:?}"))
        }
        Some(Lifecycle::Active(lease)) if lease.worker.as_str().ends_with(writer.worker) => {
            Ok(lease.worker.clone())
        }
        other => {
            let what = format!("a turn of {id} by {}, which was {other:?}", writer.worker);
            breach(Kind::StaleAccepted, what)
        }
    }
}

fn is_row(key: &PayloadKey) -> bool {
    key.tenant.as_str() == TENANT && key.slot.as_str().starts_with(TURN)
}

fn number_of(key: &PayloadKey) -> u32 {
    key.slot.as_str().trim_start_matches(TURN).parse().unwrap_or(u32::MAX)
}

fn text(key: &RowKey, at: usize) -> Option<&str> {
    match key.values.get(at) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// The payload stored under a key.
pub(super) fn payload(memory: &MemoryStore, key: &PayloadKey) -> Option<Payload> {
    let found = ready(memory.payloads(std::slice::from_ref(key))).expect("memory does not fail");
    found.into_iter().flatten().next()
}

/// A payload of the present execution of a workflow.
fn payload_of(memory: &MemoryStore, task: &Task, slot: &str) -> Option<Payload> {
    let slot: Slot = serde_json::from_value(slot.into()).expect("a slot is a text");
    let (tenant, id, execution) = (task.tenant.clone(), task.id.clone(), task.execution);
    payload(memory, &PayloadKey { tenant, task: id, execution, slot })
}
