//! Messages to tasks: every accepted message is in the mailbox, or was consumed by the lease
//! holder, or was deleted with its task.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::command::{Delay, SendMessages, Suspend};
use windlass_core::{
    Keyring, Mailbox, Message, RowKey, TaskId, Tenant, Timestamp, Value, Waitpoint, WaitpointId,
    WaitpointState,
};
use windlass_store::MemoryStore;

use crate::model::facts::{Facts, State};
use crate::model::log::Step;
use crate::model::outcome::Fenced;
use crate::model::record::one;
use crate::model::state::Model;
use crate::script::WAITPOINT_MS;
use crate::violation::{Breach, Kind, breach};

/// The observed state of messages and of waits for them.
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    pub(super) by_task: BTreeMap<TaskId, MailboxFacts>,
    /// Every message ever sent, by its log event.
    pub(super) sent_messages: BTreeMap<u64, MessageFacts>,
    /// The delays until messages become visible, by task, name and source.
    delays_ms: BTreeMap<(TaskId, String, String), BTreeSet<u64>>,
    pub(super) suspending: BTreeMap<Fenced, Vec<Suspend>>,
    pub(super) resuming: BTreeSet<TaskId>,
    /// By message, the epochs under which a holder asked to consume it.
    consuming: BTreeMap<(TaskId, u64), BTreeSet<u64>>,
    /// Leases that continued because their condition was already met.
    pub(super) satisfied: BTreeMap<Fenced, Vec<(Timestamp, Vec<u64>)>>,
    /// Messages that resumed a suspended task on arrival.
    pub(super) woke: BTreeSet<u64>,
    /// Messages by task and idempotency key, as reported to callers.
    pub(super) keyed: BTreeMap<(TaskId, String), BTreeSet<u64>>,
    pub(super) waitpoints: BTreeMap<WaitpointId, WaitpointFacts>,
    /// Until when signing keys are valid.
    pub(super) ring: BTreeMap<String, Option<Timestamp>>,
    /// The position of the log when the first key existed.
    pub(super) seeded: Option<u64>,
    lives: u64,
}

/// The mailbox of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct MailboxFacts {
    /// Distinguishes tasks that had this id at different times.
    life: u64,
    last: u64,
    /// By sequence number, the log events of the messages in the mailbox.
    there: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug)]
pub(super) struct MessageFacts {
    pub(super) task: TaskId,
    pub(super) life: u64,
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) source: String,
    pub(super) waitpoint: Option<WaitpointId>,
    pub(super) at: Timestamp,
    /// From when on it is visible; none before a record has shown it.
    pub(super) visible_at: Option<Timestamp>,
    /// Whether it is not visible yet.
    pub(super) hidden: bool,
    /// When the attempt began that it resumed.
    pub(super) resumed_attempt_at: Option<Timestamp>,
}

/// A waitpoint.
#[derive(Clone, Debug)]
pub(super) struct WaitpointFacts {
    pub(super) task: TaskId,
    pub(super) created_seq: u64,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) used: Option<u64>,
}

/// The name and the source of the engine's timeout message.
pub(super) const TIMEOUT: (&str, &str) = ("timeout", "engine");

impl MessageFacts {
    /// Whether it is the engine's timeout message, which meets no condition.
    pub(super) fn is_timeout(&self) -> bool {
        (&self.name[..], &self.source[..]) == TIMEOUT
    }
}

impl Mailboxes {
    pub(super) fn sends(&mut self, send: &SendMessages) {
        for message in &send.messages {
            let sort = (message.task.clone(), message.name.clone(), message.source.clone());
            let Delay::For { ms } = message.delay else { continue };
            self.delays_ms.entry(sort).or_default().insert(ms);
        }
    }

    pub(super) fn consume_submitted(&mut self, fenced: &Fenced, seqs: &[u64]) {
        for seq in seqs {
            self.consuming.entry((fenced.0.clone(), *seq)).or_default().insert(fenced.1);
        }
    }

    /// The messages in a task's mailbox.
    pub(super) fn of_task(&self, id: &TaskId) -> impl Iterator<Item = &MessageFacts> {
        let there = self.by_task.get(id).into_iter().flat_map(|mail| mail.there.values());
        there.map(|seq| &self.sent_messages[seq])
    }

    /// The messages of a task with these numbers; none if one is missing.
    pub(super) fn numbered(&self, id: &TaskId, numbers: &[u64]) -> Option<Vec<u64>> {
        let mail = self.by_task.get(id);
        numbers.iter().map(|number| mail.and_then(|mail| mail.there.get(number)).copied()).collect()
    }

