use std::sync::Arc;

use crate::digest::{Digest, Digester};
use crate::event::{Change, Event};
use crate::lane::Lane;
use crate::limits;
use crate::mailbox::{Mailbox, Message};
use crate::name::{TaskId, Tenant, WaitpointId};
use crate::payload::Payload;
use crate::primitive::{adopt, resume_if_met};
use crate::ready_route::ReadyRoute;
use crate::rejection::Rejection;
use crate::task::{Lifecycle, Task};
use crate::world::{Halt, World};

/// A message to be delivered.
pub(crate) struct MessageContent<'a> {
    pub(crate) name: &'a str,
    pub(crate) source: &'a str,
    pub(crate) waitpoint: Option<&'a WaitpointId>,
    pub(crate) after_ms: u64,
    pub(crate) payload: Option<&'a Payload>,
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) seq: u64,
    pub(crate) resumed: bool,
}

impl MessageContent<'_> {
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        limits::MESSAGE_NAME.check(self.name)?;
        Message::check_source(self.source)?;
        limits::DELAY_MS.check(self.after_ms)?;
        if let Some(payload) = self.payload {
            payload.check()?;
            limits::MESSAGE_BYTES.check(payload.bytes.len())?;
        }
        Ok(())
    }

    /// As [`MessageContent::check`], but only with the size limit of a payload.
    pub(crate) fn check_outgoing(&self) -> Result<(), Rejection> {
        limits::MESSAGE_NAME.check(self.name)?;
        Message::check_source(self.source)?;
        limits::DELAY_MS.check(self.after_ms)?;
        self.payload.map_or(Ok(()), Payload::check)
    }

    /// The fingerprint that identifies repeats.
    pub(super) fn fingerprint(&self) -> Digest {
        let waitpoint = self.waitpoint.map_or("", WaitpointId::as_str);
        let digester = Digester::new("message")
            .part(self.name.as_bytes())
            .part(self.source.as_bytes())
            .part(waitpoint.as_bytes())
            .json(&self.after_ms);
        Payload::digest(self.payload, digester).finish()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.payload.map_or(0, |payload| payload.bytes.len() as u64)
    }
}

/// The mailbox of a task, with its buffered messages delivered. Sets `has_mailbox`: the first
/// caller writes the task, so that the absence of a mailbox is checked by the version of the task.
pub(crate) fn open(world: &mut World, task: &mut Task) -> Result<Mailbox, Halt> {
    let known = world.get::<Mailbox>(&Mailbox::key_of(&task.tenant, &task.id))?;
    task.has_mailbox = true;
    match known {
        None => Ok(Mailbox::empty(&task.tenant, &task.id)),
        Some(known) if known.buffered > 0 => adopt(world, task, &known),
        Some(known) => Ok((*known).clone()),
    }
}

/// The mailbox that a task or a message says exists. An absent row has no version to check. If it
/// was loaded as absent, the load predates the insert. Inserting an empty mailbox then forces a key
/// conflict, and the batch is retried.
pub(crate) fn existing(
    world: &mut World,
    tenant: &Tenant,
    task: &TaskId,
) -> Result<Arc<Mailbox>, Halt> {
    if let Some(known) = world.get::<Mailbox>(&Mailbox::key_of(tenant, task))? {
        return Ok(known);
    }
    let missed = Arc::new(Mailbox::empty(tenant, task));
    world.put::<Mailbox>(missed.clone());
    Ok(missed)
}

/// Prefetches the records for the next `count` deliveries to a task, to load them together.
pub(crate) fn prefetch(world: &mut World, task: &Task, mailbox: Option<&Mailbox>, count: u64) {
    let held = mailbox.map_or(0, |known| known.messages);
    if matches!(task.lifecycle, Lifecycle::Suspended(_)) {
        let more = usize::try_from(count).unwrap_or(usize::MAX);
        let messages = Message::of_task(&task.tenant, &task.id);
        world.prefetch_scan(&messages, (held as usize).saturating_add(more));
        world.prefetch(Lane::key_of(&task.tenant, &task.lane));
        world.prefetch(ReadyRoute::key_of(&task.tenant, &task.lane, &task.route));
    }
}

/// Delivers a message to a task that has not ended, within the limits of a mailbox, and resumes the
/// task if the message meets its condition.
pub(crate) fn deliver(
    world: &mut World,
    task: &Task,
    content: &MessageContent<'_>,
) -> Result<Delivered, Halt> {
    deliver_within(world, task, content, limits::MAILBOX_MESSAGES, limits::MAILBOX_BYTES.into())
}

/// As [`deliver`], with higher limits for workflows: their condition does not scan the mailbox.
pub(crate) fn deliver_outgoing(
    world: &mut World,
    task: &Task,
    content: &MessageContent<'_>,
) -> Result<Delivered, Halt> {
    if task.workflow.is_none() {
        return deliver(world, task, content);
    }
    deliver_within(world, task, content, limits::OUTGOING_MESSAGES, limits::OUTGOING_BYTES.into())
}

fn deliver_within(
    world: &mut World,
    task: &Task,
    content: &MessageContent<'_>,
    most_messages: u32,
    most_bytes: u64,
) -> Result<Delivered, Halt> {
    if task.lifecycle.ended_at().is_some() {
        return Err(Rejection::Ended { state: task.lifecycle.public() }.into());
    }
    let mut task = task.clone();
    let first = !task.has_mailbox;
    let mailbox = open(world, &mut task)?;
    prefetch(world, &task, Some(&mailbox), 1);
    let full = mailbox.messages >= most_messages || mailbox.bytes + content.bytes() > most_bytes;
    if full {
        let (messages, bytes) = (mailbox.messages, mailbox.bytes);
        return Err(Rejection::MailboxFull { messages, bytes }.into());
    }
    if first {
        world.put::<Task>(task.clone());
    }
    let message = put(world, &task, mailbox, content)?;
    let visible = message.due_at.is_none();
    let resumed = visible && resume_if_met(world, &task)?;
    Ok(Delivered { seq: message.seq, resumed })
}

