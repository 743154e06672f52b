use crate::command::{Create, NewTask, Outcome, Posted, Start, Transition};
use crate::limits;
use crate::mailbox::Mailbox;
use crate::name::{TaskId, Tenant};
use crate::payload::Payload;
use crate::primitive::{Letter, deliver_parcel, join, place, task};
use crate::rejection::Rejection;
use crate::task::{Lifecycle, Task, TaskKey};
use crate::world::{Halt, World};

/// Sends a message to a task, which may be made for it.
#[derive(Clone, Debug)]
pub struct Send {
    pub tenant: Tenant,
    pub parcel: Parcel,
}

/// A message that brings its task along, if there is none yet. It may be as long as any payload.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub task: TaskId,
    pub name: String,
    pub source: String,
    pub payload: Option<Payload>,
    /// When it is visible.
    pub visible: Start,
    /// The task to be made where there is none. Without it, none is.
    pub create: Option<Box<NewTask>>,
}

impl Send {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::TASK_ID.check(self.parcel.task.as_str())?;
        prefetch_parcel(world, &self.tenant, &self.parcel);
        send(world, &self.tenant, &self.parcel).map(|posted| Outcome::Posted(vec![posted]))
    }
}

/// Asks for what [`send`] needs.
pub(super) fn prefetch_parcel(world: &mut World, tenant: &Tenant, parcel: &Parcel) {
    world.prefetch(Mailbox::key_of(tenant, &parcel.task));
    if let Some(new) = &parcel.create {
        let create = Create { tenant: tenant.clone(), tasks: Vec::new() };
        create.prefetch(world, new, &new.route());
    }
    world.prefetch(TaskKey::new(tenant, &parcel.task).row_key());
}

pub(super) fn send(world: &mut World, tenant: &Tenant, parcel: &Parcel) -> Result<Posted, Halt> {
    let now = world.now();
    let after_ms = match parcel.visible {
        Start::Now => 0,
        Start::After { ms } => ms,
        Start::At { at } => now.ms_until(at),
    };
    let letter = Letter {
        name: &parcel.name,
        source: &parcel.source,
        waitpoint: None,
        after_ms,
        payload: parcel.payload.as_ref(),
    };
    letter.check_parcel()?;
    let key = TaskKey::new(tenant, &parcel.task);
    let known = world.get::<Task>(&key.row_key())?;
    match (&known, &parcel.create) {
        (None, Some(new)) => {
            let create = Create { tenant: tenant.clone(), tasks: Vec::new() };
            let new = NewTask { id: parcel.task.clone(), ..(**new).clone() };
            let made = create.make(world, &new, None)?;
            place(world, made.ok_or(Halt::Rejected(Rejection::Conflict))?)?;
        }
        (Some(known), Some(new)) => adopt(world, known, new)?,
        (_, None) => {}
    }
    let known = task(world, &key)?;
    let delivered = deliver_parcel(world, &known, &letter)?;
    Ok(Posted {
        task: parcel.task.clone(),
        seq: delivered.seq,
        duplicate: false,
        resumed: delivered.resumed,
    })
}

