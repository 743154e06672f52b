use crate::command::{Create, NewTask, Outcome, Posted, Start, Transition};
use crate::limits;
use crate::mailbox::Mailbox;
use crate::name::{TaskId, Tenant};
use crate::payload::Payload;
use crate::primitive::{
    Delivered, MessageContent, deliver_outgoing, keep, prefetch_keep, require_task, transition_to,
};
use crate::rejection::Rejection;
use crate::task::{Task, TaskKey};
use crate::time::Timestamp;
use crate::world::{Halt, World};

/// Sends a message to a task, and creates the task if asked to.
#[derive(Clone, Debug)]
pub struct Send {
    pub tenant: Tenant,
    pub message: OutgoingMessage,
}

/// A message that may create its task or be buffered for it. It may be as long as any payload.
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    pub task: TaskId,
    pub name: String,
    pub source: String,
    pub payload: Option<Payload>,
    /// When it becomes visible.
    pub visible: Start,
    pub absent: Absent,
}

/// What to do with a message whose task does not exist.
#[derive(Clone, Debug)]
pub enum Absent {
    Refuse,
    /// Buffers it for the task for this time.
    Keep {
        ms: u64,
    },
    /// Creates the task, under the id that the message names.
    Create(Box<NewTask>),
}

impl Send {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        prefetch_outgoing(world, &self.tenant, &self.message);
        send(world, &self.tenant, &self.message).map(|posted| Outcome::Posted(vec![posted]))
    }
}

impl OutgoingMessage {
    fn check(&self, now: Timestamp) -> Result<(), Rejection> {
        limits::TASK_ID.check(self.task.as_str())?;
        match &self.absent {
            Absent::Refuse => Ok(()),
            Absent::Keep { ms } => limits::KEEP_MS.check(*ms),
            Absent::Create(new) => new.check(now),
        }
    }
}

/// Requests the rows that [`send`] needs. Invalid names are not looked up.
pub(super) fn prefetch_outgoing(world: &mut World, tenant: &Tenant, message: &OutgoingMessage) {
    if message.check(world.now()).is_err() {
        return;
    }
    world.prefetch(Mailbox::key_of(tenant, &message.task));
    match &message.absent {
        Absent::Refuse => {}
        Absent::Keep { .. } => prefetch_keep(world, tenant),
        Absent::Create(new) => {
            let create = Create { tenant: tenant.clone(), tasks: Vec::new() };
            create.prefetch(world, new, &new.route());
        }
    }
    world.prefetch(TaskKey::new(tenant, &message.task).row_key());
}

pub(super) fn send(
    world: &mut World,
    tenant: &Tenant,
    message: &OutgoingMessage,
) -> Result<Posted, Halt> {
    let now = world.now();
    let after_ms = match message.visible {
        Start::Now => 0,
        Start::After { ms } => ms,
        Start::At { at } => now.ms_until(at),
    };
    let content = MessageContent {
        name: &message.name,
        source: &message.source,
        waitpoint: None,
        after_ms,
        payload: message.payload.as_ref(),
    };
    message.check(now)?;
    content.check_outgoing()?;
    let key = TaskKey::new(tenant, &message.task);
    if world.get::<Task>(&key.row_key())?.is_none() {
        match &message.absent {
            Absent::Refuse => {}
            Absent::Keep { ms } => {
                let seq = keep(world, (tenant, &message.task), &content, *ms, None)?;
                let task = message.task.clone();
                return Ok(Posted { task, seq, duplicate: false, resumed: false, kept: true });
            }
            Absent::Create(new) => make(world, tenant, &message.task, new)?,
        }
    }
    let known = require_task(world, &key)?;
    let Delivered { seq, resumed } = deliver_outgoing(world, &known, &content)?;
    Ok(Posted { task: message.task.clone(), seq, duplicate: false, resumed, kept: false })
}

