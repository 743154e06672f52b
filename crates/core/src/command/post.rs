use std::collections::BTreeMap;

use crate::command::{IdempotencyWindow, Outcome, Posted, Transition};
use crate::limits;
use crate::mailbox::Mailbox;
use crate::name::{TaskId, Tenant};
use crate::payload::Payload;
use crate::primitive::{
    Delivered, Earlier, MessageContent, deliver, extend, give, keep, message_admission, prefetch,
    prefetch_keep, reserve_message,
};
use crate::rejection::Rejection;
use crate::task::{Task, TaskKey};
use crate::world::{Halt, World};

/// Posts messages to tasks for a trusted caller: all of them, or none.
#[derive(Clone, Debug)]
pub struct Post {
    pub tenant: Tenant,
    pub messages: Vec<NewMessage>,
}

/// The fields of a message to post.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub task: TaskId,
    pub name: String,
    pub source: String,
    pub idempotency: Option<IdempotencyWindow>,
    /// Delay until it is visible. A timer is a delayed message.
    pub after_ms: u64,
    /// How long it is buffered if the task does not exist, for a workflow that is started under
    /// that id. Without it, a missing task is a rejection.
    pub keep_ms: Option<u64>,
    pub payload: Option<Payload>,
}

impl NewMessage {
    /// Visible at once, without a payload.
    pub fn new(
        task: impl Into<TaskId>,
        name: impl Into<String>,
        source: impl Into<String>,
    ) -> Self {
        Self {
            task: task.into(),
            name: name.into(),
            source: source.into(),
            idempotency: None,
            after_ms: 0,
            keep_ms: None,
            payload: None,
        }
    }

    pub(super) fn content(&self) -> MessageContent<'_> {
        MessageContent {
            name: &self.name,
            source: &self.source,
            waitpoint: None,
            after_ms: self.after_ms,
            payload: self.payload.as_ref(),
        }
    }
}

impl Post {
    pub fn one(message: NewMessage) -> Self {
        Self { tenant: Tenant::default(), messages: vec![message] }
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::POSTS.check(self.messages.len())?;
        for message in &self.messages {
            limits::TASK_ID.check(message.task.as_str())?;
            message.content().check()?;
            if let Some(keep_ms) = message.keep_ms {
                limits::KEEP_MS.check(keep_ms)?;
            }
            if let Some(idempotency) = &message.idempotency {
                idempotency.check()?;
            }
        }
        self.prefetch(world)?;
        let posted = world.each(&self.messages, |world, message| self.post(world, message))?;
        Ok(Outcome::Posted(posted))
    }

    /// Requests the rows of all messages before any of them is posted.
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
            let task = tasks.get(&message.task).map(AsRef::as_ref);
            if message.keep_ms.is_some() && task.is_none() {
                prefetch_keep(world, &self.tenant);
            }
            if let Some(idempotency) = &message.idempotency {
                let to = (&self.tenant, &message.task);
                world.prefetch(message_admission(to.0, to.1, &idempotency.key));
            }
        }
        Ok(())
    }

    fn post(&self, world: &mut World, message: &NewMessage) -> Result<Posted, Halt> {
        let known = world.get::<Task>(&TaskKey::new(&self.tenant, &message.task).row_key())?;
        if known.is_none() && message.keep_ms.is_none() {
            return Err(Rejection::TaskNotFound.into());
        }
        let (to, content) = ((&self.tenant, &message.task), message.content());
        let (known, idempotency) = (known.as_deref(), message.idempotency.as_ref());
        if let Some(first) =
            posted_before(world, to, known, &content, idempotency, message.keep_ms)?
        {
            return Ok(first);
        }
        match (known, message.keep_ms) {
            (Some(known), _) => post(world, known, &content),
            (None, Some(keep_ms)) => {
                let seq = keep(world, to, &content, keep_ms, idempotency)?;
                let task = message.task.clone();
                Ok(Posted { task, seq, duplicate: false, resumed: false, kept: true })
            }
            (None, None) => Err(Rejection::TaskNotFound.into()),
        }
    }
}

/// Returns the earlier message with this idempotency key, or reserves the key. An earlier message
/// that is still buffered is delivered if its task exists, else its TTL is extended.
pub(super) fn posted_before(
    world: &mut World,
    to: (&Tenant, &TaskId),
    task: Option<&Task>,
    content: &MessageContent<'_>,
    idempotency: Option<&IdempotencyWindow>,
    keep_ms: Option<u64>,
) -> Result<Option<Posted>, Halt> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    let Some(Earlier { seq, is_kept }) = reserve_message(world, to, task, content, idempotency)?
    else {
        return Ok(None);
    };
    let open = task.filter(|task| task.lifecycle.ended_at().is_none());
    let resumed = match (open, keep_ms) {
        (Some(open), _) if is_kept => give(world, open)?,
        (None, Some(keep_ms)) if is_kept => {
            extend(world, to, seq, keep_ms)?;
            false
        }
        _ => false,
    };
    Ok(Some(Posted { task: to.1.clone(), seq, duplicate: true, resumed, kept: false }))
}

