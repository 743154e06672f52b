//! Messages buffered for a task that does not exist yet. They are hidden in its mailbox. A workflow
//! that is started under its id receives them; otherwise they expire.
//!
//! Sender and starter may commit concurrently without reading each other's row. The sweep therefore
//! re-checks each buffered message after a second, and delivers it if the workflow exists.

use crate::command::IdempotencyWindow;
use crate::limits;
use crate::mailbox::{BufferedKey, Mailbox, Message};
use crate::name::{TaskId, Tenant};
use crate::primitive::mailbox::{enclose, tell};
use crate::primitive::{
    MessageContent, are_neighbours_readable, hand_over_key, open, prefetch_key, resume_if_met,
};
use crate::record::{Record, StoredRecord};
use crate::rejection::Rejection;
use crate::task::{Task, TaskKey};
use crate::world::{Halt, World, unless_quarantined};

/// The delay after which the sweep re-checks a buffered message.
const LOOK_MS: u64 = 1_000;

/// The delay before the next check of a message whose task this version cannot read.
const POSTPONED_MS: u64 = 60_000;

/// Prefetches the records that are needed to buffer a message.
pub(crate) fn prefetch_keep(world: &mut World, tenant: &Tenant) {
    world.prefetch(Mailbox::key_of(tenant, &Mailbox::buffered_id()));
}

/// Buffers a message for a task that does not exist. Returns its sequence number.
pub(crate) fn keep(
    world: &mut World,
    (tenant, task): (&Tenant, &TaskId),
    content: &MessageContent<'_>,
    keep_ms: u64,
    idempotency: Option<&IdempotencyWindow>,
) -> Result<u64, Halt> {
    let known = world.get::<Mailbox>(&Mailbox::key_of(tenant, task))?;
    let all = world.get::<Mailbox>(&Mailbox::key_of(tenant, &Mailbox::buffered_id()))?;
    let known = known.map_or_else(|| Mailbox::empty(tenant, task), |known| (*known).clone());
    let mut all =
        all.map_or_else(|| Mailbox::empty(tenant, &Mailbox::buffered_id()), |all| (*all).clone());
    if known.messages >= limits::EARLY_MESSAGES {
        let (messages, bytes) = (known.messages, known.bytes);
        return Err(Rejection::MailboxFull { messages, bytes }.into());
    }
    if all.messages >= limits::ALL_EARLY_MESSAGES
        || all.bytes + content.bytes() > u64::from(limits::ALL_EARLY_BYTES)
    {
        let (messages, bytes) = (all.messages, all.bytes);
        return Err(Rejection::MailboxFull { messages, bytes }.into());
    }
    all.messages += 1;
    all.bytes += content.bytes();
    world.put::<Mailbox>(all);
    let mut mailbox = known;
    let message = enclose(world, &mut mailbox, content);
    mailbox.hidden += u32::from(message.due_at.is_none());
    mailbox.buffered += 1;
    let due_at = Some(world.now().plus_ms(keep_ms.min(LOOK_MS)));
    let buffered_until = Some(world.now().plus_ms(keep_ms));
    let buffered_key = idempotency.map(|IdempotencyWindow { key, window_ms }| BufferedKey {
        key: key.clone(),
        expires_at: world.now().plus_ms(*window_ms),
    });
    world.put::<Mailbox>(mailbox);
    world.put::<Message>(Message { buffered_until, buffered_key, due_at, ..message.clone() });
    Ok(message.seq)
}

/// Extends the retention of a buffered message that is sent again.
pub(crate) fn extend(
    world: &mut World,
    (tenant, task): (&Tenant, &TaskId),
    seq: u64,
    keep_ms: u64,
) -> Result<(), Halt> {
    let Some(known) = world.get::<Message>(&Message::key_of(tenant, task, seq))? else {
        return Ok(());
    };
    let longer = world.now().plus_ms(keep_ms);
    if known.buffered_until.is_some_and(|until| until < longer) {
        world.put::<Message>(Message { buffered_until: Some(longer), ..(*known).clone() });
    }
    Ok(())
}

