//! Messages buffered for a task that does not exist yet. They are hidden in its mailbox. A workflow
//! that is started under its id receives them; otherwise they expire.
//!
//! Sender and starter may commit concurrently without reading each other's row. The sweep therefore
//! re-checks each buffered message after a second, and delivers it if the workflow exists.

use crate::limits;
use crate::mailbox::{BufferedKey, Mailbox, Message};
use crate::name::Tenant;
use crate::new_message::NewMessage;
use crate::primitive::mailbox::{append, emit_signalled};
use crate::primitive::{
    are_related_records_readable, hand_over_key, open, prefetch_key, resume_if_met,
};
use crate::record::{Record, StoredRecord};
use crate::rejection::Rejection;
use crate::task::{Task, TaskKey};
use crate::world::{Halt, World, unless_quarantined};

/// The delay after which the sweep re-checks a buffered message.
const RECHECK_MS: u64 = 1_000;

/// The delay before the next check of a message whose task this version cannot read.
const POSTPONED_MS: u64 = 60_000;

/// Prefetches the records that are needed to buffer a message.
pub(crate) fn prefetch_tenant_buffer(world: &mut World, tenant: &Tenant) {
    world.prefetch(Mailbox::key_of(tenant, &Mailbox::tenant_buffer_id()));
}

/// Buffers a message for a task that does not exist. Returns its sequence number.
pub(crate) fn buffer(
    world: &mut World,
    to: &TaskKey,
    new: &NewMessage,
    ttl_ms: u64,
) -> Result<u64, Halt> {
    let (tenant, tenant_buffer) = (&to.tenant, Mailbox::tenant_buffer_id());
    let mailbox = world.get::<Mailbox>(&Mailbox::key_of(tenant, &to.id))?;
    let all = world.get::<Mailbox>(&Mailbox::key_of(tenant, &tenant_buffer))?;
    let mut mailbox = mailbox.map_or_else(|| Mailbox::empty(tenant, &to.id), |it| (*it).clone());
    let mut all = all.map_or_else(|| Mailbox::empty(tenant, &tenant_buffer), |it| (*it).clone());
    if mailbox.messages >= limits::BUFFERED_MESSAGES_PER_ID {
        let (messages, bytes) = (mailbox.messages, mailbox.bytes);
        return Err(Rejection::MailboxFull { messages, bytes }.into());
    }
    if all.messages >= limits::TENANT_BUFFERED_MESSAGES
        || all.bytes + new.bytes() > u64::from(limits::TENANT_BUFFERED_BYTES)
    {
        let (messages, bytes) = (all.messages, all.bytes);
        return Err(Rejection::MailboxFull { messages, bytes }.into());
    }
    all.messages += 1;
    all.bytes += new.bytes();
    world.put::<Mailbox>(all);
    let message = append(world, &mut mailbox, new, None);
    mailbox.hidden += u32::from(message.due_at.is_none());
    mailbox.buffered += 1;
    let now = world.now();
    let due_at = Some(now.plus_ms(ttl_ms.min(RECHECK_MS)));
    let buffered_until = Some(now.plus_ms(ttl_ms));
    let buffered_key = new.idempotency.as_ref().map(|idempotency| BufferedKey {
        key: idempotency.key.clone(),
        expires_at: now.plus_ms(idempotency.window_ms),
    });
    let seq = message.seq;
    world.put::<Mailbox>(mailbox);
    world.put::<Message>(Message { buffered_until, buffered_key, due_at, ..message });
    Ok(seq)
}

/// Extends the TTL of a buffered message that is sent again.
pub(crate) fn extend_buffered(
    world: &mut World,
    to: &TaskKey,
    seq: u64,
    ttl_ms: u64,
) -> Result<(), Halt> {
    let Some(message) = world.get::<Message>(&Message::key_of(&to.tenant, &to.id, seq))? else {
        return Ok(());
    };
    let longer = world.now().plus_ms(ttl_ms);
    if message.buffered_until.is_some_and(|until| until < longer) {
        world.put::<Message>(Message { buffered_until: Some(longer), ..(*message).clone() });
    }
    Ok(())
}