pub(super) fn post(
    world: &mut World,
    task: &Task,
    content: &MessageContent<'_>,
) -> Result<Posted, Halt> {
    let Delivered { seq, resumed } = deliver(world, task, content)?;
    Ok(Posted { task: task.id.clone(), seq, duplicate: false, resumed, kept: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Cancel, Claim, DeleteTask, Suspend, Sweep};
    use crate::task::{Condition, PublicState, ResumeCause};
    use crate::testing::{Stage, check_task, claim, fence, key, message, new_task};

    #[test]
    fn table() {
        check_task(
            "
            absent    |            | absent          | ! task_not_found |
            absent    | keep=60000 | absent          | posted 1         |
            absent    | keep=1     | absent          | ! invalid        |
            waiting   | keep=60000 | waiting e0 a0   | posted 1         | signaled
            completed | keep=60000 | completed e1 a1 | ! ended          |
            waiting   |            | waiting e0 a0   | posted 1         | signaled
            waiting   | name=      | waiting e0 a0   | ! invalid        |
            waiting   | after=5000 | waiting e0 a0   | posted 1         | signaled
            delayed   |            | delayed e0 a0   | posted 1         | signaled
            claimed   |            | claimed e1 a0   | posted 1         | signaled
            active    |            | active e1 a1    | posted 1         | signaled
            lapsed    |            | active e1 a1    | posted 1         | signaled
            completed |            | completed e1 a1 | ! ended          |
            failed    |            | failed e1 a1    | ! ended          |
            cancelled |            | cancelled e1 a1 | ! ended          |
            expired   |            | expired e1 a1   | ! ended          |
            suspended |            | resumable e1 a1 | resumed 1        | signaled resumed
            suspended | name=other | suspended e1 a1 | posted 1         | signaled
            suspended | after=5000 | suspended e1 a1 | posted 1         | signaled
            resumable |            | resumable e1 a1 | posted 2         | signaled
            waiting_children | | waiting_children e1 a1 | posted 1 | signaled
            gated | | blocked e0 a0 | posted 1 | signaled
            reserved | | reserved e0 a0 | posted 1 | signaled
            granted | | granted e0 a0 | posted 1 | signaled
            ",
            |args| {
                let mut new = message(&args.text("name", "go"));
                new.after_ms = args.number("after", 0);
                new.keep_ms = args.has("keep").then(|| args.number("keep", 0));
                Post::one(new)
            },
        );
    }

    fn posted(stage: &mut Stage, message: NewMessage) -> Result<(u64, bool, bool), &'static str> {
        match stage.run(Post::one(message)) {
            Ok(Outcome::Posted(posted)) => {
                Ok((posted[0].seq, posted[0].duplicate, posted[0].resumed))
            }
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
        assert_eq!(posted(&mut stage, keyed("go")), Ok((1, false, false)));
        assert_eq!(posted(&mut stage, keyed("go")), Ok((1, true, false)));
        assert_eq!(posted(&mut stage, keyed("other")), Err("conflict"));
        stage.must(claim());
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        assert_eq!(posted(&mut stage, keyed("go")), Ok((1, true, false)), "also after its end");
        assert_eq!(posted(&mut stage, message("go")), Err("ended"));
        stage.later(60_000);
        assert_eq!(posted(&mut stage, keyed("go")), Err("ended"));
        assert_eq!(stage.mailbox().unwrap().messages, 1);
    }

    #[test]
    fn a_message_key_is_scoped_to_one_life_of_the_task() {
        let mut stage = Stage::with_task("waiting");
        stage.must(Post::one(keyed("go")));
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        stage.must(DeleteTask { task: key("t") });
        stage.later(1);
        stage.must(crate::command::Create::one(new_task("t")));
        assert_eq!(posted(&mut stage, keyed("go")), Ok((1, false, false)));
    }

    #[test]
    fn many_at_once_are_all_or_none() {
        let mut stage = Stage::with_task("suspended");
        let to = |id: &str, name: &str| NewMessage { task: id.into(), ..message(name) };
        let post = |messages: &[NewMessage]| Post {
            tenant: Tenant::default(),
            messages: messages.to_vec(),
        };
        let half = post(&[to("t", "go"), to("missing", "go")]);
        assert_eq!(stage.run(half), Err(Rejection::TaskNotFound));
        assert_eq!(stage.mailbox(), None);
        stage.must(crate::command::Create::one(new_task("u")));
        let all = post(&[to("u", "a"), to("t", "a"), to("t", "go"), to("t", "go"), to("u", "b")]);
        let Outcome::Posted(answers) = stage.must(all) else { panic!() };
        let answers: Vec<_> = answers.iter().map(|a| (a.task.as_str(), a.seq, a.resumed)).collect();
        let expected =
            [("u", 1, false), ("t", 1, false), ("t", 2, true), ("t", 3, false), ("u", 2, false)];
        assert_eq!(answers, expected);
        let resumption = stage.task("t").unwrap().resumption.unwrap();
        assert_eq!((resumption.cause, resumption.messages), (ResumeCause::Signals, vec![2]));
        for none in [post(&[]), post(&vec![to("t", "a"); 1_001])] {
            assert_eq!(stage.run(none).unwrap_err().code(), "invalid");
        }
    }

    #[test]
    fn a_mailbox_is_limited_in_messages_and_bytes() {
        let mut stage = Stage::with_task("waiting");
        let many = Post { tenant: Tenant::default(), messages: vec![message("a"); 999] };
        stage.must(many);
        stage.must(Post::one(message("a")));
        assert_eq!(posted(&mut stage, message("a")), Err("mailbox_full"));
        let mut stage = Stage::with_task("waiting");
        let large =
            NewMessage { payload: Some(Payload::new("a/b", vec![0; 256 * 1_024])), ..message("a") };
        for _ in 0..64 {
            stage.must(Post::one(large.clone()));
        }
        assert_eq!(posted(&mut stage, large), Err("mailbox_full"));
        assert!(posted(&mut stage, message("a")).is_ok(), "a message without a payload still fits");
        let (held, bytes) =
            stage.mailbox().map(|mailbox| (mailbox.messages, mailbox.bytes)).unwrap();
        assert_eq!((held, bytes), (65, 16 * 1_024 * 1_024));
    }

    #[test]
    fn a_delayed_message_resumes_its_task_when_visible() {
        let mut stage = Stage::with_task("suspended");
        let timer = NewMessage { after_ms: 5_000, ..message("go") };
        stage.must(Post::one(timer));
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
        stage.must(Post::one(NewMessage { after_ms: 5_000, ..message("a") }));
        stage.must(claim());
        let both = Condition::All(vec![Condition::signal("a"), Condition::signal("b")]);
        stage.must(Suspend::new(fence(1), both));
        stage.later(5_000);
        assert_eq!(posted(&mut stage, message("b")), Ok((2, false, true)));
        stage.must(Sweep::default());
        assert_eq!(stage.message(1).unwrap().due_at, None);
    }

    #[test]
    fn a_message_to_an_unreadable_mailbox_is_deferred() {
        let mut stage = Stage::with_task("suspended");
        stage.must(Post::one(NewMessage { after_ms: 5_000, ..message("go") }));
        stage.garble(&Mailbox::key_of(&Tenant::default(), &"t".into()));
        assert_eq!(posted(&mut stage, message("go")), Err("quarantined"));
        stage.later(5_000);
        stage.must(Sweep::default());
        assert_eq!(stage.message(1).unwrap().due_at, Some(stage.now.plus_ms(60_000)));
    }

    #[test]
    fn the_payload_is_retained_until_the_task_is_deleted() {
        let mut stage = Stage::with_task("waiting");
        let payload = Some(Payload::json("1"));
        stage.must(Post::one(NewMessage { payload: payload.clone(), ..message("go") }));
        let kept = stage.message(1).unwrap().payload_key().unwrap();
        assert_eq!(stage.tables.payload(&kept), payload.as_ref());
        stage.must(Claim { begin: false, ..claim() });
        stage.must(Cancel { task: key("t"), reason: "stop".into() });
        stage.must(DeleteTask { task: key("t") });
        assert_eq!(stage.tables.payloads().count(), 0);
        assert_eq!((stage.mailbox(), stage.message(1)), (None, None));
    }

    #[test]
    fn bad_input_is_refused_by_name() {
        let long = "x".repeat(256);
        let payload = Some(Payload::new("a/b", vec![0; 256 * 1_024 + 1]));
        let key = Some(IdempotencyWindow { key: "".into(), window_ms: 60_000 });
        let rows = [
            ("id", NewMessage::new("", "a", "b")),
            ("name", message("")),
            ("name", message(&long)),
            ("name", message("a\0")),
            ("source", NewMessage { source: long, ..message("a") }),
            ("delay_ms", NewMessage { after_ms: u64::MAX, ..message("a") }),
            ("payload in bytes", NewMessage { payload, ..message("a") }),
            ("idempotency_key", NewMessage { idempotency: key, ..message("a") }),
        ];
        for (named, new) in rows {
            match Stage::with_task("waiting").run(Post::one(new)) {
                Err(Rejection::Invalid { field, .. }) => assert_eq!(field, named),
                other => panic!("{named}: {other:?}"),
            }
        }
    }
}
