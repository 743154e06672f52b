//! Workflows of an external runtime: a turn is committed whole or not at all, under a live lease,
//! and a settle ends exactly the leased activity.
//!
//! The model stores the records it has seen, so that it knows what each commit changed, and the
//! commands that clients submitted under each lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_core::command::CommitTurn;
use windlass_core::{
    ChangeSet, Command, ConcurrencyLimit, Lease, Lifecycle, Message, Outcome, Rejection, RowKey,
    StoredRecord, Table, Task, TaskId, Timestamp, Value,
};
use windlass_engine::Error;
use windlass_store::MemoryStore;

use crate::client::{brief, brief_result};
use crate::external_runtime::{TENANT, made_by};
use crate::model::external_runtime_lock::Locks;
use crate::model::external_runtime_mailbox::Mailboxes;
use crate::model::outcome::Fenced;
use crate::model::record::one;
use crate::model::workflow::payload;
use crate::violation::{Breach, Kind, breach};

/// The observed state of these workflows.
#[derive(Debug, Default)]
pub(crate) struct ExternalRuntime {
    /// Workflows and their activities, in their present state.
    pub(super) tasks: BTreeMap<TaskId, Arc<Task>>,
    pub(super) mailboxes: Mailboxes,
    pub(super) locks: Locks,
    /// The commands that clients submitted under each lease.
    submitted: BTreeMap<Fenced, Vec<Command>>,
    /// Tasks as they were leased, the latest last.
    leased: Vec<Arc<Task>>,
    received: BTreeSet<Fenced>,
    /// Committed turns, by name.
    committed: BTreeSet<String>,
    pub(super) latest: Timestamp,
}

/// A record before and after a commit.
pub(super) type Pair<R> = (Option<Arc<R>>, Option<Arc<R>>);

/// What a commit changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub(super) now: Timestamp,
    pub(super) tasks: BTreeMap<TaskId, Pair<Task>>,
    pub(super) messages: BTreeMap<(TaskId, u64), Pair<Message>>,
    pub(super) limits: BTreeMap<String, Pair<ConcurrencyLimit>>,
    /// The turns that it committed.
    pub(super) turns: Vec<CommitTurn>,
}

/// The live lease of a task.
pub(super) fn lease(task: Option<&Task>) -> Option<(&Lease, u64)> {
    match &task?.lifecycle {
        Lifecycle::Active(lease) => Some((lease, task?.epoch)),
        _ => None,
    }
}

/// The lease that only the first, or only the second, of a pair has.
pub(super) fn only(of: &Pair<Task>, first: bool) -> Option<(&Lease, u64)> {
    let (before, after) = (lease(of.0.as_deref()), lease(of.1.as_deref()));
    let (it, other) = if first { (before, after) } else { (after, before) };
    it.filter(|(_, epoch)| other.is_none_or(|(_, of)| of != *epoch))
}

impl Changed {
    fn read(
        runtime: &ExternalRuntime,
        memory: &MemoryStore,
        changes: &ChangeSet,
        now: Timestamp,
    ) -> Self {
        let mut changed = Self { now, ..Self::default() };
        let inserts = changes.inserts.iter().map(|row| &row.key);
        let updates = changes.updates.iter().map(|update| &update.row.key);
        let deletes = changes.deletes.iter().map(|(key, _)| key);
        for key in inserts.chain(updates).chain(deletes).filter(|key| is_external_runtime(key)) {
            let (Some(first), last) = (text(key, 1), text(key, 2)) else { continue };
            match key.table {
                Table::Task => {
                    let id = TaskId::new(first);
                    let pair = pair(runtime.tasks.get(&id), memory, key);
                    changed.tasks.extend(pair.map(|pair| (id, pair)));
                }
                Table::Message => {
                    let seq = last.and_then(|seq| seq.parse().ok()).unwrap_or_default();
                    let of = (TaskId::new(first), seq);
                    let pair = pair(runtime.mailboxes.messages.get(&of), memory, key);
                    changed.messages.extend(pair.map(|pair| (of, pair)));
                }
                Table::ConcurrencyLimit => {
                    let name = last.unwrap_or_default().to_owned();
                    let pair = pair(runtime.locks.limits.get(&name), memory, key);
                    changed.limits.extend(pair.map(|pair| (name, pair)));
                }
                _ => {}
            }
        }
        changed
    }

