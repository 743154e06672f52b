//! Messages to workflows of an external runtime: each arrives as often as it was sent, in sequence
//! order. The turn that consumes it deletes it; until then each lease receives it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_core::command::{IfAbsent, NewMessage, SentMessage, WorkflowCommand};
use windlass_core::{Command, Lease, Message, Rejection, TaskId, Timestamp};

use crate::external_runtime::SENDER;
use crate::model::external_runtime::{Changed, ExternalRuntime, is_same, only};
use crate::violation::{Breach, Kind, breach};

#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    pub(super) messages: BTreeMap<(TaskId, u64), Arc<Message>>,
    /// By mailbox, the last sequence number.
    last: BTreeMap<TaskId, u64>,
    /// By name, how often a message was sent, and the sequence numbers of its arrivals.
    sent: BTreeMap<String, Sent>,
}

#[derive(Debug, Default)]
struct Sent {
    submitted: u32,
    arrivals: Vec<(TaskId, u64)>,
    /// How many senders saw it accepted.
    accepted: u32,
}

impl Mailboxes {
    pub(super) fn submitted(&mut self, command: &Command) {
        let mut sends = |message: &NewMessage| {
            self.sent.entry(message.name.clone()).or_default().submitted += 1;
        };
        match command {
            Command::SendMessages(send) => send.messages.iter().for_each(sends),
            Command::CommitTurn(turn) => {
                for behavior in &turn.commands {
                    if let WorkflowCommand::Send { message, .. } = behavior {
                        sends(message);
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks an accepted send: the message exists, and answers no other send.
    pub(super) fn accepted(
        &mut self,
        message: &NewMessage,
        sent_messages: &[SentMessage],
    ) -> Result<(), Breach> {
        let sent = self.sent.entry(message.name.clone()).or_default();
        let [message] = sent_messages else {
            return breach(Kind::OtherAnswer, "expected one message");
        };
        sent.accepted += 1;
        let arrived = sent.arrivals.contains(&(message.task.clone(), message.seq));
        if !arrived || sent.accepted as usize > sent.arrivals.len() || message.duplicate {
            return breach(Kind::MessageLost, format!("{sent:?}"));
        }
        Ok(())
    }

    pub(super) fn rejected(
        &self,
        message: &NewMessage,
        rejection: &Rejection,
    ) -> Result<(), Breach> {
        match (rejection, &message.if_absent) {
            (Rejection::TaskNotFound, IfAbsent::Reject) => Ok(()),
            _ => breach(Kind::UnjustRejection, "the message could be sent"),
        }
    }

    /// Checks that a message has the next number, and arrives no more often than it was sent.
    fn arrives(&mut self, message: &Message) -> Result<(), Breach> {
        if message.source != SENDER {
            return Ok(());
        }
        let last = self.last.entry(message.task.clone()).or_default();
        if message.seq != *last + 1 {
            return breach(Kind::Message, format!("{message:?} follows {last}"));
        }
        *last = message.seq;
        let sent = self.sent.entry(message.name.clone()).or_default();
        sent.arrivals.push((message.task.clone(), message.seq));
        if sent.arrivals.len() > sent.submitted as usize {
            return breach(Kind::Message, format!("{message:?} arrived too often: {sent:?}"));
        }
        Ok(())
    }

    fn of_task<'p>(&'p self, id: &TaskId) -> impl Iterator<Item = &'p Arc<Message>> {
        let all = (id.clone(), 0)..=(id.clone(), u64::MAX);
        self.messages.range(all).map(|(_, message)| message)
    }
}

/// Whether a message is visible to its workflow.
fn is_seen(message: &Message, now: Timestamp) -> bool {
    message.due_at.is_none() || message.buffered_until.is_none() && message.visible_at <= now
}

impl ExternalRuntime {
    pub(super) fn check_mail(&mut self, changed: &Changed) -> Result<(), Breach> {
        for pair in changed.messages.values() {
            match pair {
                (Some(before), Some(after)) if is_same(pair) => {
                    self.check_moved(before, after, changed)?;
                }
                (Some(message), _) => self.check_gone(message, changed)?,
                (None, Some(message)) if message.source != SENDER => {
                    self.check_report(message, changed)?;
                }
                (None, _) => {}
            }
        }
        self.check_numbers(changed)?;
        for (id, pair) in &changed.tasks {
            if let Some((lease, _)) = only(pair, false)
                && pair.1.as_ref().is_some_and(|task| task.workflow.is_some())
            {
                self.check_received(id, lease, changed)?;
            }
        }
        Ok(())
    }

    /// Checks that messages have consecutive numbers. When all messages buffered for a workflow
    /// that never started have expired, the numbers may restart.
    fn check_numbers(&mut self, changed: &Changed) -> Result<(), Breach> {
        let ids: BTreeSet<&TaskId> = changed.messages.keys().map(|(id, _)| id).collect();
        for id in ids {
            let forgotten = !self.tasks.contains_key(id)
                && self.mailboxes.of_task(id).all(|message| changed.is_gone(id, message.seq));
            let mut inserted =
                changed.inserted_messages().filter(|message| message.task == *id).peekable();
            if forgotten && inserted.peek().is_none_or(|message| message.seq == 1) {
                self.mailboxes.last.remove(id);
            }
            inserted.try_for_each(|message| self.mailboxes.arrives(message))?;
        }
        Ok(())
    }

    /// Checks a deleted message: a turn consumed it, or its time as a buffered message expired.
    fn check_gone(&self, message: &Message, changed: &Changed) -> Result<(), Breach> {
        let over = message.buffered_until.is_some_and(|until| until <= changed.now);
        match over || changed.consumes(&message.task, message.seq) {
            true => Ok(()),
            false => breach(Kind::MessageLost, format!("{message:?}")),
        }
    }

    /// Checks that the engine reports only the end of activities.
    fn check_report(&self, message: &Message, changed: &Changed) -> Result<(), Breach> {
        let reporter = message.completion.as_ref().and_then(|report| report.task.as_ref());
        let ends = |id: &TaskId| matches!(changed.tasks.get(id), Some((Some(_), None)));
        match reporter.filter(|reporter| ends(&reporter.id)) {
            Some(_) => Ok(()),
            None => breach(Kind::Step, format!("{message:?}")),
        }
    }

    /// Checks a message that was in flight under an ended lease: its delivery count rises unless
    /// the end does not count, and it is delayed if that was requested.
    fn check_moved(
        &self,
        before: &Message,
        after: &Message,
        changed: &Changed,
    ) -> Result<(), Breach> {
        let pair = changed.tasks.get(&before.task);
        let ended = pair.and_then(|pair| only(pair, true));
        let leased = ended.filter(|(lease, _)| lease.in_flight.contains(&before.seq));
        let mut ways = BTreeSet::new();
        match leased {
            Some((lease, epoch)) => self.put_ways(&before.task, (lease, epoch), changed, &mut ways),
            None => drop(ways.insert((0, None))),
        }
        let counted = after.delivery_count.checked_sub(before.delivery_count);
        let moved = (after.visible_at != before.visible_at).then_some(after.visible_at);
        let same = (&before.name, before.sent_at) == (&after.name, after.sent_at);
        match counted.filter(|counted| same && ways.contains(&(*counted, moved))) {
            Some(_) => Ok(()),
            None => breach(Kind::Message, format!("{before:?} to {after:?}, not {ways:?}")),
        }
    }

    /// How messages in flight may be redelivered: the increment of the delivery count, and when
    /// they become visible.
    fn put_ways(
        &self,
        id: &TaskId,
        (lease, epoch): (&Lease, u64),
        changed: &Changed,
        ways: &mut BTreeSet<(u32, Option<Timestamp>)>,
    ) {
        if lease.expires_at <= changed.now {
            ways.insert((1, None));
        }
        if !self.is_received(id, epoch) {
            // The caller that claimed the task had disconnected.
            ways.insert((0, None));
        }
        for command in self.submitted_under(id, epoch) {
            ways.insert(match command {
                Command::AbandonTurn(decline) => {
                    let later = changed.now.plus_ms(decline.delay_ms);
                    (u32::from(decline.count_delivery), (decline.delay_ms > 0).then_some(later))
                }
                Command::Release(_) => (0, None),
                _ => (1, None),
            });
        }
    }

    /// Checks that a lease receives all visible messages, in order.
    fn check_received(&self, id: &TaskId, lease: &Lease, changed: &Changed) -> Result<(), Breach> {
        let received = &lease.in_flight;
        let now = changed.now;
        let there = |seq: u64| match changed.messages.get(&(id.clone(), seq)) {
            Some((_, after)) => after.clone(),
            None => self.mailboxes.messages.get(&(id.clone(), seq)).cloned(),
        };
        let is_there = |seq: &u64| there(*seq).is_some_and(|message| is_seen(&message, now));
        // Messages that became visible after the batch began may be missing.
        let is_due = |message: &&Arc<Message>| is_seen(message, now) && message.visible_at <= now;
        let mut before = self.mailboxes.of_task(id).filter(is_due);
        let missed =
            before.find(|message| is_there(&message.seq) && !received.contains(&message.seq));
        if let Some(message) = missed {
            return breach(Kind::MessageLost, format!("{message:?} is not in {lease:?}"));
        }
        let ascends = received.is_sorted_by(|first, second| first < second);
        match ascends && received.iter().all(is_there) {
            true => Ok(()),
            false => breach(Kind::Message, format!("wrong messages in flight for {id}: {lease:?}")),
        }
    }
}
