//! Invariants of mailboxes: messages are counted, none is lost, no task waits for a met condition.

use std::collections::BTreeSet;

use windlass_core::{
    Command, Condition, Distinct, Lifecycle, Mailbox, Matcher, Message, Outcome, Row, StoredRecord,
    Table, Task, TaskId, Timestamp, Waitpoint, WaitpointState, read_row,
};

use crate::invariants::{Held, View, ensure};
use crate::steps::Step;

pub(crate) fn all<R: StoredRecord>(view: &View) -> Vec<R> {
    let of_table = |row: &&Row| row.key.table == R::TABLE;
    let decoded = |row: &Row| read_row::<R>(row.schema, &row.body).expect("core wrote this row");
    view.tables.rows().filter(of_table).map(|row| (*decoded(row)).clone()).collect()
}

pub(crate) fn a_mailbox_counts_what_it_holds(view: &View) -> Held {
    let (mailboxes, messages) = (all::<Mailbox>(view), all::<Message>(view));
    let waitpoints = all::<Waitpoint>(view);
    for mailbox in mailboxes.iter().filter(|mailbox| !counts_buffered(mailbox)) {
        let own: Vec<&Message> = messages.iter().filter(|m| m.task == mailbox.task).collect();
        let bytes: u64 = own.iter().filter_map(|message| message.bytes).sum();
        let open = waitpoints.iter().filter(|w| w.task == mailbox.task).count();
        let hidden = own.iter().filter(|message| message.due_at.is_some()).count();
        // A report is numbered by its step, behind all other messages.
        let numbered = |message: &&&Message| message.seq < Message::of_step(0);
        let fits = mailbox.messages as usize == own.len()
            && mailbox.hidden as usize == hidden
            && mailbox.bytes == bytes
            && mailbox.waitpoints as usize == open
            && mailbox.buffered as usize
                == own.iter().filter(|m| m.buffered_until.is_some()).count()
            && own.iter().filter(numbered).all(|message| message.seq < mailbox.next_seq);
        ensure(fits, || format!("{mailbox:?} with {own:?} and {open} waitpoints"))?;
    }
    let owners = mailboxes.iter().filter(|mailbox| !counts_buffered(mailbox));
    let owners: BTreeSet<&TaskId> = owners.map(|mailbox| &mailbox.task).collect();
    let sent = messages.iter().map(|m| &m.task).chain(waitpoints.iter().map(|w| &w.task));
    for task in sent {
        ensure(owners.contains(task), || format!("{task} has messages and no mailbox"))?;
    }
    let with_messages: BTreeSet<&TaskId> =
        view.tasks.values().filter(|task| task.has_mailbox).map(|task| &task.id).collect();
    let buffered = mailboxes.iter().filter(|mailbox| mailbox.buffered > 0);
    let buffered: BTreeSet<&TaskId> = buffered.map(|mailbox| &mailbox.task).collect();
    let owned: BTreeSet<&TaskId> = owners.difference(&buffered).copied().collect();
    ensure(with_messages == owned, || {
        format!("{with_messages:?} have messages, {owned:?} have a mailbox")
    })
}

/// Whether it counts the buffered messages of a tenant.
fn counts_buffered(mailbox: &Mailbox) -> bool {
    mailbox.task.as_str().is_empty()
}

pub(crate) fn buffered_messages_are_counted(view: &View) -> Held {
    let messages: Vec<Message> = all::<Message>(view)
        .into_iter()
        .filter(|message| message.buffered_until.is_some())
        .collect();
    let bytes: u64 = messages.iter().filter_map(|message| message.bytes).sum();
    let counted = all::<Mailbox>(view).into_iter().find(counts_buffered);
    let counted = counted.map_or((0, 0), |all| (all.messages as usize, all.bytes));
    ensure(counted == (messages.len(), bytes), || format!("{counted:?} for {messages:?}"))?;
    messages.iter().try_for_each(|message| {
        let in_time = message.due_at.is_some_and(|due_at| Some(due_at) <= message.buffered_until);
        ensure(in_time, || format!("{message:?} is swept too late"))
    })
}

pub(crate) fn messages_have_their_payloads(view: &View) -> Held {
    for message in all::<Message>(view) {
        if let Some(key) = message.payload_key() {
            ensure(view.tables.payload(&key).is_some(), || format!("{key:?} is lost"))?;
        }
    }
    let messages: BTreeSet<_> = all::<Message>(view).iter().map(Message::payload_key).collect();
    let of_messages = view.tables.payloads().filter(|(key, _)| key.slot.as_str() != "input");
    let of_messages = of_messages.filter(|(key, _)| key.slot.as_str() != "result");
    let of_messages = of_messages.filter(|(key, _)| key.slot.as_str() != "carried");
    let of_messages = of_messages.filter(|(key, _)| !key.slot.as_str().starts_with("turn/"));
    let mut of_messages = of_messages.filter(|(key, _)| !crate::requests::is_result(key));
    of_messages.try_for_each(|(key, _)| {
        ensure(messages.contains(&Some(key.clone())), || format!("{key:?} was left behind"))
    })
}