    /// The messages that the commit inserted.
    pub(super) fn inserted_messages(&self) -> impl Iterator<Item = &Arc<Message>> {
        let changed = self.messages.values().filter(|pair| !is_same(pair));
        changed.filter_map(|(_, after)| after.as_ref())
    }

    pub(super) fn is_gone(&self, task: &TaskId, seq: u64) -> bool {
        let pair = self.messages.get(&(task.clone(), seq));
        pair.is_some_and(|pair| pair.0.is_some() && !is_same(pair))
    }

    /// Whether a turn of the commit consumed this message.
    pub(super) fn consumes(&self, task: &TaskId, seq: u64) -> bool {
        self.turns.iter().any(|turn| turn.fence.task.id == *task && turn.consumed.contains(&seq))
    }
}

/// Whether the same message exists before and after, and no other one under its number.
pub(super) fn is_same((before, after): &Pair<Message>) -> bool {
    let named = |message: &Arc<Message>| (message.name.clone(), message.sent_at);
    before.is_some() && before.as_ref().map(named) == after.as_ref().map(named)
}

fn pair<R: StoredRecord + PartialEq>(
    before: Option<&Arc<R>>,
    memory: &MemoryStore,
    key: &RowKey,
) -> Option<Pair<R>> {
    let (before, after) = (before.cloned(), one(memory, key.clone()));
    (before != after).then_some((before, after))
}

/// Whether a record belongs to the external runtime.
pub(super) fn is_external_runtime(key: &RowKey) -> bool {
    text(key, 0) == Some(TENANT)
}