/// Stores a message in a mailbox regardless of the limits.
pub(crate) fn put(
    world: &mut World,
    task: &Task,
    mut mailbox: Mailbox,
    content: &MessageContent<'_>,
) -> Result<Message, Halt> {
    let message = enclose(world, &mut mailbox, content);
    tell(world, task, &message);
    world.put::<Message>(message.clone());
    world.put::<Mailbox>(mailbox);
    Ok(message)
}

/// Counts a message in a mailbox and attaches its payload.
pub(super) fn enclose(
    world: &mut World,
    mailbox: &mut Mailbox,
    content: &MessageContent<'_>,
) -> Message {
    let now = world.now();
    let seq = mailbox.next_seq;
    world.assume_absent(Message::key_of(&mailbox.tenant, &mailbox.task, seq));
    mailbox.next_seq += 1;
    mailbox.messages += 1;
    mailbox.bytes += content.bytes();
    let visible_at = now.plus_ms(content.after_ms);
    let message = Message {
        tenant: mailbox.tenant.clone(),
        task: mailbox.task.clone(),
        seq,
        name: content.name.to_owned(),
        source: content.source.to_owned(),
        waitpoint: content.waitpoint.cloned(),
        posted_at: now,
        visible_at,
        bytes: content.payload.map(|_| content.bytes()),
        consumed_by: None,
        delivery_count: 0,
        completion: None,
        buffered_until: None,
        buffered_key: None,
        due_at: (now < visible_at).then_some(visible_at),
    };
    mailbox.hidden += u32::from(message.due_at.is_some());
    if let (Some(key), Some(payload)) = (message.payload_key(), content.payload) {
        world.attach(key, payload.clone());
    }
    message
}

/// Emits the log event of a message.
pub(super) fn tell(world: &mut World, task: &Task, message: &Message) {
    let (name, source) = (message.name.clone(), message.source.clone());
    let (seq, waitpoint) = (message.seq, message.waitpoint.clone());
    let change = Change::Signaled { seq, name, source, waitpoint };
    world.emit(Event::of_task(task, world.now(), change));
}

/// Stores a message of the engine in the mailbox of a workflow, regardless of the limits. Unless it
/// belongs to a step, it takes the next sequence number of the mailbox.
pub(crate) fn post_internal(world: &mut World, task: &Task, message: Message) -> Result<(), Halt> {
    let mut mailbox = open(world, &mut task.clone())?;
    world.assume_absent(Message::key_of(&task.tenant, &task.id, message.seq));
    if let Some(known) = world.get::<Task>(&task.task_key().row_key())?
        && !known.has_mailbox
    {
        world.put::<Task>(Task { has_mailbox: true, ..(*known).clone() });
    }
    if !message.is_of_step() {
        mailbox.next_seq = mailbox.next_seq.max(message.seq + 1);
    }
    mailbox.messages += 1;
    mailbox.hidden += u32::from(message.due_at.is_some());
    world.put::<Message>(message);
    world.put::<Mailbox>(mailbox);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Command, CommitTurn, Create, NewMessage, NewTask, NewWorkflow, Post, Suspend, Sweep,
        TakeMessages, TurnEnd,
    };
    use crate::reference_tables::VersionConflict;
    use crate::task::Condition;
    use crate::testing::{Stage, claim, fence, lane, message};

    fn looked_too_early(stage: &Stage, command: impl Into<Command>) -> Result<(), VersionConflict> {
        stage.looked_too_early(Mailbox::key_of(&Tenant::default(), &"t".into()), command)
    }

    fn workflow() -> Stage {
        let mut stage = Stage::new();
        let workflow = Some(NewWorkflow::default());
        stage.must(Create::one(NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") }));
        stage.must(claim());
        stage
    }

    fn wait() -> CommitTurn {
        CommitTurn {
            fence: fence(1),
            turn: 0,
            row: Some(Payload::json("{}")),
            taken: Vec::new(),
            commands: Vec::new(),
            next_step: 0,
            then: TurnEnd::AwaitMessages,
            sticky_ms: None,
            eager: None,
            metadata: None,
        }
    }

    #[test]
    fn the_sweep_conflicts_if_the_mailbox_was_loaded_too_early() {
        let mut stage = workflow();
        stage.must(Post::one(NewMessage { after_ms: 5, ..message("go") }));
        stage.must(wait());
        stage.later(5);
        assert_eq!(looked_too_early(&stage, Sweep::default()), Err(VersionConflict));
        stage.must(Sweep::default());
        assert_eq!(stage.mailbox().map(|mailbox| mailbox.hidden), Some(0));
    }

    #[test]
    fn waiting_conflicts_if_the_mailbox_was_loaded_too_early() {
        let mut stage = workflow();
        stage.must(Post::one(message("go")));
        assert_eq!(looked_too_early(&stage, wait()), Err(VersionConflict));

        let mut stage = Stage::with_task("active");
        stage.must(Post::one(message("go")));
        let until = Suspend::new(fence(1), Condition::signal("go"));
        assert_eq!(looked_too_early(&stage, until), Err(VersionConflict));
    }

    #[test]
    fn taking_messages_conflicts_if_the_mailbox_was_loaded_too_early() {
        let mut stage = Stage::with_task("active");
        stage.must(Post::one(message("go")));
        let take = TakeMessages { fence: fence(1), seqs: vec![1] };
        assert_eq!(looked_too_early(&stage, take), Err(VersionConflict));
    }
}