/// A workflow that was made by what came before its start is the child of whoever starts it.
fn adopt(world: &mut World, known: &Task, new: &NewTask) -> Result<(), Halt> {
    let waits = matches!(known.lifecycle, Lifecycle::Suspended(_)) && known.claims == 0;
    let Some(parent) = new.parent.as_ref().filter(|_| waits && known.parent.is_none()) else {
        return Ok(());
    };
    join(world, &known.tenant, parent)?;
    world.put::<Task>(Task { parent: Some(parent.clone()), ..known.clone() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Claim, NewWorkflow};
    use crate::mailbox::Message;
    use crate::testing::{Args, Stage, check_task, claim, key, lane, new_task};

    fn parcel() -> Parcel {
        Parcel {
            task: "t".into(),
            name: "go".into(),
            source: "ops".into(),
            payload: Some(Payload::json("1")),
            visible: Start::Now,
            create: None,
        }
    }

    fn to_t(parcel: Parcel) -> Send {
        Send { tenant: Tenant::default(), parcel }
    }

    fn command(args: &Args) -> Send {
        let visible = match args.number("after", 0) {
            0 => Start::Now,
            ms => Start::After { ms },
        };
        let create = args.has("create").then(|| Box::new(new_task("another name")));
        to_t(Parcel { name: args.text("name", "go"), visible, create, ..parcel() })
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |            | absent          | ! task_not_found |
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
    fn a_workflow_starts_with_the_message_that_it_awaits() {
        let mut stage = Stage::new();
        stage.must(Create::one(NewTask { lane: "p".into(), ..NewTask::new("p", "order") }));
        let awaits = || Some(NewWorkflow { awaits: Some("start".into()), version: None });
        let child = NewTask { lane: lane(), workflow: awaits(), ..NewTask::new("t", "order") };
        let started = NewTask { parent: Some("p".into()), ..child.clone() };
        let sent = |name: &str, new: &NewTask| {
            let create = Some(Box::new(new.clone()));
            to_t(Parcel { name: name.into(), create, ..parcel() })
        };
        let state = |stage: &Stage| stage.task("t").unwrap().lifecycle.public().as_str();
        stage.must(sent("early", &child));
        assert_eq!(state(&stage), "suspended");
        stage.must(sent("start", &started));
        assert_eq!(state(&stage), "resumable");
        let known = stage.task("t").unwrap();
        assert_eq!((known.parent.as_ref(), known.attempts), (Some(&"p".into()), 1));
        stage.must(sent("start", &child));
        stage.must(Claim { receives: true, ..claim() });
        let Lifecycle::Active(lease) = stage.task("t").unwrap().lifecycle else { panic!() };
        assert_eq!(lease.received, vec![1, 2, 3]);
        assert_eq!(stage.task("t").unwrap().attempts, 1);
    }

    #[test]
    fn a_message_is_visible_at_its_time() {
        let mut stage = Stage::with_task("waiting");
        let at = stage.now.plus_ms(7);
        stage.must(to_t(Parcel { visible: Start::At { at }, ..parcel() }));
        stage.must(to_t(Parcel { visible: Start::At { at: stage.now }, ..parcel() }));
        let due = |seq| {
            let key = Message::key_of(&Tenant::default(), &"t".into(), seq);
            stage.record::<Message>(&key).expect("it was sent").due_at
        };
        assert_eq!((due(1), due(2)), (Some(at), None));
    }

    #[test]
    fn a_workflow_has_room_for_many_and_for_long_ones() {
        let mut stage = Stage::new();
        let workflow = Some(NewWorkflow::default());
        let create = NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") };
        let create = Some(Box::new(create));
        let long = Payload::new("text/plain", vec![b'x'; 300 * 1_024]);
        stage.must(to_t(Parcel { create, payload: Some(long.clone()), ..parcel() }));
        for _ in 0..limits::MAILBOX_MESSAGES {
            stage.must(to_t(parcel()));
        }
        let mut other = Stage::with_task("waiting");
        other.must(to_t(Parcel { payload: Some(long), ..parcel() }));
        for _ in 1..limits::MAILBOX_MESSAGES {
            other.must(to_t(parcel()));
        }
        let refused = other.run(to_t(parcel())).unwrap_err();
        assert_eq!(refused.code(), "mailbox_full", "a condition is decided over all of these");
    }

    #[test]
    fn what_is_received_is_known_under_the_lease() {
        let mut stage = Stage::with_task("waiting");
        stage.must(to_t(parcel()));
        stage.must(to_t(Parcel { visible: Start::After { ms: 50 }, ..parcel() }));
        stage.must(to_t(parcel()));
        let outcome = stage.must(Claim { receives: true, ..claim() });
        let Outcome::Claimed(tasks) = outcome else { panic!("{outcome:?}") };
        let task = stage.task("t").expect("it is leased");
        assert_eq!(*tasks[0], task);
        let Lifecycle::Active(lease) = &task.lifecycle else { panic!("{task:?}") };
        assert_eq!(lease.received, vec![1, 3]);
        assert_eq!(task.task_key(), key("t"));
    }
}