fn text(key: &RowKey, at: usize) -> Option<&str> {
    match key.values.get(at) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// The lease that a command is submitted under.
fn fenced(command: &Command) -> Option<Fenced> {
    let fence = match command {
        Command::CommitTurn(turn) => &turn.fence,
        Command::AbandonTurn(decline) => &decline.fence,
        Command::Release(release) => &release.fence,
        Command::Complete(complete) => &complete.fence,
        Command::DropActivity(discard) => &discard.fence,
        _ => return None,
    };
    Some((fence.task.id.clone(), fence.epoch))
}

impl ExternalRuntime {
    /// Tasks as they were leased, the latest last.
    pub(crate) fn leased(&self) -> &[Arc<Task>] {
        &self.leased
    }

    /// Whether a client received this lease.
    pub(super) fn is_received(&self, id: &TaskId, epoch: u64) -> bool {
        self.received.contains(&(id.clone(), epoch))
    }

    pub(super) fn submitted_under(
        &self,
        id: &TaskId,
        epoch: u64,
    ) -> impl Iterator<Item = &Command> {
        self.submitted.get(&(id.clone(), epoch)).into_iter().flatten()
    }

    /// Records a command that a client submits: it may take effect from this point.
    pub(crate) fn submitted(&mut self, command: &Command) {
        self.mailboxes.submitted(command);
        self.locks.submitted(command);
        if let Some(fenced) = fenced(command) {
            self.submitted.entry(fenced).or_default().push(command.clone());
        }
    }

    /// Judges the answer that a client receives.
    pub(crate) fn answered(
        &mut self,
        command: &Command,
        answer: &Result<Outcome, Error>,
    ) -> Result<(), Breach> {
        let judged = match answer {
            Ok(outcome) => self.accepted(command, outcome),
            Err(Error::Rejected(rejection)) => self.rejected(command, rejection),
            Err(Error::Bug { command }) => breach(Kind::Engine, format!("a bug in {command}")),
            Err(_) => Ok(()),
        };
        judged.map_err(|found| Breach {
            what: format!("{}: {}: {}", brief(command), brief_result(answer), found.what),
            ..found
        })
    }

    fn accepted(&mut self, command: &Command, outcome: &Outcome) -> Result<(), Breach> {
        match (command, outcome) {
            (Command::SendMessages(send), Outcome::Sent(sent)) => match &send.messages[..] {
                [message] => self.mailboxes.accepted(message, sent),
                _ => breach(Kind::OtherAnswer, "expected one message"),
            },
            (Command::Claim(_), Outcome::Claimed(tasks)) => {
                for task in tasks {
                    if !self.received.insert((task.id.clone(), task.epoch)) {
                        return breach(Kind::LeasedTwice, format!("{}/{}", task.id, task.epoch));
                    }
                    self.leased.push(task.clone());
                }
                Ok(())
            }
            (Command::CommitTurn(turn), _) => match name_of(turn) {
                name if self.committed.contains(name) => Ok(()),
                name => breach(Kind::EffectMissing, format!("the turn {name} was not committed")),
            },
            _ => match fenced(command) {
                Some((id, epoch)) => {
                    let held = lease(self.tasks.get(&id).map(Arc::as_ref));
                    match held.filter(|(_, of)| *of == epoch) {
                        Some(_) => breach(Kind::EffectMissing, "its lease is still live"),
                        None => Ok(()),
                    }
                }
                None => Ok(()),
            },
        }
    }

    /// Checks a rejection: a send is rejected only if its target may be absent.
    fn rejected(&self, command: &Command, rejection: &Rejection) -> Result<(), Breach> {
        match command {
            Command::SendMessages(send) => send
                .messages
                .iter()
                .try_for_each(|message| self.mailboxes.rejected(message, rejection)),
            Command::Claim(_) | Command::RenewSessions(_) | Command::ReleaseSession(_) => {
                breach(Kind::UnjustRejection, "the command had no fault")
            }
            _ => Ok(()),
        }
    }

    /// Judges the changes of a commit, if it took effect.
    pub(super) fn observe(
        &mut self,
        memory: &MemoryStore,
        changes: &ChangeSet,
        now: Timestamp,
    ) -> Result<(), Breach> {
        self.latest = self.latest.max(now);
        let mut changed = Changed::read(self, memory, changes, now);
        for (id, pair) in &changed.tasks {
            changed.turns.extend(self.turn_of(memory, id, pair, now)?);
        }
        for turn in &changed.turns {
            self.check_whole(turn, &changed)?;
        }
        for (id, pair) in &changed.tasks {
            self.check_task(id, pair, &changed)?;
        }
        self.check_mail(&changed)?;
        self.check_locks(&changed)?;
        self.committed.extend(changed.turns.iter().map(|turn| name_of(turn).to_owned()));
        store_changes(&mut self.tasks, changed.tasks);
        store_changes(&mut self.mailboxes.messages, changed.messages);
        store_changes(&mut self.locks.limits, changed.limits);
        Ok(())
    }

    /// The turn that added a row to a history: one that was submitted under the live lease.
    fn turn_of(
        &self,
        memory: &MemoryStore,
        id: &TaskId,
        pair: &Pair<Task>,
        now: Timestamp,
    ) -> Result<Option<CommitTurn>, Breach> {
        let rows = |task: &Task| {
            let turns = task.workflow.as_ref().map(|workflow| workflow.turns);
            (task.execution, turns.unwrap_or(0))
        };
        let Some(after) = pair.1.as_deref() else { return Ok(None) };
        let (was, is) = (pair.0.as_deref().map_or((0, 0), rows), rows(after));
        if was == is {
            return Ok(None);
        }
        if is != (was.0, was.1 + 1) && is != (was.0 + 1, 1) {
            return breach(Kind::History, format!("{id} had {was:?} rows and has {is:?}"));
        }
        let row = payload(memory, &after.turn_key(is.1 - 1));
        let row = row.map(|row| String::from_utf8_lossy(&row.bytes).into_owned());
        let held = lease(pair.0.as_deref()).filter(|(lease, _)| now < lease.expires_at);
        let submitted = held.into_iter().flat_map(|(_, epoch)| self.submitted_under(id, epoch));
        let mut turns = submitted.filter_map(|command| match command {
            Command::CommitTurn(turn) => Some(turn),
            _ => None,
        });
        match turns.find(|turn| Some(format!("\"{}\"", name_of(turn))) == row) {
            Some(turn) => Ok(Some(turn.clone())),
            None => breach(Kind::StaleAccepted, format!("{row:?} of {id}, held by {held:?}")),
        }
    }

    /// Checks that a turn was committed whole: messages consumed, activities and messages added.
    fn check_whole(&self, turn: &CommitTurn, changed: &Changed) -> Result<(), Breach> {
        let id = &turn.fence.task.id;
        if let Some(seq) = turn.consumed.iter().find(|seq| !changed.is_gone(id, **seq)) {
            return breach(Kind::Message, format!("{id} consumed {seq}, which still exists"));
        }
        let is_made = |id: &TaskId| matches!(changed.tasks.get(id), Some((None, Some(_))));
        if let Some(work) = made_by(turn).find(|work| !is_made(&work.id)) {
            return breach(Kind::Step, format!("{} was not created", work.id));
        }
        let name = format!("{}-sent", name_of(turn));
        let sends = turn.commands.len() > made_by(turn).count();
        if sends && !changed.inserted_messages().any(|message| message.name == name) {
            return breach(Kind::MessageLost, format!("{name} was not sent"));
        }
        Ok(())
    }

    /// Checks the change of a task: a workflow stays in its one attempt, an activity is created
    /// by a turn and deleted by the settle of its lease holder.
    fn check_task(&self, id: &TaskId, pair: &Pair<Task>, changed: &Changed) -> Result<(), Breach> {
        let (before, after) = (pair.0.as_deref(), pair.1.as_deref());
        if before.zip(after).is_some_and(|(before, after)| after.epoch < before.epoch) {
            return breach(Kind::IllegalMove, format!("the epoch of {id} decreased: {after:?}"));
        }
        match (before, after) {
            (_, Some(flow)) if flow.workflow.is_some() => {
                let over = only(pair, true).is_some_and(|(held, _)| held.expires_at <= changed.now);
                let lost_leases = before.map_or(0, |before| before.lost_leases);
                if flow.attempts > 1 || flow.lost_leases > lost_leases && !over {
                    return breach(Kind::Attempts, format!("wrong counts of {id}: {flow:?}"));
                }
                Ok(())
            }
            (Some(flow), None) if flow.workflow.is_some() => {
                breach(Kind::IllegalMove, format!("{id} was deleted"))
            }
            (None, Some(_)) => {
                match changed.turns.iter().flat_map(made_by).any(|new| new.id == *id) {
                    true => Ok(()),
                    false => breach(Kind::IllegalMove, format!("no turn created {id}")),
                }
            }
            (Some(work), None) => self.check_end(work, changed),
            _ => Ok(()),
        }
    }

    /// Checks a deleted activity: its lease holder asked for that in time, and its workflow gets
    /// a completion message if and only if the activity completed.
    fn check_end(&self, work: &Task, changed: &Changed) -> Result<(), Breach> {
        let (mut done, mut discarded) = (false, false);
        if let Some((held, epoch)) = lease(Some(work))
            && changed.now < held.expires_at
        {
            for command in self.submitted_under(&work.id, epoch) {
                done |= matches!(command, Command::Complete(_));
                discarded |= matches!(command, Command::DropActivity(_));
            }
        }
        let is_past = |flow: Option<&Arc<Task>>| {
            let first = flow.and_then(|flow| Some(flow.workflow.as_ref()?.first_step));
            first.zip(work.step).is_some_and(|(first, step)| step < first)
        };
        let parent = work.parent.as_ref().and_then(|id| self.tasks.get(id));
        let turned = work.parent.as_ref().and_then(|id| changed.tasks.get(id)?.1.as_ref());
        let mut reports =
            changed.inserted_messages().filter_map(|message| message.completion.as_ref());
        let reported = reports
            .any(|report| report.task.as_ref().is_some_and(|reporter| reporter.id == work.id));
        let just = match reported {
            true => done && !is_past(parent),
            false => discarded || done && is_past(turned.or(parent)),
        };
        match just {
            true => Ok(()),
            false => {
                let what =
                    format!("{} deleted, reported {reported}: {:?}", work.id, work.lifecycle);
                breach(Kind::Step, what)
            }
        }
    }

    /// Checks that no work is left.
    pub(crate) fn all_done(&self) -> Result<(), Breach> {
        if let Some(message) = self.mailboxes.messages.values().next() {
            return breach(Kind::Stuck, format!("{message:?} was not consumed"));
        }
        let rests = |task: &Task| matches!(task.lifecycle, Lifecycle::Suspended(_));
        match self.tasks.values().find(|task| task.workflow.is_none() || !rests(task)) {
            Some(task) => breach(Kind::Stuck, format!("{task:?}")),
            None => Ok(()),
        }
    }
}

/// The name of a turn.
fn name_of(turn: &CommitTurn) -> &str {
    turn.metadata.as_ref().map_or("", |metadata| metadata.turn_id.as_str())
}

fn store_changes<K: Ord, R>(all: &mut BTreeMap<K, Arc<R>>, changed: BTreeMap<K, Pair<R>>) {
    for (key, (_, after)) in changed {
        match after {
            Some(record) => drop(all.insert(key, record)),
            None => drop(all.remove(&key)),
        }
    }
}
