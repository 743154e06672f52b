use std::collections::BTreeMap;

use crate::command::{Create, NewTask, Outcome, Transition};
use crate::event::{Change, Event};
use crate::limits;
use crate::mailbox::Mailbox;
use crate::name::{TaskId, Tenant, WaitpointId};
use crate::new_message::{IfAbsent, NewMessage, SentMessage};
use crate::primitive::{
    EarlierMessage, buffer, deliver, extend_buffered, message_admission, open_and_deliver,
    prefetch, prefetch_tenant_buffer, require_task, reserve_message, transition_to,
};
use crate::rejection::Rejection;
use crate::task::{Task, TaskKey};
use crate::world::{Halt, World};

/// Sends messages to tasks and workflows for a trusted caller: all of them, or none.
#[derive(Clone, Debug)]
pub struct SendMessages {
    pub tenant: Tenant,
    pub messages: Vec<NewMessage>,
}

impl SendMessages {
    pub fn one(message: NewMessage) -> Self {
        Self { tenant: Tenant::default(), messages: vec![message] }
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::SEND_MESSAGES.check(self.messages.len())?;
        self.messages.iter().try_for_each(|message| message.check(world.now()))?;
        self.prefetch(world)?;
        let send = |world: &mut World, message: &NewMessage| send(world, &self.tenant, message);
        world.for_each_collecting(&self.messages, send).map(Outcome::Sent)
    }

    /// Requests the rows of all messages before any of them is sent.
    fn prefetch(&self, world: &mut World) -> Result<(), Halt> {
        let mut counts: BTreeMap<&TaskId, u64> = BTreeMap::new();
        for message in &self.messages {
            *counts.entry(&message.task).or_default() += 1;
        }
        let mut missing = false;
        for id in counts.keys() {
            missing |= world.prefetch(TaskKey::new(&self.tenant, id).row_key());
            missing |= world.prefetch(Mailbox::key_of(&self.tenant, id));
        }
        if missing {
            return Err(Halt::Parked);
        }
        let mut tasks: BTreeMap<&TaskId, _> = BTreeMap::new();
        for (id, count) in counts {
            let Some(task) = world.get::<Task>(&TaskKey::new(&self.tenant, id).row_key())? else {
                continue;
            };
            let mailbox = world.get::<Mailbox>(&Mailbox::key_of(&self.tenant, id))?;
            prefetch(world, &task, mailbox.as_deref(), count);
            tasks.insert(id, task);
        }
        for message in &self.messages {
            if !tasks.contains_key(&message.task) {
                prefetch_absent(world, &self.tenant, message);
            }
            if let Some(idempotency) = &message.idempotency {
                world.prefetch(message_admission(&self.tenant, &message.task, &idempotency.key));
            }
        }
        Ok(())
    }
}

/// Requests the rows that [`send`] needs. Invalid names are not looked up.
pub(super) fn prefetch_message(world: &mut World, tenant: &Tenant, message: &NewMessage) {
    if message.check(world.now()).is_err() {
        return;
    }
    world.prefetch(Mailbox::key_of(tenant, &message.task));
    prefetch_absent(world, tenant, message);
    world.prefetch(TaskKey::new(tenant, &message.task).row_key());
}

/// Requests the rows that are needed if the task of a message does not exist.
fn prefetch_absent(world: &mut World, tenant: &Tenant, message: &NewMessage) {
    match &message.if_absent {
        IfAbsent::Reject => {}
        IfAbsent::Buffer { .. } => prefetch_tenant_buffer(world, tenant),
        IfAbsent::Start(new) => {
            let create = Create { tenant: tenant.clone(), tasks: Vec::new() };
            create.prefetch(world, &message.task_to_start(new), &new.route());
        }
    }
}