    /// Forgets the messages and waitpoints of a deleted task.
    pub(super) fn forget(&mut self, id: &TaskId) {
        self.by_task.remove(id);
        self.waitpoints.retain(|_, waitpoint| waitpoint.task != *id);
    }
}

impl Model {
    /// Checks a message that was sent.
    pub(super) fn signalled(
        &mut self,
        at: &Step<'_>,
        facts: &Facts,
        number: u64,
        (name, source): (&str, &str),
        waitpoint: Option<&WaitpointId>,
    ) -> Result<(), Breach> {
        let mailboxes = &mut self.mailboxes;
        let sort = (at.id.clone(), name.to_owned(), source.to_owned());
        if let Some(id) = waitpoint {
            let known = mailboxes.waitpoints.get_mut(id).filter(|known| known.task == *at.id);
            let open = |known: &&mut WaitpointFacts| {
                known.used.is_none() && known.expires_at.is_none_or(|expires_at| at.at < expires_at)
            };
            match known {
                Some(known) if open(&known) => known.used = Some(number),
                other => return breach(Kind::Waitpoint, format!("through {id}: {other:?}")),
            }
        } else if (name, source) == TIMEOUT {
            if !matches!(facts.state, State::Suspended(_)) {
                return breach(Kind::IllegalMove, "a timeout of a task that is not suspended");
            }
        } else if !mailboxes.delays_ms.contains_key(&sort) {
            return breach(Kind::Message, format!("no caller sent {name} from {source}"));
        }
        if !mailboxes.by_task.contains_key(at.id) {
            mailboxes.lives += 1;
            let mail = MailboxFacts { life: mailboxes.lives, ..MailboxFacts::default() };
            mailboxes.by_task.insert(at.id.clone(), mail);
        }
        let mail = mailboxes.by_task.get_mut(at.id).expect("it was just inserted");
        if number != mail.last + 1 {
            return breach(Kind::Message, format!("{number} follows {}", mail.last));
        }
        mail.last = number;
        mail.there.insert(number, at.seq);
        let sent = MessageFacts {
            task: at.id.clone(),
            life: mail.life,
            number,
            name: name.to_owned(),
            source: source.to_owned(),
            waitpoint: waitpoint.cloned(),
            at: at.at,
            visible_at: None,
            hidden: false,
            resumed_attempt_at: None,
        };
        mailboxes.sent_messages.insert(at.seq, sent);
        Ok(())
    }

    /// Checks a created waitpoint: it is the first of its id, or replaces one that expired unused
    /// or whose message a holder asked to consume.
    pub(super) fn waitpoint_created(
        &mut self,
        at: &Step<'_>,
        id: &WaitpointId,
    ) -> Result<(), Breach> {
        let fresh = WaitpointFacts {
            task: at.id.clone(),
            created_seq: at.seq,
            expires_at: None,
            used: None,
        };
        let before = self.mailboxes.waitpoints.insert(id.clone(), fresh);
        match before {
            None => Ok(()),
            Some(WaitpointFacts { used: None, expires_at: Some(expires_at), ref task, .. })
                if expires_at <= at.at && task == at.id =>
            {
                Ok(())
            }
            Some(WaitpointFacts { used: Some(number), ref task, .. })
                if task == at.id
                    && self.mailboxes.consuming.contains_key(&(task.clone(), number)) =>
            {
                Ok(())
            }
            Some(known) => breach(Kind::Waitpoint, format!("{id} existed before: {known:?}")),
        }
    }

    /// Compares the mailbox of a task with the messages sent to it.
    pub(super) fn compare_mail(&mut self, memory: &MemoryStore, id: &TaskId) -> Result<(), Breach> {
        let tenant = Tenant::default();
        let mailbox = one::<Mailbox>(memory, Mailbox::key_of(&tenant, id));
        if !self.facts(id).exists() {
            return match mailbox {
                Some(mailbox) => breach(Kind::Message, format!("{mailbox:?} without a task")),
                None => Ok(()),
            };
        }
        let there: Vec<(u64, u64)> = match self.mailboxes.by_task.get(id) {
            Some(mail) => mail.there.iter().map(|(number, seq)| (*number, *seq)).collect(),
            None => Vec::new(),
        };
        for (number, seq) in there {
            match one::<Message>(memory, Message::key_of(&tenant, id, number)) {
                Some(message) => self.compare_message(seq, &message)?,
                None => self.check_message_deleted(id, number)?,
            }
        }
        let (held, next) = match self.mailboxes.by_task.get(id) {
            Some(mail) => (mail.there.len(), mail.last + 1),
            None => (0, 1),
        };
        match mailbox {
            Some(mailbox) if mailbox.messages as usize == held && mailbox.next_seq == next => {
                Ok(())
            }
            None if next == 1 => Ok(()),
            other => breach(Kind::Message, format!("expected {held}, next {next}: {other:?}")),
        }
    }