/// Delivers all buffered messages of a task.
pub(crate) fn deliver_buffered(
    world: &mut World,
    task: &Task,
    mailbox: &Mailbox,
) -> Result<Mailbox, Halt> {
    world.prefetch(Mailbox::key_of(&task.tenant, &Mailbox::tenant_buffer_id()));
    let (now, mut left) = (world.now(), mailbox.clone());
    let of_task = Message::of_task(&task.tenant, &task.id);
    let messages = world.scan::<Message>(&of_task, mailbox.messages as usize + 1)?;
    let buffered = || messages.iter().filter(|message| message.buffered_until.is_some());
    buffered().for_each(|message| prefetch_key(world, message));
    for message in buffered() {
        hand_over_key(world, message, Some(task.created_at))?;
        let due_at = (now < message.visible_at).then_some(message.visible_at);
        let message =
            Message { buffered_until: None, buffered_key: None, due_at, ..(**message).clone() };
        left.hidden = left.hidden.saturating_sub(u32::from(due_at.is_none()));
        emit_signalled(world, task, &message);
        world.put::<Message>(message);
    }
    left.buffered = 0;
    world.put::<Mailbox>(left.clone());
    uncount_buffered(world, &task.tenant, buffered().map(AsRef::as_ref))?;
    Ok(left)
}

/// Removes messages from the count of buffered messages of the tenant.
pub(crate) fn uncount_buffered<'a>(
    world: &mut World,
    tenant: &Tenant,
    buffered: impl Iterator<Item = &'a Message>,
) -> Result<(), Halt> {
    let (mut messages, mut bytes) = (0, 0);
    for message in buffered {
        messages += 1;
        bytes += message.bytes.unwrap_or(0);
    }
    let key = Mailbox::key_of(tenant, &Mailbox::tenant_buffer_id());
    if messages == 0 {
        return Ok(());
    }
    let Some(all) = world.get::<Mailbox>(&key)? else { return Ok(()) };
    let (held, bytes) = (all.messages.saturating_sub(messages), all.bytes.saturating_sub(bytes));
    if held == 0 {
        world.remove(&key);
    } else {
        world.put::<Mailbox>(Mailbox { messages: held, bytes, ..(*all).clone() });
    }
    Ok(())
}

/// Prefetches the records that [`sweep_buffered`] needs.
pub(crate) fn prefetch_buffered(world: &mut World, message: &Message) {
    world.prefetch(Mailbox::key_of(&message.tenant, &Mailbox::tenant_buffer_id()));
    prefetch_key(world, message);
}

/// Delivers buffered messages to an open task, even if it has no mail yet. Returns whether they
/// resume it.
pub(crate) fn open_and_deliver(world: &mut World, task: &Task) -> Result<bool, Halt> {
    let mut task = task.clone();
    open(world, &mut task)?;
    world.put::<Task>(task.clone());
    resume_if_met(world, &task)
}

/// Delivers a buffered message if its workflow is open, and deletes it if it has expired.
pub(crate) fn sweep_buffered(world: &mut World, message: &Message) -> Result<(), Halt> {
    let now = world.now();
    let again = |at| Message { due_at: Some(at), ..message.clone() };
    let task = world.get::<Task>(&TaskKey::new(&message.tenant, &message.task).row_key());
    let mailbox = world.get::<Mailbox>(&Mailbox::key_of(&message.tenant, &message.task));
    let (task, mailbox) = (unless_quarantined(task)?, unless_quarantined(mailbox)?);
    let (Some(task), Some(Some(mailbox))) = (task, mailbox) else {
        world.put::<Message>(again(now.plus_ms(POSTPONED_MS)));
        return Ok(());
    };
    let open_workflow = |task: &&std::sync::Arc<Task>| {
        task.workflow.is_some() && task.lifecycle.ended_at().is_none()
    };
    if let Some(task) = task.as_ref().filter(open_workflow) {
        if !are_related_records_readable(world, task)? {
            world.put::<Message>(again(now.plus_ms(POSTPONED_MS)));
            return Ok(());
        }
        return open_and_deliver(world, task).map(drop);
    }
    match message.buffered_until.filter(|until| now < *until) {
        Some(until) => world.put::<Message>(again(until)),
        None => forget(world, message, &mailbox, task.is_some_and(|task| task.has_mailbox))?,
    }
    Ok(())
}