/// Sends a message: delivers it, or does what the message asks for if its task does not exist.
pub(super) fn send(
    world: &mut World,
    tenant: &Tenant,
    message: &NewMessage,
) -> Result<SentMessage, Halt> {
    message.check(world.now())?;
    let key = TaskKey::new(tenant, &message.task);
    let task = world.get::<Task>(&key.row_key())?;
    let task = match (task, &message.if_absent) {
        (Some(task), _) => task,
        (None, IfAbsent::Reject) => return Err(Rejection::TaskNotFound.into()),
        (None, IfAbsent::Buffer { ttl_ms }) => {
            return send_to_buffer(world, &key, message, *ttl_ms);
        }
        (None, IfAbsent::Start(new)) => {
            start(world, tenant, &message.task_to_start(new))?;
            require_task(world, &key)?
        }
    };
    match sent_before(world, &key, Some(&task), message, None)? {
        Some(first) => Ok(first),
        None => deliver(world, &task, message, None),
    }
}

fn send_to_buffer(
    world: &mut World,
    key: &TaskKey,
    message: &NewMessage,
    ttl_ms: u64,
) -> Result<SentMessage, Halt> {
    if let Some(first) = sent_before(world, key, None, message, None)? {
        return Ok(first);
    }
    let seq = buffer(world, key, message, ttl_ms)?;
    let task = key.id.clone();
    Ok(SentMessage { task, seq, duplicate: false, resumed: false, buffered: true })
}

fn start(world: &mut World, tenant: &Tenant, new: &NewTask) -> Result<(), Halt> {
    let create = Create { tenant: tenant.clone(), tasks: Vec::new() };
    let task = create.create_for_workflow(world, new, None)?.ok_or(Rejection::Conflict)?;
    if task.workflow.is_none() {
        world.emit(Event::of_task(&task, world.now(), Change::Created));
    }
    transition_to(world, task)
}