/// Delivers all buffered messages of a task.
pub(crate) fn adopt(world: &mut World, task: &Task, known: &Mailbox) -> Result<Mailbox, Halt> {
    world.prefetch(Mailbox::key_of(&task.tenant, &Mailbox::buffered_id()));
    let (now, mut mailbox) = (world.now(), known.clone());
    let of_task = Message::of_task(&task.tenant, &task.id);
    let messages = world.scan::<Message>(&of_task, known.messages as usize + 1)?;
    let early = || messages.iter().filter(|message| message.buffered_until.is_some());
    early().for_each(|message| prefetch_key(world, message));
    for message in early() {
        hand_over_key(world, message, Some(task.created_at))?;
        let due_at = (now < message.visible_at).then_some(message.visible_at);
        let message =
            Message { buffered_until: None, buffered_key: None, due_at, ..(**message).clone() };
        mailbox.hidden = mailbox.hidden.saturating_sub(u32::from(due_at.is_none()));
        tell(world, task, &message);
        world.put::<Message>(message);
    }
    mailbox.buffered = 0;
    world.put::<Mailbox>(mailbox.clone());
    uncount(world, &task.tenant, early().map(AsRef::as_ref))?;
    Ok(mailbox)
}

/// Removes messages from the count of buffered messages of the tenant.
pub(crate) fn uncount<'a>(
    world: &mut World,
    tenant: &Tenant,
    early: impl Iterator<Item = &'a Message>,
) -> Result<(), Halt> {
    let (mut messages, mut bytes) = (0, 0);
    for message in early {
        messages += 1;
        bytes += message.bytes.unwrap_or(0);
    }
    let key = Mailbox::key_of(tenant, &Mailbox::buffered_id());
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

/// Prefetches the records that [`look_after`] needs.
pub(crate) fn prefetch_early(world: &mut World, message: &Message) {
    world.prefetch(Mailbox::key_of(&message.tenant, &Mailbox::buffered_id()));
    prefetch_key(world, message);
}

/// Delivers buffered messages to an open task, even if it has no mail yet. Returns whether they
/// resume it.
pub(crate) fn give(world: &mut World, task: &Task) -> Result<bool, Halt> {
    let mut task = task.clone();
    open(world, &mut task)?;
    world.put::<Task>(task.clone());
    resume_if_met(world, &task)
}

/// Delivers a buffered message if its workflow is open, and deletes it if it has expired.
pub(crate) fn look_after(world: &mut World, message: &Message) -> Result<(), Halt> {
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
        if !are_neighbours_readable(world, task)? {
            world.put::<Message>(again(now.plus_ms(POSTPONED_MS)));
            return Ok(());
        }
        return give(world, task).map(drop);
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
    uncount(world, &message.tenant, std::iter::once(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Cancel, Claim, Command, Create, DeleteTask, NewMessage, NewTask, NewWorkflow, Outcome,
        Post, Posted, Sweep,
    };
    use crate::payload::Payload;
    use crate::primitive::message_admission;
    use crate::record::Table;
    use crate::reference_tables::VersionConflict;
    use crate::testing::{Stage, claim, key, lane, message, new_task};

    const KEEP_MS: u64 = 60_000;

    fn early(name: &str) -> NewMessage {
        let payload = Some(Payload::json("1"));
        NewMessage { keep_ms: Some(KEEP_MS), payload, ..message(name) }
    }

    fn workflow() -> Create {
        let workflow = Some(NewWorkflow::default());
        Create::one(NewTask { workflow, lane: lane(), ..new_task("t") })
    }

    fn posted(stage: &mut Stage, message: NewMessage) -> Result<Posted, &'static str> {
        match stage.run(Post::one(message)) {
            Ok(Outcome::Posted(mut posted)) => Ok(posted.pop().unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => Err(rejection.code()),
        }
    }

    fn in_all(stage: &Stage) -> Option<(u32, u64)> {
        let all =
            stage.record::<Mailbox>(&Mailbox::key_of(&"default".into(), &Mailbox::buffered_id()));
        all.map(|all| (all.messages, all.bytes))
    }

    fn rows_of(stage: &Stage, table: Table) -> usize {
        stage.tables.rows().filter(|row| row.key.table == table).count()
    }

    #[test]
    fn a_workflow_receives_messages_buffered_before_its_start() {
        let mut stage = Stage::new();
        let first = posted(&mut stage, early("go")).unwrap();
        assert_eq!((first.seq, first.kept), (1, true));
        posted(&mut stage, NewMessage { after_ms: 30_000, ..early("later") }).unwrap();
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
        let next = posted(&mut stage, early("go")).unwrap();
        assert_eq!((next.seq, next.kept), (3, false));
    }

    #[test]
    fn expired_buffered_messages_are_deleted_completely() {
        let mut stage = Stage::new();
        posted(&mut stage, early("go")).unwrap();
        posted(&mut stage, early("go")).unwrap();
        for (ms, left) in [(1_000, 2), (KEEP_MS - 1_001, 2), (1, 0)] {
            stage.later(ms);
            stage.must(Sweep::default());
            assert_eq!(rows_of(&stage, Table::Message), left, "{ms}");
        }
        assert_eq!((rows_of(&stage, Table::Mailbox), stage.tables.payloads().count()), (0, 0));
    }

    #[test]
    fn a_post_and_a_start_may_commit_concurrently() {
        let mut stage = Stage::new();
        posted(&mut stage, early("go")).unwrap();
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
        posted(&mut stage, early("a")).unwrap();
        posted(&mut stage, early("b")).unwrap();
        let rows: Vec<_> = stage.tables.rows().cloned().collect();
        let mut beside = Stage::new();
        beside.must(workflow());
        rows.into_iter().for_each(|row| beside.tables.plant(row));
        posted(&mut beside, NewMessage { after_ms: 90_000, ..message("c") }).unwrap();
        beside.later(1_000);
        beside.must(Sweep::default());
        let mailbox = beside.mailbox().unwrap();
        assert_eq!((mailbox.messages, mailbox.hidden, mailbox.buffered), (3, 1, 0));
    }

    #[test]
    fn a_plain_task_receives_buffered_messages_with_its_first_message() {
        let mut stage = Stage::new();
        posted(&mut stage, early("go")).unwrap();
        stage.must(Create::one(new_task("t")));
        assert!(!stage.task("t").unwrap().has_mailbox);
        posted(&mut stage, message("more")).unwrap();
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
        posted(&mut stage, early("go")).unwrap();
        stage.must(Create::one(new_task("t")));
        stage.later(KEEP_MS);
        stage.must(Sweep::default());
        assert_eq!((stage.mailbox(), in_all(&stage)), (None, None));
        assert!(!stage.task("t").unwrap().has_mailbox);
    }

    fn keyed(keep_ms: Option<u64>) -> NewMessage {
        let idempotency = Some(IdempotencyWindow { key: "k".into(), window_ms: 100 * KEEP_MS });
        NewMessage { idempotency, keep_ms, ..early("go") }
    }

    /// Runs one step. The result of a message is its number, with `=` for a duplicate.
    fn act(stage: &mut Stage, word: &str) -> Option<String> {
        let keep_ms = match word {
            "keep" => Some(KEEP_MS),
            "longer" => Some(3 * KEEP_MS),
            "send" => None,
            "wait" => {
                stage.later(KEEP_MS);
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
        Some(match posted(stage, keyed(keep_ms)) {
            Ok(Posted { seq, duplicate: true, .. }) => format!("={seq}"),
            Ok(Posted { seq, .. }) => format!("{seq}"),
            Err(code) => code.to_owned(),
        })
    }

    #[test]
    fn a_message_key_deduplicates_before_and_after_the_start() {
        let rows = [
            ("send keep keep start keep send", "task_not_found 1 =1 =1 =1", Some(1)),
            ("keep start send keep", "1 =1 =1", Some(1)),
            ("start keep send keep", "1 =1 =1", Some(1)),
            ("start send keep send", "1 =1 =1", Some(1)),
            // An expired message and its key are deleted: the key can be used again.
            ("keep wait sweep keep start send", "1 1 =1", Some(1)),
            ("keep wait sweep start send keep", "1 1 =1", Some(1)),
            // A repeat extends the retention.
            ("keep wait longer sweep start", "1 =1", Some(1)),
            ("keep longer wait sweep start send", "1 =1 =1", Some(1)),
            ("longer wait keep wait sweep start send", "1 =1 =1", Some(1)),
            // A new task with the same id has its own keys.
            ("keep start end keep delete keep start send", "1 =1 1 =1", Some(1)),
            ("keep start end delete start send keep", "1 1 =1", Some(1)),
            ("start send end delete keep start send", "1 1 =1", Some(1)),
            ("start send end delete send", "1 task_not_found", None),
            // A plain task receives it with its first message, which may be a repeat of it.
            ("keep plain send keep wait sweep", "1 =1 =1", Some(1)),
            ("keep plain end wait sweep delete keep", "1 1", Some(1)),
        ];
        for (words, answers, held) in rows {
            let mut stage = Stage::new();
            let act = |word| {
                stage.later(1);
                act(&mut stage, word)
            };
            let answered: Vec<_> = words.split(' ').filter_map(act).collect();
            assert_eq!(answered.join(" "), answers, "{words}");
            assert_eq!(stage.mailbox().map(|mailbox| mailbox.messages), held, "{words}");
        }
    }

    #[test]
    fn a_message_key_conflicts_before_and_after_the_start() {
        let mut stage = Stage::new();
        let other = |keep_ms| NewMessage { name: "other".into(), ..keyed(keep_ms) };
        posted(&mut stage, keyed(Some(KEEP_MS))).unwrap();
        assert_eq!(posted(&mut stage, other(Some(KEEP_MS))), Err("conflict"));
        stage.must(workflow());
        for keep_ms in [None, Some(KEEP_MS)] {
            assert_eq!(posted(&mut stage, other(keep_ms)), Err("conflict"));
        }
        assert_eq!(stage.mailbox().unwrap().messages, 1);
    }

    #[test]
    fn a_repeat_is_recognized_after_a_concurrent_start() {
        let mut stage = Stage::new();
        posted(&mut stage, keyed(Some(KEEP_MS))).unwrap();
        let rows: Vec<_> = stage.tables.rows().cloned().collect();
        for word in ["send", "keep"] {
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
        posted(&mut stage, keyed(Some(KEEP_MS))).unwrap();
        let rows: Vec<_> = stage.tables.rows().cloned().collect();
        let mut beside = Stage::new();
        // It has had mail, and ended before the sweep checked the message.
        beside.must(workflow());
        posted(&mut beside, message("before")).unwrap();
        act(&mut beside, "end");
        rows.into_iter().for_each(|row| beside.tables.plant(row));
        act(&mut beside, "delete");
        assert_eq!(rows_of(&beside, Table::Admission), 0);
        assert_eq!(
            (act(&mut beside, "keep").as_deref(), in_all(&beside)),
            (Some("1"), Some((1, 1)))
        );
    }

    #[test]
    fn a_message_key_loaded_too_early_is_a_conflict() {
        let mut stage = Stage::new();
        posted(&mut stage, keyed(Some(KEEP_MS))).unwrap();
        stage.later(KEEP_MS);
        for command in [Command::from(workflow()), Sweep::default().into()] {
            let admission = message_admission(&"default".into(), &"t".into(), &"k".into());
            assert_eq!(stage.looked_too_early(admission, command), Err(VersionConflict));
        }
    }

    #[test]
    fn buffered_messages_are_limited_per_id_and_per_tenant() {
        let mut stage = Stage::new();
        for _ in 0..limits::EARLY_MESSAGES {
            posted(&mut stage, early("go")).unwrap();
        }
        assert_eq!(posted(&mut stage, early("go")), Err("mailbox_full"));
        let to = |n: u32| NewMessage { task: format!("u{}", n / 100).into(), ..early("go") };
        for n in limits::EARLY_MESSAGES..limits::ALL_EARLY_MESSAGES {
            posted(&mut stage, to(n)).unwrap();
        }
        let before = stage.tables.clone();
        assert_eq!(posted(&mut stage, to(20_000)), Err("mailbox_full"));
        assert_eq!(stage.tables, before);
        stage.must(workflow());
        assert!(posted(&mut stage, to(20_000)).is_ok(), "the limit has room again");
    }
}