pub(crate) fn a_waitpoint_has_at_most_one_message(view: &View) -> Held {
    let messages = all::<Message>(view);
    all::<Waitpoint>(view).iter().try_for_each(|waitpoint| {
        let mut through = messages.iter().filter(|m| m.waitpoint.as_ref() == Some(&waitpoint.id));
        let fits = match waitpoint.state {
            WaitpointState::Completed { seq } => through.all(|message| message.seq == seq),
            WaitpointState::Pending | WaitpointState::Active => through.next().is_none(),
        };
        ensure(fits, || format!("{waitpoint:?} with {messages:?}"))
    })
}

/// Whether some of these messages meet a condition of the attempt that began then, computed in
/// another way than in core.
fn is_met(condition: &Condition, messages: &[Message], began_at: Timestamp) -> bool {
    let takes = |of: &Matcher, message: &Message| {
        (of.waitpoint.is_some() || message.resumed_attempt_at != Some(began_at))
            && (of.waitpoint.is_none() || of.waitpoint == message.waitpoint)
            && of.name.as_ref().is_none_or(|name| message.name == *name)
            && of.source.as_ref().is_none_or(|source| message.source == *source)
    };
    match condition {
        Condition::Signal(of) => messages.iter().any(|message| takes(of, message)),
        Condition::All(parts) => !parts.iter().any(|part| !is_met(part, messages, began_at)),
        Condition::Any(parts) => parts.iter().any(|part| is_met(part, messages, began_at)),
        Condition::Count { n, distinct, of } => {
            let word = |message: &Message| match distinct {
                Distinct::Waitpoints => message.waitpoint.as_ref().map(ToString::to_string),
                Distinct::Names => Some(message.name.clone()),
                Distinct::Sources => Some(message.source.clone()),
            };
            let words = messages.iter().filter(|message| takes(of, message)).filter_map(word);
            words.collect::<BTreeSet<_>>().len() >= *n as usize
        }
        Condition::Operator | Condition::Timeout => false,
        Condition::AnyMessage => !messages.is_empty(),
    }
}

pub(crate) fn no_task_waits_for_a_met_condition(view: &View) -> Held {
    let messages = all::<Message>(view);
    view.tasks.values().try_for_each(|task| {
        let Lifecycle::Suspended(suspension) = &task.lifecycle else { return Ok(()) };
        let began_at = suspension.suspended_attempt.began_at;
        let counts = |m: &&Message| m.task == task.id && m.due_at.is_none();
        // Messages of the engine wake workflows only.
        let counts_for = |message: &&Message| {
            message.source != Message::ENGINE || suspension.condition == Condition::AnyMessage
        };
        let sent = messages.iter().filter(counts_for);
        let counted: Vec<Message> = sent.filter(counts).cloned().collect();
        let met = is_met(&suspension.condition, &counted, began_at);
        ensure(!met, || format!("{task:?} waits with {counted:?}"))
    })
}

/// The messages that are accepted and not consumed, after this step.
pub(crate) fn accepted(step: &Step<'_>) -> BTreeSet<(TaskId, u64)> {
    let mut accepted = step.ghost.accepted.clone();
    match (step.command, step.outcome) {
        (_, Ok(Outcome::Sent(sent))) => {
            let fresh = sent.iter().filter(|sent| !sent.duplicate);
            accepted.extend(fresh.map(|sent| (sent.task.clone(), sent.seq)));
        }
        (Command::CommitTurn(commit), Ok(_)) => {
            let id = &commit.fence.task.id;
            accepted.retain(|(of, seq)| of != id || !commit.consumed.contains(seq));
        }
        (Command::ConsumeMessages(take), Ok(_)) => {
            accepted.retain(|(id, seq)| *id != take.fence.task.id || !take.seqs.contains(seq));
        }
        _ => {}
    }
    let alive = |task: Option<&Task>| task.is_some_and(|task| task.lifecycle.ended_at().is_none());
    accepted.retain(|(id, _)| alive(step.after.tasks.get(id)));
    accepted
}

/// An accepted message is in the mailbox, or was consumed, or its task has ended.
pub(crate) fn no_message_is_lost(step: &Step<'_>) -> Held {
    let there: BTreeSet<(TaskId, u64)> =
        all::<Message>(step.after).into_iter().map(|message| (message.task, message.seq)).collect();
    let lost: Vec<_> = accepted(step).into_iter().filter(|sent| !there.contains(sent)).collect();
    ensure(lost.is_empty(), || format!("{lost:?} are lost"))
}

/// A sequence number of a mailbox is used once.
pub(crate) fn a_sequence_number_is_used_once(step: &Step<'_>) -> Held {
    let Ok(Outcome::Sent(sent)) = step.outcome else { return Ok(()) };
    sent.iter().filter(|sent| !sent.duplicate).try_for_each(|sent| {
        let again = step.ghost.accepted.contains(&(sent.task.clone(), sent.seq));
        ensure(!again, || format!("{sent:?} existed before"))
    })
}

/// The payload of a message is deleted with it and not before.
pub(crate) fn is_of_a_message(step: &Step<'_>, slot: &str) -> bool {
    slot.starts_with("message/")
        && step.changes.deletes.iter().any(|(key, _)| key.table == Table::Message)
}