/// Returns the earlier message with this idempotency key, or reserves the key. An earlier message
/// that is still buffered is delivered if its task exists, else its TTL is extended.
pub(super) fn sent_before(
    world: &mut World,
    key: &TaskKey,
    task: Option<&Task>,
    message: &NewMessage,
    waitpoint: Option<&WaitpointId>,
) -> Result<Option<SentMessage>, Halt> {
    let Some(idempotency) = &message.idempotency else { return Ok(None) };
    let fingerprint = message.fingerprint(waitpoint);
    let Some(EarlierMessage { seq, is_buffered }) =
        reserve_message(world, key, task, fingerprint, idempotency)?
    else {
        return Ok(None);
    };
    let open = task.filter(|task| task.lifecycle.ended_at().is_none());
    let resumed = match (open, &message.if_absent) {
        (Some(open), _) if is_buffered => open_and_deliver(world, open)?,
        (None, IfAbsent::Buffer { ttl_ms }) if is_buffered => {
            extend_buffered(world, key, seq, *ttl_ms)?;
            false
        }
        _ => false,
    };
    let task = key.id.clone();
    let buffered = is_buffered && open.is_none();
    Ok(Some(SentMessage { task, seq, duplicate: true, resumed, buffered }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Cancel, Claim, Delay, DeleteTask, IdempotencyWindow, NewWorkflow, Suspend, Sweep,
    };
    use crate::new_message::MailboxLimit;
    use crate::payload::Payload;
    use crate::task::{Condition, Lifecycle, PublicState, ResumeCause};
    use crate::testing::{Stage, check_task, claim, fence, key, lane, message, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    |            | absent          | ! task_not_found |
            absent    | buffer=60000 | absent          | sent 1         |
            absent    | buffer=1   | absent          | ! invalid        |
            absent    | start      | waiting e0 a0   | sent 1         | created signalled
            absent    | start after=5000 | waiting e0 a0 | sent 1      | created signalled
            waiting   | start      | waiting e0 a0   | sent 1         | signalled
            completed | start      | completed e1 a1 | ! already_terminal |
            waiting   | buffer=60000 | waiting e0 a0   | sent 1         | signalled
            completed | buffer=60000 | completed e1 a1 | ! already_terminal |
            waiting   |            | waiting e0 a0   | sent 1         | signalled
            waiting   | name=      | waiting e0 a0   | ! invalid        |
            waiting   | after=5000 | waiting e0 a0   | sent 1         | signalled
            delayed   |            | delayed e0 a0   | sent 1         | signalled
            claimed   |            | claimed e1 a0   | sent 1         | signalled
            active    |            | active e1 a1    | sent 1         | signalled
            lease_expired    |            | active e1 a1    | sent 1         | signalled
            completed |            | completed e1 a1 | ! already_terminal |
            failed    |            | failed e1 a1    | ! already_terminal |
            cancelled |            | cancelled e1 a1 | ! already_terminal |
            expired   |            | expired e1 a1   | ! already_terminal |
            suspended |            | resumable e1 a1 | resumed 1        | signalled resumed
            suspended | name=other | suspended e1 a1 | sent 1         | signalled
            suspended | after=5000 | suspended e1 a1 | sent 1         | signalled
            resumable |            | resumable e1 a1 | sent 2         | signalled
            waiting_children | | waiting_children e1 a1 | sent 1 | signalled
            blocked | | blocked e0 a0 | sent 1 | signalled
            owned | | owned e0 a0 | sent 1 | signalled
            granted | | granted e0 a0 | sent 1 | signalled
            ",
            |args| {
                let mut new = message(&args.text("name", "go"));
                new.delay = Delay::For { ms: args.number("after", 0) };
                new.if_absent = match args.number("buffer", 0) {
                    0 if args.has("start") => IfAbsent::Start(Box::new(new_task("a different id"))),
                    0 => IfAbsent::Reject,
                    ttl_ms => IfAbsent::Buffer { ttl_ms },
                };
                SendMessages::one(new)
            },
        );
    }

    fn sent(stage: &mut Stage, message: NewMessage) -> Result<(u64, bool, bool), &'static str> {
        match stage.run(SendMessages::one(message)) {
            Ok(Outcome::Sent(sent)) => Ok((sent[0].seq, sent[0].duplicate, sent[0].resumed)),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => Err(rejection.code()),
        }
    }

    fn keyed(name: &str) -> NewMessage {
        let idempotency = Some(IdempotencyWindow { key: "k".into(), window_ms: 60_000 });
        NewMessage { idempotency, ..message(name) }
    }

    #[test]
    fn a_key_takes_effect_once_within_its_window() {
        let mut stage = Stage::with_task("waiting");
        assert_eq!(sent(&mut stage, keyed("go")), Ok((1, false, false)));
        assert_eq!(sent(&mut stage, keyed("go")), Ok((1, true, false)));
        assert_eq!(sent(&mut stage, keyed("other")), Err("conflict"));
        stage.must(claim());
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        assert_eq!(sent(&mut stage, keyed("go")), Ok((1, true, false)), "also after its end");
        assert_eq!(sent(&mut stage, message("go")), Err("already_terminal"));
        stage.later(60_000);
        assert_eq!(sent(&mut stage, keyed("go")), Err("already_terminal"));
        assert_eq!(stage.mailbox().unwrap().messages, 1);
    }

    #[test]
    fn a_message_key_is_scoped_to_one_life_of_the_task() {
        let mut stage = Stage::with_task("waiting");
        stage.must(SendMessages::one(keyed("go")));
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        stage.must(DeleteTask { task: key("t") });
        stage.later(1);
        stage.must(crate::command::Create::one(new_task("t")));
        assert_eq!(sent(&mut stage, keyed("go")), Ok((1, false, false)));
    }

    #[test]
    fn many_at_once_are_all_or_none() {
        let mut stage = Stage::with_task("suspended");
        let to = |id: &str, name: &str| NewMessage { task: id.into(), ..message(name) };
        let send = |messages: &[NewMessage]| SendMessages {
            tenant: Tenant::default(),
            messages: messages.to_vec(),
        };
        let half = send(&[to("t", "go"), to("missing", "go")]);
        assert_eq!(stage.run(half), Err(Rejection::TaskNotFound));
        assert_eq!(stage.mailbox(), None);
        stage.must(crate::command::Create::one(new_task("u")));
        let all = send(&[to("u", "a"), to("t", "a"), to("t", "go"), to("t", "go"), to("u", "b")]);
        let Outcome::Sent(sent) = stage.must(all) else { panic!() };
        let sent: Vec<_> = sent.iter().map(|a| (a.task.as_str(), a.seq, a.resumed)).collect();
        let expected =
            [("u", 1, false), ("t", 1, false), ("t", 2, true), ("t", 3, false), ("u", 2, false)];
        assert_eq!(sent, expected);
        let resumption = stage.task("t").unwrap().resumption.unwrap();
        assert_eq!((resumption.cause, resumption.messages), (ResumeCause::Signals, vec![2]));
        for none in [send(&[]), send(&vec![to("t", "a"); 1_001])] {
            assert_eq!(stage.run(none).unwrap_err().code(), "invalid");
        }
    }

    #[test]
    fn a_mailbox_is_limited_in_messages_and_bytes() {
        let mut stage = Stage::with_task("waiting");
        let many = SendMessages { tenant: Tenant::default(), messages: vec![message("a"); 999] };
        stage.must(many);
        stage.must(SendMessages::one(message("a")));
        assert_eq!(sent(&mut stage, message("a")), Err("mailbox_full"));
        let mut stage = Stage::with_task("waiting");
        let large =
            NewMessage { payload: Some(Payload::new("a/b", vec![0; 256 * 1_024])), ..message("a") };
        for _ in 0..64 {
            stage.must(SendMessages::one(large.clone()));
        }
        assert_eq!(sent(&mut stage, large), Err("mailbox_full"));
        assert!(sent(&mut stage, message("a")).is_ok(), "a message without a payload still fits");
        let (held, bytes) =
            stage.mailbox().map(|mailbox| (mailbox.messages, mailbox.bytes)).unwrap();
        assert_eq!((held, bytes), (65, 16 * 1_024 * 1_024));
    }

    #[test]
    fn a_delayed_message_resumes_its_task_when_visible() {
        let mut stage = Stage::with_task("suspended");
        let timer = NewMessage { delay: Delay::For { ms: 5_000 }, ..message("go") };
        stage.must(SendMessages::one(timer));
        assert_eq!(stage.message(1).unwrap().due_at, Some(stage.now.plus_ms(5_000)));
        stage.later(4_999);
        stage.must(Sweep::default());
        assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Suspended);
        stage.later(1);
        stage.must(Sweep::default());
        assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Resumable);
        assert_eq!(stage.message(1).unwrap().due_at, None);
        assert_eq!(stage.task("t").unwrap().resumption.unwrap().messages, [1]);
    }

    #[test]
    fn a_due_message_counts_before_its_sweep() {
        let mut stage = Stage::with_task("waiting");
        stage.must(SendMessages::one(NewMessage {
            delay: Delay::For { ms: 5_000 },
            ..message("a")
        }));
        stage.must(claim());
        let both = Condition::All(vec![Condition::signal("a"), Condition::signal("b")]);
        stage.must(Suspend::new(fence(1), both));
        stage.later(5_000);
        assert_eq!(sent(&mut stage, message("b")), Ok((2, false, true)));
        stage.must(Sweep::default());
        assert_eq!(stage.message(1).unwrap().due_at, None);
    }

    #[test]
    fn a_message_to_an_unreadable_mailbox_is_deferred() {
        let mut stage = Stage::with_task("suspended");
        stage.must(SendMessages::one(NewMessage {
            delay: Delay::For { ms: 5_000 },
            ..message("go")
        }));
        stage.garble(&Mailbox::key_of(&Tenant::default(), &"t".into()));
        assert_eq!(sent(&mut stage, message("go")), Err("quarantined"));
        stage.later(5_000);
        stage.must(Sweep::default());
        assert_eq!(stage.message(1).unwrap().due_at, Some(stage.now.plus_ms(60_000)));
    }

    #[test]
    fn the_payload_is_retained_until_the_task_is_deleted() {
        let mut stage = Stage::with_task("waiting");
        let payload = Some(Payload::json("1"));
        stage.must(SendMessages::one(NewMessage { payload: payload.clone(), ..message("go") }));
        let payload_key = stage.message(1).unwrap().payload_key().unwrap();
        assert_eq!(stage.tables.payload(&payload_key), payload.as_ref());
        stage.must(Claim { begin: false, ..claim() });
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        stage.must(DeleteTask { task: key("t") });
        assert_eq!(stage.tables.payloads().count(), 0);
        assert_eq!((stage.mailbox(), stage.message(1)), (None, None));
    }

    #[test]
    fn bad_input_is_rejected_by_name() {
        let long = "x".repeat(256);
        let payload = Some(Payload::new("a/b", vec![0; 256 * 1_024 + 1]));
        let key = Some(IdempotencyWindow { key: "".into(), window_ms: 60_000 });
        let rows = [
            ("id", NewMessage::new("", "a", "b")),
            ("name", message("")),
            ("name", message(&long)),
            ("name", message("a\0")),
            ("source", NewMessage { source: long, ..message("a") }),
            ("delay_ms", NewMessage { delay: Delay::For { ms: u64::MAX }, ..message("a") }),
            ("payload_bytes", NewMessage { payload, ..message("a") }),
            ("idempotency_key", NewMessage { idempotency: key, ..message("a") }),
        ];
        for (named, new) in rows {
            match Stage::with_task("waiting").run(SendMessages::one(new)) {
                Err(Rejection::Invalid { field, .. }) => assert_eq!(field, named),
                other => panic!("{named}: {other:?}"),
            }
        }
    }

    fn new_workflow() -> NewTask {
        let workflow = Some(NewWorkflow::default());
        NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") }
    }

    fn start() -> IfAbsent {
        IfAbsent::Start(Box::new(new_workflow()))
    }

    #[test]
    fn a_started_workflow_receives_the_messages_buffered_for_it() {
        let mut stage = Stage::new();
        let if_absent = IfAbsent::Buffer { ttl_ms: 60_000 };
        stage.must(SendMessages::one(NewMessage { if_absent, ..message("go") }));
        stage.must(SendMessages::one(NewMessage { if_absent: start(), ..message("go") }));
        stage.must(Claim { deliver_messages: true, ..claim() });
        let Lifecycle::Active(lease) = stage.task("t").unwrap().lifecycle else { panic!() };
        assert_eq!(lease.in_flight, vec![1, 2]);
    }

    #[test]
    fn a_signal_with_start_takes_effect_once_per_key() {
        let first = || NewMessage { if_absent: start(), ..keyed("go") };
        let mut stage = Stage::new();
        assert_eq!(sent(&mut stage, first()), Ok((1, false, false)));
        assert_eq!(sent(&mut stage, first()), Ok((1, true, false)));
        assert_eq!(sent(&mut stage, keyed("go")), Ok((1, true, false)), "sent without a start");
        assert_eq!(sent(&mut stage, keyed("other")), Err("conflict"));
        assert_eq!(stage.mailbox().unwrap().messages, 1);
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        assert_eq!(sent(&mut stage, first()), Ok((1, true, false)), "also after its end");
        stage.must(DeleteTask { task: key("t") });
        stage.later(1);
        assert_eq!(sent(&mut stage, first()), Ok((1, false, false)), "a new workflow");
    }

    #[test]
    fn a_start_delivers_the_buffered_message_of_the_same_key() {
        let mut stage = Stage::new();
        let if_absent = IfAbsent::Buffer { ttl_ms: 60_000 };
        assert_eq!(
            sent(&mut stage, NewMessage { if_absent, ..keyed("go") }),
            Ok((1, false, false))
        );
        let started = NewMessage { if_absent: start(), ..keyed("go") };
        assert_eq!(sent(&mut stage, started), Ok((1, true, false)));
        let message = stage.message(1).unwrap();
        assert_eq!((message.due_at, message.buffered_until), (None, None));
        assert_eq!(stage.mailbox().unwrap().messages, 1);
    }

    #[test]
    fn a_rejected_start_sends_nothing() {
        let mut stage = Stage::new();
        let orphan = NewTask { parent: Some("missing".into()), ..new_workflow() };
        let invalid = NewTask { kind: "".into(), ..new_workflow() };
        for (new, code) in [(orphan, "parent_not_found"), (invalid, "invalid")] {
            let if_absent = IfAbsent::Start(Box::new(new));
            assert_eq!(sent(&mut stage, NewMessage { if_absent, ..keyed("go") }), Err(code));
            assert_eq!(stage.tables.rows().count(), 0, "{code}");
        }
    }

    #[test]
    fn several_messages_start_one_workflow() {
        let mut stage = Stage::new();
        let messages = ["a", "b"].map(|name| NewMessage { if_absent: start(), ..message(name) });
        let all = SendMessages { tenant: Tenant::default(), messages: messages.to_vec() };
        let Outcome::Sent(sent) = stage.must(all) else { panic!() };
        assert_eq!(sent.iter().map(|sent| sent.seq).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_message_is_visible_at_its_time() {
        let mut stage = Stage::with_task("waiting");
        let at = stage.now.plus_ms(7);
        for at in [at, stage.now] {
            let delay = Delay::Until { at };
            stage.must(SendMessages::one(NewMessage { delay, ..message("go") }));
        }
        assert_eq!(stage.message(1).unwrap().due_at, Some(at));
        assert_eq!(stage.message(2).unwrap().due_at, None);
    }

    #[test]
    fn an_extended_mailbox_accepts_many_and_long_messages() {
        let limit = MailboxLimit::Extended;
        let short = || SendMessages::one(NewMessage { limit, ..message("go") });
        let payload = Some(Payload::new("text/plain", vec![b'x'; 300 * 1_024]));
        let long = NewMessage { limit, payload, ..message("go") };
        let mut stage = Stage::new();
        stage.must(SendMessages::one(NewMessage { if_absent: start(), ..long.clone() }));
        for _ in 0..limits::MAILBOX_MESSAGES {
            stage.must(short());
        }
        let mut stage = Stage::with_task("waiting");
        stage.must(SendMessages::one(long));
        for _ in 1..limits::MAILBOX_MESSAGES {
            stage.must(short());
        }
        let rejected = stage.run(short()).unwrap_err();
        assert_eq!(rejected.code(), "mailbox_full", "a condition is decided over all of these");
    }

    #[test]
    fn received_messages_are_recorded_in_the_lease() {
        let mut stage = Stage::with_task("waiting");
        let later = NewMessage { delay: Delay::For { ms: 50 }, ..message("go") };
        for message in [message("go"), later, message("go")] {
            stage.must(SendMessages::one(message));
        }
        let outcome = stage.must(Claim { deliver_messages: true, ..claim() });
        let Outcome::Claimed(tasks) = outcome else { panic!("{outcome:?}") };
        let task = stage.task("t").expect("it is leased");
        assert_eq!(*tasks[0], task);
        let Lifecycle::Active(lease) = &task.lifecycle else { panic!("{task:?}") };
        assert_eq!(lease.in_flight, vec![1, 3]);
    }
}