    fn compare_message(&mut self, seq: u64, message: &Message) -> Result<(), Breach> {
        let sent = self.mailboxes.sent_messages.get_mut(&seq).expect("the log has its event");
        let delay_ms = sent.at.ms_until(message.visible_at);
        let sort = (sent.task.clone(), sent.name.clone(), sent.source.clone());
        let at_once = sent.waitpoint.is_some() || sort.2 == TIMEOUT.1;
        let requested = self.mailboxes.delays_ms.get(&sort);
        let as_requested = match at_once {
            true => delay_ms == 0,
            false => requested.is_some_and(|delays| delays.contains(&delay_ms)),
        };
        let Message { name, source, waitpoint, sent_at, resumed_attempt_at, .. } = message;
        let same = (name, source, waitpoint) == (&sent.name, &sent.source, &sent.waitpoint)
            && (*sent_at, *resumed_attempt_at) == (sent.at, sent.resumed_attempt_at);
        let too_early = message.due_at.is_none() && self.latest < message.visible_at;
        if !as_requested || !same || too_early {
            return breach(Kind::Message, format!("{message:?} differs from {sent:?}"));
        }
        sent.visible_at = Some(message.visible_at);
        sent.hidden = message.due_at.is_some();
        Ok(())
    }

    /// Checks a deleted message: a lease holder asked to consume it, or a later timeout message
    /// of the engine replaced it.
    fn check_message_deleted(&mut self, id: &TaskId, number: u64) -> Result<(), Breach> {
        let later = |sent: &MessageFacts| sent.is_timeout() && number < sent.number;
        let replaced = self.sent(id, number).is_some_and(MessageFacts::is_timeout)
            && self.mailboxes.of_task(id).any(later);
        let epochs = self.mailboxes.consuming.get(&(id.clone(), number));
        let holds = |facts: &Facts| {
            let epoch = facts.hold().map(|hold| hold.epoch);
            epoch.is_some_and(|epoch| epochs.is_some_and(|epochs| epochs.contains(&epoch)))
        };
        if !replaced && !self.tasks[id].was(self.view, holds) {
            return breach(Kind::MessageLost, format!("message {number} of {id}"));
        }
        if let Some(mail) = self.mailboxes.by_task.get_mut(id) {
            mail.there.remove(&number);
        }
        Ok(())
    }

    /// The message of a task with this number, if it is in the mailbox.
    fn sent(&self, id: &TaskId, number: u64) -> Option<&MessageFacts> {
        let seq = self.mailboxes.by_task.get(id)?.there.get(&number)?;
        self.mailboxes.sent_messages.get(seq)
    }

    pub(super) fn compare_waitpoint(
        &mut self,
        memory: &MemoryStore,
        key: &RowKey,
    ) -> Result<(), Breach> {
        let Some(Value::Text(id)) = key.values.last() else { return Ok(()) };
        let known = self.mailboxes.waitpoints.get_mut(&WaitpointId::new(&**id));
        match (one::<Waitpoint>(memory, key.clone()), known) {
            (None, None) => Ok(()),
            (Some(waitpoint), Some(known)) => {
                let used = match waitpoint.state {
                    WaitpointState::Completed { seq } => Some(seq),
                    WaitpointState::Pending | WaitpointState::Active => None,
                };
                let lasts_ms = waitpoint.created_at.ms_until(waitpoint.expires_at);
                if used != known.used
                    || waitpoint.task != known.task
                    || !WAITPOINT_MS.contains(&lasts_ms)
                {
                    return breach(Kind::Waitpoint, format!("{waitpoint:?}: {known:?}"));
                }
                known.expires_at = Some(waitpoint.expires_at);
                Ok(())
            }
            (found, known) => breach(Kind::Waitpoint, format!("{found:?}, not {known:?}")),
        }
    }

    pub(super) fn compare_keyring(&mut self, memory: &MemoryStore, key: &RowKey) {
        let Some(ring) = one::<Keyring>(memory, key.clone()) else { return };
        self.mailboxes.seeded.get_or_insert(self.last_seq);
        for key in &ring.keys {
            self.mailboxes.ring.insert(key.id.clone(), key.expires_at);
        }
    }
}