fn make(world: &mut World, tenant: &Tenant, id: &TaskId, new: &NewTask) -> Result<(), Halt> {
    let create = Create { tenant: tenant.clone(), tasks: Vec::new() };
    let new = NewTask { id: id.clone(), ..new.clone() };
    match create.make(world, &new, None)? {
        Some(made) => transition_to(world, made),
        None => Err(Rejection::Conflict.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, NewWorkflow};
    use crate::mailbox::Message;
    use crate::task::Lifecycle;
    use crate::testing::{Args, Stage, check_task, claim, key, lane, new_task};

    fn message() -> OutgoingMessage {
        OutgoingMessage {
            task: "t".into(),
            name: "go".into(),
            source: "ops".into(),
            payload: Some(Payload::json("1")),
            visible: Start::Now,
            absent: Absent::Refuse,
        }
    }

    fn to_t(message: OutgoingMessage) -> Send {
        Send { tenant: Tenant::default(), message }
    }

    fn command(args: &Args) -> Send {
        let visible = match args.number("after", 0) {
            0 => Start::Now,
            ms => Start::After { ms },
        };
        let absent = match args.number("keep", 0) {
            0 if args.has("create") => Absent::Create(Box::new(new_task("another name"))),
            0 => Absent::Refuse,
            ms => Absent::Keep { ms },
        };
        to_t(OutgoingMessage { name: args.text("name", "go"), visible, absent, ..message() })
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |            | absent          | ! task_not_found |
            absent    | keep=60000 | absent          | posted 1         |
            absent    | keep=1     | absent          | ! invalid        |
            absent    | create     | waiting e0 a0   | posted 1         | signaled
            absent    | create after=5000 | waiting e0 a0 | posted 1      | signaled
            waiting   |            | waiting e0 a0   | posted 1         | signaled
            waiting   | create     | waiting e0 a0   | posted 1         | signaled
            waiting   | name=      | waiting e0 a0   | ! invalid        |
            waiting   | after=5000 | waiting e0 a0   | posted 1         | signaled
            delayed   |            | delayed e0 a0   | posted 1         | signaled
            claimed   |            | claimed e1 a0   | posted 1         | signaled
            active    |            | active e1 a1    | posted 1         | signaled
            lapsed    |            | active e1 a1    | posted 1         | signaled
            completed |            | completed e1 a1 | ! ended          |
            completed | create     | completed e1 a1 | ! ended          |
            failed    |            | failed e1 a1    | ! ended          |
            cancelled |            | cancelled e1 a1 | ! ended          |
            expired   |            | expired e1 a1   | ! ended          |
            suspended |            | resumable e1 a1 | resumed 1        | signaled resumed
            suspended | name=other | suspended e1 a1 | posted 1         | signaled
            suspended | after=5000 | suspended e1 a1 | posted 1         | signaled
            resumable |            | resumable e1 a1 | posted 2         | signaled
            waiting_children | | waiting_children e1 a1 | posted 1 | signaled
            gated     | | blocked e0 a0 | posted 1 | signaled
            reserved  | | reserved e0 a0 | posted 1 | signaled
            granted   | | granted e0 a0 | posted 1 | signaled
            ",
            command,
        );
    }

    #[test]
    fn a_created_workflow_receives_the_messages_buffered_for_it() {
        let mut stage = Stage::new();
        let early = OutgoingMessage { absent: Absent::Keep { ms: 60_000 }, ..message() };
        stage.must(to_t(early));
        let workflow = Some(NewWorkflow::default());
        let new = NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") };
        stage.must(to_t(OutgoingMessage { absent: Absent::Create(Box::new(new)), ..message() }));
        stage.must(Claim { receives: true, ..claim() });
        let Lifecycle::Active(lease) = stage.task("t").unwrap().lifecycle else { panic!() };
        assert_eq!(lease.in_flight, vec![1, 2]);
    }

    #[test]
    fn a_message_is_visible_at_its_time() {
        let mut stage = Stage::with_task("waiting");
        let at = stage.now.plus_ms(7);
        stage.must(to_t(OutgoingMessage { visible: Start::At { at }, ..message() }));
        stage.must(to_t(OutgoingMessage { visible: Start::At { at: stage.now }, ..message() }));
        let due = |seq| {
            let key = Message::key_of(&Tenant::default(), &"t".into(), seq);
            stage.record::<Message>(&key).expect("it was sent").due_at
        };
        assert_eq!((due(1), due(2)), (Some(at), None));
    }

    #[test]
    fn a_workflow_accepts_many_and_long_messages() {
        let mut stage = Stage::new();
        let workflow = Some(NewWorkflow::default());
        let create = NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") };
        let absent = Absent::Create(Box::new(create));
        let long = Payload::new("text/plain", vec![b'x'; 300 * 1_024]);
        stage.must(to_t(OutgoingMessage { absent, payload: Some(long.clone()), ..message() }));
        for _ in 0..limits::MAILBOX_MESSAGES {
            stage.must(to_t(message()));
        }
        let mut other = Stage::with_task("waiting");
        other.must(to_t(OutgoingMessage { payload: Some(long), ..message() }));
        for _ in 1..limits::MAILBOX_MESSAGES {
            other.must(to_t(message()));
        }
        let refused = other.run(to_t(message())).unwrap_err();
        assert_eq!(refused.code(), "mailbox_full", "a condition is decided over all of these");
    }

    #[test]
    fn received_messages_are_recorded_in_the_lease() {
        let mut stage = Stage::with_task("waiting");
        stage.must(to_t(message()));
        stage.must(to_t(OutgoingMessage { visible: Start::After { ms: 50 }, ..message() }));
        stage.must(to_t(message()));
        let outcome = stage.must(Claim { receives: true, ..claim() });
        let Outcome::Claimed(tasks) = outcome else { panic!("{outcome:?}") };
        let task = stage.task("t").expect("it is leased");
        assert_eq!(*tasks[0], task);
        let Lifecycle::Active(lease) = &task.lifecycle else { panic!("{task:?}") };
        assert_eq!(lease.in_flight, vec![1, 3]);
        assert_eq!(task.task_key(), key("t"));
    }
}
