use serde::Serialize;

use crate::command::{Outcome, Transition};
use crate::name::WaitpointId;
use crate::primitive::{
    check_waitpoint, create_waitpoint, prefetch_waitpoints, require_lease, require_task,
};
use crate::rejection::Rejection;
use crate::task::{Fence, Task, TaskKey};
use crate::waitpoint::WaitpointState;
use crate::world::World;

/// Creates a waitpoint before the task waits for it: its message is stored until then.
///
/// Repeating the request returns the same token.
#[derive(Clone, Debug)]
pub struct CreateWaitpoint {
    pub task: TaskKey,
    /// The epoch of the lease holder; none for an operator.
    pub epoch: Option<u64>,
    pub waitpoint: NewWaitpoint,
}

/// The fields of a waitpoint to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewWaitpoint {
    pub id: WaitpointId,
    pub ttl_ms: u64,
}

impl CreateWaitpoint {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        check_waitpoint(&self.waitpoint)?;
        let current = match self.epoch {
            Some(epoch) => require_lease(world, &Fence { task: self.task.clone(), epoch })?.0,
            None => require_task(world, &self.task)?,
        };
        if current.lifecycle.ended_at().is_some() {
            return Err(Rejection::AlreadyTerminal { state: current.lifecycle.public() }.into());
        }
        prefetch_waitpoints(world, &current, &[&self.waitpoint.id]);
        let mut task = (*current).clone();
        let made = create_waitpoint(world, &mut task, &self.waitpoint, WaitpointState::Pending)?;
        if task.has_mailbox != current.has_mailbox {
            world.put::<Task>(task);
        }
        Ok(Outcome::WaitpointCreated(made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Create, CreatedWaitpoint, SendMessages};
    use crate::limits;
    use crate::name::Tenant;
    use crate::testing::{Args, Stage, check_task, key, message, new_task, rotation};
    use crate::waitpoint::Waitpoint;

    fn command(args: &Args) -> CreateWaitpoint {
        let id = args.text("id", "p").as_str().into();
        let waitpoint = NewWaitpoint { id, ttl_ms: args.number("ms", 60_000) };
        let epoch = (!args.has("operator")).then(|| args.fence().epoch);
        CreateWaitpoint { task: key("t"), epoch, waitpoint }
    }

    fn seeded(state: &str) -> Stage {
        let mut stage = Stage::with_task(state);
        stage.seed();
        stage
    }

    #[test]
    fn table() {
        check_task(
            "
            absent    |          | absent          | ! task_not_found |
            absent    | operator | absent          | ! task_not_found |
            waiting   |          | waiting e0 a0   | ! stale_fence    |
            waiting   | operator | waiting e0 a0   | p until +60000   | waitpoint_created
            delayed   | operator | delayed e0 a0   | p until +60000   | waitpoint_created
            claimed   |          | claimed e1 a0   | p until +60000   | waitpoint_created
            active    |          | active e1 a1    | p until +60000   | waitpoint_created
            active    | epoch=2  | active e1 a1    | ! stale_fence    |
            active    | id=      | active e1 a1    | ! invalid        |
            active    | id=a.b   | active e1 a1    | ! invalid        |
            active    | ms=999   | active e1 a1    | ! invalid        |
            lease_expired    |          | active e1 a1    | ! lease_expired  |
            completed |          | completed e1 a1 | ! already_terminal |
            completed | operator | completed e1 a1 | ! already_terminal |
            failed    | operator | failed e1 a1    | ! already_terminal |
            cancelled | operator | cancelled e1 a1 | ! already_terminal |
            expired   | operator | expired e1 a1   | ! already_terminal |
            suspended |          | suspended e1 a1 | ! not_leased     |
            suspended | operator | suspended e1 a1 | p until +60000   | waitpoint_created
            resumable | operator | resumable e1 a1 | p until +60000   | waitpoint_created
            waiting_children | operator | waiting_children e1 a1 | p until +60000 | waitpoint_created
            blocked   | operator | blocked e0 a0   | p until +60000   | waitpoint_created
            owned     | operator | owned e0 a0     | p until +60000   | waitpoint_created
            granted   | operator | granted e0 a0   | p until +60000   | waitpoint_created
            ",
            command,
        );
    }

    fn make(
        stage: &mut Stage,
        task: &str,
        id: &str,
        ms: u64,
    ) -> Result<CreatedWaitpoint, &'static str> {
        let waitpoint = NewWaitpoint { id: id.into(), ttl_ms: ms };
        match stage.run(CreateWaitpoint { task: key(task), epoch: None, waitpoint }) {
            Ok(Outcome::WaitpointCreated(made)) => Ok(made),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => Err(rejection.code()),
        }
    }

    #[test]
    fn without_a_signing_key_no_token_is_issued() {
        let mut stage = Stage::with_task("active");
        assert_eq!(make(&mut stage, "t", "p", 60_000), Err("no_signing_key"));
        stage.seed();
        assert!(make(&mut stage, "t", "p", 60_000).is_ok());
    }

    #[test]
    fn a_repeated_request_returns_the_same_waitpoint() {
        let mut stage = seeded("active");
        let first = make(&mut stage, "t", "p", 60_000).unwrap();
        stage.later(10_000);
        stage.must(rotation("k2", "08"));
        let before = stage.tables.clone();
        assert_eq!(make(&mut stage, "t", "p", 60_000), Ok(first.clone()), "also under another key");
        assert_eq!(make(&mut stage, "t", "p", 50_000), Err("conflict"));
        assert_eq!(stage.tables, before);
        stage.must(Create::one(new_task("u")));
        assert_eq!(make(&mut stage, "u", "p", 60_000), Err("conflict"), "of another task");
        stage.later(50_000);
        let fresh = make(&mut stage, "t", "p", 90_000).unwrap();
        assert_ne!(fresh.token, first.token, "it had expired unused");
        assert_eq!(stage.mailbox().unwrap().waitpoints, 1);
    }

    #[test]
    fn a_mailbox_is_created_with_the_first_message_or_waitpoint() {
        let mut stage = seeded("active");
        assert!(!stage.task("t").unwrap().has_mailbox);
        make(&mut stage, "t", "p", 60_000).unwrap();
        assert!(stage.task("t").unwrap().has_mailbox);
        stage.must(SendMessages::one(message("a")));
        make(&mut stage, "t", "q", 60_000).unwrap();
        let mailbox = stage.mailbox().unwrap();
        assert_eq!((mailbox.messages, mailbox.waitpoints), (1, 2));
    }

    #[test]
    fn a_task_has_a_limited_number_of_waitpoints() {
        let mut stage = seeded("active");
        for n in 0..limits::WAITPOINTS_PER_TASK {
            make(&mut stage, "t", &format!("p{n}"), 60_000).unwrap();
        }
        assert_eq!(make(&mut stage, "t", "one-more", 60_000), Err("too_many_waitpoints"));
        assert!(make(&mut stage, "t", "p7", 60_000).is_ok());
        let id = "p7".into();
        let waitpoint =
            stage.record::<Waitpoint>(&Waitpoint::key_of(&Tenant::default(), &id)).unwrap();
        assert_eq!(waitpoint.state, WaitpointState::Pending);
    }
}
