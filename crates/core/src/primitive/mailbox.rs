use std::sync::Arc;

use crate::event::{Change, Event};
use crate::lane::Lane;
use crate::mailbox::{Mailbox, Message};
use crate::name::{TaskId, Tenant, WaitpointId};
use crate::new_message::{NewMessage, SentMessage};
use crate::primitive::{deliver_buffered, resume_if_met};
use crate::ready_route::ReadyRoute;
use crate::rejection::Rejection;
use crate::task::{Lifecycle, Task};
use crate::world::{Halt, World};

/// The mailbox of a task, with its buffered messages delivered. Sets `has_mailbox`: the first
/// caller writes the task, so that the absence of a mailbox is checked by the version of the task.
pub(crate) fn open(world: &mut World, task: &mut Task) -> Result<Mailbox, Halt> {
    let mailbox = world.get::<Mailbox>(&Mailbox::key_of(&task.tenant, &task.id))?;
    task.has_mailbox = true;
    match mailbox {
        None => Ok(Mailbox::empty(&task.tenant, &task.id)),
        Some(mailbox) if mailbox.buffered > 0 => deliver_buffered(world, task, &mailbox),
        Some(mailbox) => Ok((*mailbox).clone()),
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
    if let Some(mailbox) = world.get::<Mailbox>(&Mailbox::key_of(tenant, task))? {
        return Ok(mailbox);
    }
    let missed = Arc::new(Mailbox::empty(tenant, task));
    world.put::<Mailbox>(missed.clone());
    Ok(missed)
}

/// Prefetches the records for the next `count` deliveries to a task, to load them together.
pub(crate) fn prefetch(world: &mut World, task: &Task, mailbox: Option<&Mailbox>, count: u64) {
    let held = mailbox.map_or(0, |mailbox| mailbox.messages);
    if matches!(task.lifecycle, Lifecycle::Suspended(_)) {
        let more = usize::try_from(count).unwrap_or(usize::MAX);
        let messages = Message::of_task(&task.tenant, &task.id);
        world.prefetch_scan(&messages, (held as usize).saturating_add(more));
        world.prefetch(Lane::key_of(&task.tenant, &task.lane));
        world.prefetch(ReadyRoute::key_of(&task.tenant, &task.lane, &task.route));
    }
}

/// Delivers a message to a task that has not ended, within the limits of its mailbox, and resumes
/// the task if the message meets its condition.
pub(crate) fn deliver(
    world: &mut World,
    task: &Task,
    new: &NewMessage,
    waitpoint: Option<&WaitpointId>,
) -> Result<SentMessage, Halt> {
    if task.lifecycle.ended_at().is_some() {
        return Err(Rejection::AlreadyTerminal { state: task.lifecycle.public() }.into());
    }
    let mut task = task.clone();
    let first = !task.has_mailbox;
    let mailbox = open(world, &mut task)?;
    prefetch(world, &task, Some(&mailbox), 1);
    let (max_messages, max_bytes) = new.limit.of_mailbox(&task);
    if mailbox.messages >= max_messages || mailbox.bytes + new.bytes() > max_bytes {
        let (messages, bytes) = (mailbox.messages, mailbox.bytes);
        return Err(Rejection::MailboxFull { messages, bytes }.into());
    }
    if first {
        world.put::<Task>(task.clone());
    }
    let message = store_message(world, &task, mailbox, new, waitpoint);
    let resumed = message.due_at.is_none() && resume_if_met(world, &task)?;
    let (task, seq) = (task.id, message.seq);
    Ok(SentMessage { task, seq, duplicate: false, resumed, buffered: false })
}

/// Stores a message in a mailbox regardless of the limits.
pub(crate) fn store_message(
    world: &mut World,
    task: &Task,
    mut mailbox: Mailbox,
    new: &NewMessage,
    waitpoint: Option<&WaitpointId>,
) -> Message {
    let message = append(world, &mut mailbox, new, waitpoint);
    emit_signalled(world, task, &message);
    world.put::<Message>(message.clone());
    world.put::<Mailbox>(mailbox);
    message
}

/// Counts a message in a mailbox, under the next sequence number, and attaches its payload.
pub(super) fn append(
    world: &mut World,
    mailbox: &mut Mailbox,
    new: &NewMessage,
    waitpoint: Option<&WaitpointId>,
) -> Message {
    let now = world.now();
    let seq = mailbox.next_seq;
    world.assume_absent(Message::key_of(&mailbox.tenant, &mailbox.task, seq));
    mailbox.next_seq += 1;
    mailbox.messages += 1;
    mailbox.bytes += new.bytes();
    let visible_at = now.plus_ms(new.delay.ms(now));
    let message = Message {
        tenant: mailbox.tenant.clone(),
        task: mailbox.task.clone(),
        seq,
        name: new.name.clone(),
        source: new.source.clone(),
        waitpoint: waitpoint.cloned(),
        sent_at: now,
        visible_at,
        bytes: new.payload.as_ref().map(|_| new.bytes()),
        resumed_attempt_at: None,
        delivery_count: 0,
        completion: None,
        buffered_until: None,
        buffered_key: None,
        due_at: (now < visible_at).then_some(visible_at),
    };
    mailbox.hidden += u32::from(message.due_at.is_some());
    if let (Some(key), Some(payload)) = (message.payload_key(), &new.payload) {
        world.attach(key, payload.clone());
    }
    message
}

/// Emits the log event of a message.
pub(super) fn emit_signalled(world: &mut World, task: &Task, message: &Message) {
    let (name, source) = (message.name.clone(), message.source.clone());
    let (seq, waitpoint) = (message.seq, message.waitpoint.clone());
    let change = Change::Signalled { seq, name, source, waitpoint };
    world.emit(Event::of_task(task, world.now(), change));
}

/// Stores a message of the engine in the mailbox of a workflow, regardless of the limits. Unless it
/// belongs to a step, it takes the next sequence number of the mailbox.
pub(crate) fn send_internal(world: &mut World, task: &Task, message: Message) -> Result<(), Halt> {
    let mut mailbox = open(world, &mut task.clone())?;
    world.assume_absent(Message::key_of(&task.tenant, &task.id, message.seq));
    if let Some(current) = world.get::<Task>(&task.task_key().row_key())?
        && !current.has_mailbox
    {
        world.put::<Task>(Task { has_mailbox: true, ..(*current).clone() });
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
        Command, CommitTurn, ConsumeMessages, Create, Delay, NewMessage, NewTask, NewWorkflow,
        SendMessages, Suspend, Sweep, TurnEnd,
    };
    use crate::payload::Payload;
    use crate::reference_tables::VersionConflict;
    use crate::task::Condition;
    use crate::testing::{Stage, claim, fence, lane, message};

    fn decide_with_stale_absence(
        stage: &Stage,
        command: impl Into<Command>,
    ) -> Result<(), VersionConflict> {
        stage.decide_with_stale_absence(Mailbox::key_of(&Tenant::default(), &"t".into()), command)
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
            consumed: Vec::new(),
            commands: Vec::new(),
            next_step: 0,
            end: TurnEnd::AwaitMessages,
            sticky_ms: None,
            eager: None,
            metadata: None,
        }
    }

    #[test]
    fn the_sweep_conflicts_if_the_mailbox_was_loaded_too_early() {
        let mut stage = workflow();
        stage.must(SendMessages::one(NewMessage { delay: Delay::For { ms: 5 }, ..message("go") }));
        stage.must(wait());
        stage.later(5);
        assert_eq!(decide_with_stale_absence(&stage, Sweep::default()), Err(VersionConflict));
        stage.must(Sweep::default());
        assert_eq!(stage.mailbox().map(|mailbox| mailbox.hidden), Some(0));
    }

    #[test]
    fn waiting_conflicts_if_the_mailbox_was_loaded_too_early() {
        let mut stage = workflow();
        stage.must(SendMessages::one(message("go")));
        assert_eq!(decide_with_stale_absence(&stage, wait()), Err(VersionConflict));

        let mut stage = Stage::with_task("active");
        stage.must(SendMessages::one(message("go")));
        let until = Suspend::new(fence(1), Condition::signal("go"));
        assert_eq!(decide_with_stale_absence(&stage, until), Err(VersionConflict));
    }

    #[test]
    fn taking_messages_conflicts_if_the_mailbox_was_loaded_too_early() {
        let mut stage = Stage::with_task("active");
        stage.must(SendMessages::one(message("go")));
        let take = ConsumeMessages { fence: fence(1), seqs: vec![1] };
        assert_eq!(decide_with_stale_absence(&stage, take), Err(VersionConflict));
    }
}