fn forget(
    world: &mut World,
    message: &Message,
    mailbox: &Mailbox,
    has_owner: bool,
) -> Result<(), Halt> {
    hand_over_key(world, message, None)?;
    let mut left = mailbox.clone();
    left.forget(message);
    world.drop_payloads(message.own_payload_key());
    world.remove(&Message::row_key(message.key()));
    if left.messages == 0 && !has_owner {
        world.remove(&Mailbox::row_key(mailbox.key()));
    } else {
        world.put::<Mailbox>(left);
    }
    uncount_buffered(world, &message.tenant, std::iter::once(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Cancel, Claim, Command, Create, Delay, DeleteTask, IdempotencyWindow, IfAbsent, NewMessage,
        NewTask, NewWorkflow, Outcome, SendMessages, SentMessage, Sweep,
    };
    use crate::payload::Payload;
    use crate::primitive::message_admission;
    use crate::record::Table;
    use crate::reference_tables::VersionConflict;
    use crate::testing::{Stage, claim, key, lane, message, new_task};

    const TTL_MS: u64 = 60_000;

    fn buffered(name: &str) -> NewMessage {
        let payload = Some(Payload::json("1"));
        NewMessage { if_absent: IfAbsent::Buffer { ttl_ms: TTL_MS }, payload, ..message(name) }
    }

    fn workflow() -> Create {
        let workflow = Some(NewWorkflow::default());
        Create::one(NewTask { workflow, lane: lane(), ..new_task("t") })
    }

    fn send(stage: &mut Stage, message: NewMessage) -> Result<SentMessage, &'static str> {
        match stage.run(SendMessages::one(message)) {
            Ok(Outcome::Sent(mut sent)) => Ok(sent.pop().unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => Err(rejection.code()),
        }
    }

    fn in_all(stage: &Stage) -> Option<(u32, u64)> {
        let all = stage
            .record::<Mailbox>(&Mailbox::key_of(&"default".into(), &Mailbox::tenant_buffer_id()));
        all.map(|all| (all.messages, all.bytes))
    }

    fn rows_of(stage: &Stage, table: Table) -> usize {
        stage.tables.rows().filter(|row| row.key.table == table).count()
    }

    #[test]
    fn a_workflow_receives_messages_buffered_before_its_start() {
        let mut stage = Stage::new();
        let first = send(&mut stage, buffered("go")).unwrap();
        assert_eq!((first.seq, first.buffered), (1, true));
        send(&mut stage, NewMessage { delay: Delay::For { ms: 30_000 }, ..buffered("later") })
            .unwrap();
        assert_eq!(in_all(&stage), Some((2, 2)));
        stage.must(workflow());
        assert_eq!(in_all(&stage), None);
        let mailbox = stage.mailbox().unwrap();
        assert_eq!((mailbox.messages, mailbox.hidden, mailbox.buffered), (2, 1, 0));
        assert!(stage.task("t").unwrap().has_mailbox);
        let (go, later) = (stage.message(1).unwrap(), stage.message(2).unwrap());
        assert_eq!((go.due_at, go.buffered_until), (None, None));
        assert_eq!((later.due_at, later.buffered_until), (Some(later.visible_at), None));
        assert!(stage.tables.payload(&go.payload_key().unwrap()).is_some());
        let next = send(&mut stage, buffered("go")).unwrap();
        assert_eq!((next.seq, next.buffered), (3, false));
    }

    #[test]
    fn expired_buffered_messages_are_deleted_completely() {
        let mut stage = Stage::new();
        send(&mut stage, buffered("go")).unwrap();
        send(&mut stage, buffered("go")).unwrap();
        for (ms, left) in [(1_000, 2), (TTL_MS - 1_001, 2), (1, 0)] {
            stage.later(ms);
            stage.must(Sweep::default());
            assert_eq!(rows_of(&stage, Table::Message), left, "{ms}");
        }
        assert_eq!((rows_of(&stage, Table::Mailbox), stage.tables.payloads().count()), (0, 0));
    }

    #[test]
    fn a_send_and_a_start_may_commit_concurrently() {
        let mut stage = Stage::new();
        send(&mut stage, buffered("go")).unwrap();
        let rows: Vec<_> = stage.tables.rows().cloned().collect();
        let mut beside = Stage::new();
        beside.must(workflow());
        // The state after two concurrent transactions.
        rows.into_iter().for_each(|row| beside.tables.plant(row));
        beside.later(1_000);
        beside.must(Sweep::default());
        let mailbox = beside.mailbox().unwrap();
        assert_eq!((mailbox.messages, mailbox.hidden, mailbox.buffered), (1, 0, 0));
        assert!(beside.task("t").unwrap().has_mailbox);
        assert_eq!(beside.message(1).unwrap().due_at, None);
        assert_eq!(in_all(&beside), None);
    }

    #[test]
    fn a_page_of_buffered_messages_is_delivered_once() {
        let mut stage = Stage::new();
        send(&mut stage, buffered("a")).unwrap();
        send(&mut stage, buffered("b")).unwrap();
        let rows: Vec<_> = stage.tables.rows().cloned().collect();
        let mut beside = Stage::new();
        beside.must(workflow());
        rows.into_iter().for_each(|row| beside.tables.plant(row));
        send(&mut beside, NewMessage { delay: Delay::For { ms: 90_000 }, ..message("c") }).unwrap();
        beside.later(1_000);
        beside.must(Sweep::default());
        let mailbox = beside.mailbox().unwrap();
        assert_eq!((mailbox.messages, mailbox.hidden, mailbox.buffered), (3, 1, 0));
    }

    #[test]
    fn a_plain_task_receives_buffered_messages_with_its_first_message() {
        let mut stage = Stage::new();
        send(&mut stage, buffered("go")).unwrap();
        stage.must(Create::one(new_task("t")));
        assert!(!stage.task("t").unwrap().has_mailbox);
        send(&mut stage, message("more")).unwrap();
        let mailbox = stage.mailbox().unwrap();
        assert_eq!((mailbox.messages, mailbox.hidden, mailbox.buffered), (2, 0, 0));
        stage.must(Claim { begin: false, ..claim() });
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        stage.must(DeleteTask { task: key("t") });
        assert_eq!((rows_of(&stage, Table::Mailbox), rows_of(&stage, Table::Message)), (0, 0));
    }

    #[test]
    fn buffered_messages_expire_for_a_plain_task_without_mail() {
        let mut stage = Stage::new();
        send(&mut stage, buffered("go")).unwrap();
        stage.must(Create::one(new_task("t")));
        stage.later(TTL_MS);
        stage.must(Sweep::default());
        assert_eq!((stage.mailbox(), in_all(&stage)), (None, None));
        assert!(!stage.task("t").unwrap().has_mailbox);
    }

    fn keyed(ttl_ms: Option<u64>) -> NewMessage {
        let idempotency = Some(IdempotencyWindow { key: "k".into(), window_ms: 100 * TTL_MS });
        let if_absent = ttl_ms.map_or(IfAbsent::Reject, |ttl_ms| IfAbsent::Buffer { ttl_ms });
        NewMessage { idempotency, if_absent, ..buffered("go") }
    }

    /// Runs one step. The result of a message is its number, with `=` for a duplicate.
    fn act(stage: &mut Stage, word: &str) -> Option<String> {
        let ttl_ms = match word {
            "buffer" => Some(TTL_MS),
            "longer" => Some(3 * TTL_MS),
            "send" => None,
            "wait" => {
                stage.later(TTL_MS);
                return None;
            }
            other => {
                stage.must(match other {
                    "start" => workflow().into(),
                    "plain" => Create::one(new_task("t")).into(),
                    "sweep" => Sweep::default().into(),
                    "end" => Cancel { task: key("t"), reason: "stop".into() }.into(),
                    "delete" => Command::from(DeleteTask { task: key("t") }),
                    other => panic!("{other}"),
                });
                return None;
            }
        };
        Some(match send(stage, keyed(ttl_ms)) {
            Ok(SentMessage { seq, duplicate: true, .. }) => format!("={seq}"),
            Ok(SentMessage { seq, .. }) => format!("{seq}"),
            Err(code) => code.to_owned(),
        })
    }

    #[test]
    fn a_message_key_deduplicates_before_and_after_the_start() {
        let rows = [
            ("send buffer buffer start buffer send", "task_not_found 1 =1 =1 =1", Some(1)),
            ("buffer start send buffer", "1 =1 =1", Some(1)),
            ("start buffer send buffer", "1 =1 =1", Some(1)),
            ("start send buffer send", "1 =1 =1", Some(1)),
            // An expired message and its key are deleted: the key can be used again.
            ("buffer wait sweep buffer start send", "1 1 =1", Some(1)),
            ("buffer wait sweep start send buffer", "1 1 =1", Some(1)),
            // A repeat extends the retention.
            ("buffer wait longer sweep start", "1 =1", Some(1)),
            ("buffer longer wait sweep start send", "1 =1 =1", Some(1)),
            ("longer wait buffer wait sweep start send", "1 =1 =1", Some(1)),
            // A new task with the same id has its own keys.
            ("buffer start end buffer delete buffer start send", "1 =1 1 =1", Some(1)),
            ("buffer start end delete start send buffer", "1 1 =1", Some(1)),
            ("start send end delete buffer start send", "1 1 =1", Some(1)),
            ("start send end delete send", "1 task_not_found", None),
            // A plain task receives it with its first message, which may be a repeat of it.
            ("buffer plain send buffer wait sweep", "1 =1 =1", Some(1)),
            ("buffer plain end wait sweep delete buffer", "1 1", Some(1)),
        ];
        for (words, outcomes, held) in rows {
            let mut stage = Stage::new();
            let act = |word| {
                stage.later(1);
                act(&mut stage, word)
            };
            let found: Vec<_> = words.split(' ').filter_map(act).collect();
            assert_eq!(found.join(" "), outcomes, "{words}");
            assert_eq!(stage.mailbox().map(|mailbox| mailbox.messages), held, "{words}");
        }
    }

    #[test]
    fn a_message_key_conflicts_before_and_after_the_start() {
        let mut stage = Stage::new();
        let other = |ttl_ms| NewMessage { name: "other".into(), ..keyed(ttl_ms) };
        send(&mut stage, keyed(Some(TTL_MS))).unwrap();
        assert_eq!(send(&mut stage, other(Some(TTL_MS))), Err("conflict"));
        stage.must(workflow());
        for ttl_ms in [None, Some(TTL_MS)] {
            assert_eq!(send(&mut stage, other(ttl_ms)), Err("conflict"));
        }
        assert_eq!(stage.mailbox().unwrap().messages, 1);
    }

    #[test]
    fn a_repeat_is_recognized_after_a_concurrent_start() {
        let mut stage = Stage::new();
        send(&mut stage, keyed(Some(TTL_MS))).unwrap();
        let rows: Vec<_> = stage.tables.rows().cloned().collect();
        for word in ["send", "buffer"] {
            let mut beside = Stage::new();
            beside.must(workflow());
            rows.iter().cloned().for_each(|row| beside.tables.plant(row));
            assert_eq!(act(&mut beside, word).as_deref(), Some("=1"));
            let mailbox = beside.mailbox().unwrap();
            assert_eq!((mailbox.messages, mailbox.hidden, mailbox.buffered), (1, 0, 0), "{word}");
        }
    }

    #[test]
    fn a_message_key_is_deleted_with_its_message() {
        let mut stage = Stage::new();
        send(&mut stage, keyed(Some(TTL_MS))).unwrap();
        let rows: Vec<_> = stage.tables.rows().cloned().collect();
        let mut beside = Stage::new();
        // It has had mail, and ended before the sweep checked the message.
        beside.must(workflow());
        send(&mut beside, message("before")).unwrap();
        act(&mut beside, "end");
        rows.into_iter().for_each(|row| beside.tables.plant(row));
        act(&mut beside, "delete");
        assert_eq!(rows_of(&beside, Table::Admission), 0);
        assert_eq!(
            (act(&mut beside, "buffer").as_deref(), in_all(&beside)),
            (Some("1"), Some((1, 1)))
        );
    }

    #[test]
    fn a_message_key_loaded_too_early_is_a_conflict() {
        let mut stage = Stage::new();
        send(&mut stage, keyed(Some(TTL_MS))).unwrap();
        stage.later(TTL_MS);
        for command in [Command::from(workflow()), Sweep::default().into()] {
            let admission = message_admission(&"default".into(), &"t".into(), &"k".into());
            assert_eq!(stage.decide_with_stale_absence(admission, command), Err(VersionConflict));
        }
    }

    #[test]
    fn buffered_messages_are_limited_per_id_and_per_tenant() {
        let mut stage = Stage::new();
        for _ in 0..limits::BUFFERED_MESSAGES_PER_ID {
            send(&mut stage, buffered("go")).unwrap();
        }
        assert_eq!(send(&mut stage, buffered("go")), Err("mailbox_full"));
        let to = |n: u32| NewMessage { task: format!("u{}", n / 100).into(), ..buffered("go") };
        for n in limits::BUFFERED_MESSAGES_PER_ID..limits::TENANT_BUFFERED_MESSAGES {
            send(&mut stage, to(n)).unwrap();
        }
        let before = stage.tables.clone();
        assert_eq!(send(&mut stage, to(20_000)), Err("mailbox_full"));
        assert_eq!(stage.tables, before);
        stage.must(workflow());
        assert!(send(&mut stage, to(20_000)).is_ok(), "the limit has room again");
    }
}
