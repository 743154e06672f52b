use crate::command::{Outcome, Transition};
use crate::digest::Digester;
use crate::event::{Change, Event};
use crate::limits;
use crate::primitive::{
    await_messages, earlier_settle, end_lease, redeliver, require_lease, require_task,
    without_in_flight,
};
use crate::rejection::Rejection;
use crate::task::{Fence, Lifecycle, Settle, Settled};
use crate::world::World;

/// Returns a workflow turn without committing it. The in-flight messages of its lease are
/// redelivered: at once, or after a delay in which other messages may be delivered.
#[derive(Clone, Debug)]
pub struct AbandonTurn {
    pub fence: Fence,
    pub delay_ms: u64,
    /// Raises the delivery count of these messages.
    pub count_delivery: bool,
}

impl AbandonTurn {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::DELAY_MS.check(self.delay_ms)?;
        let digest =
            Digester::new("abandon_turn").json(&(self.delay_ms, self.count_delivery)).finish();
        let current = require_task(world, &self.fence.task)?;
        if let Some(settled) = earlier_settle(&current, self.fence.epoch, digest)? {
            return Ok(Outcome::Settled(settled));
        }
        let own = current.epoch == self.fence.epoch;
        let lost = current.lifecycle.readiness().and_then(|ready| ready.lost_epoch);
        if own && current.workflow.is_some() && lost == Some(self.fence.epoch) {
            // The lease expired and was swept, which counted the delivery.
            return Ok(Outcome::Settled(Settled::Released));
        }
        let lease = match &current.lifecycle {
            // The lease may have expired: no other worker has claimed the workflow since.
            Lifecycle::Active(lease) if own => lease.clone(),
            _ => require_lease(world, &self.fence)?.1,
        };
        if current.workflow.is_none() {
            return Err(Rejection::NotAWorkflow.into());
        }
        let attempt = lease.attempt.clone().ok_or(Rejection::NotBegun)?;
        redeliver(world, &current, &lease.in_flight, Some(self.delay_ms), self.count_delivery)?;
        let mut task = without_in_flight(&current);
        end_lease(world, &task)?;
        let (epoch, settled) = (self.fence.epoch, Settled::Released);
        task.last_settle = Some(Settle { epoch, digest, result: settled.clone() });
        world.emit(Event::of_task(&task, world.now(), Change::Released { epoch }));
        await_messages(world, task, &attempt)?;
        Ok(Outcome::Settled(settled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Claim, CommitTurn, IfAbsent, NewMessage, NewTask, NewWorkflow, Release, SendMessages,
        Sweep, TurnEnd,
    };
    use crate::mailbox::{Mailbox, Message};
    use crate::name::Tenant;
    use crate::testing::{Stage, check_task, claim, fence, lane};

    #[test]
    fn table() {
        check_task(
            "
            absent    |         | absent          | ! task_not_found    |
            waiting   |         | waiting e0 a0   | ! stale_fence       |
            delayed   |         | delayed e0 a0   | ! stale_fence       |
            granted   |         | granted e0 a0   | ! stale_fence       |
            claimed   |         | claimed e1 a0   | ! not_a_workflow    |
            active    |         | active e1 a1    | ! not_a_workflow    |
            active    | epoch=2 | active e1 a1    | ! stale_fence       |
            active    | ms=999999999999 | active e1 a1 | ! invalid       |
            lease_expired    |         | active e1 a1    | ! not_a_workflow    |
            completed |         | completed e1 a1 | ! already_settled |
            failed    |         | failed e1 a1    | ! already_settled |
            cancelled |         | cancelled e1 a1 | ! already_terminal  |
            expired   |         | expired e1 a1   | ! already_terminal  |
            suspended |         | suspended e1 a1 | ! already_settled |
            resumable |         | resumable e1 a1 | ! already_settled |
            waiting_children | | waiting_children e1 a1 | ! already_settled |
            blocked   | | blocked e0 a0 | ! stale_fence |
            owned     | | owned e0 a0    | ! stale_fence |
            ",
            |args| AbandonTurn {
                fence: args.fence(),
                delay_ms: args.number("ms", 0),
                count_delivery: true,
            },
        );
    }

    fn send(name: &str, start: bool) -> SendMessages {
        let workflow = Some(NewWorkflow::default());
        let new = NewTask { lane: lane(), workflow, ..NewTask::new("t", "order") };
        let if_absent = if start { IfAbsent::Start(Box::new(new)) } else { IfAbsent::Reject };
        SendMessages::one(NewMessage { if_absent, ..NewMessage::new("t", name, "ops") })
    }

    /// A workflow whose first lease has one message in flight.
    fn received() -> Stage {
        let mut stage = Stage::new();
        stage.must(send("first", true));
        take(&mut stage);
        stage
    }

    fn take(stage: &mut Stage) -> Vec<u64> {
        stage.must(Claim { deliver_messages: true, ..claim() });
        match stage.task("t").expect("it exists").lifecycle {
            Lifecycle::Active(lease) => lease.in_flight,
            _ => Vec::new(),
        }
    }

    fn attempts(stage: &Stage, seq: u64) -> u32 {
        let key = Message::key_of(&Tenant::default(), &"t".into(), seq);
        stage.record::<Message>(&key).expect("it exists").delivery_count
    }

    fn hidden(stage: &Stage) -> u32 {
        let key = Mailbox::key_of(&Tenant::default(), &"t".into());
        stage.record::<Mailbox>(&key).expect("it exists").hidden
    }

    fn decline(nth: u64, delay_ms: u64, count_delivery: bool) -> AbandonTurn {
        AbandonTurn { fence: fence(nth), delay_ms, count_delivery }
    }

    #[test]
    fn in_flight_messages_are_redelivered_and_counted() {
        let mut stage = received();
        stage.must(decline(1, 0, true));
        stage.must(decline(1, 0, true));
        assert_eq!(attempts(&stage, 1), 1, "a repeat gets the same response");
        assert_eq!(take(&mut stage), vec![1]);
        stage.must(decline(2, 0, false));
        assert_eq!(attempts(&stage, 1), 1);
        assert_eq!(take(&mut stage), vec![1]);
        stage.must(Release { fence: fence(3) });
        assert_eq!(attempts(&stage, 1), 1, "a released message was not delivered");
        assert_eq!(take(&mut stage), vec![1]);
        stage.later(30_000);
        stage.must(Sweep::default());
        assert_eq!(attempts(&stage, 1), 2, "a lost lease counts");
        assert_eq!(take(&mut stage), vec![1]);
    }

    #[test]
    fn an_expired_turn_can_be_abandoned_until_it_is_claimed_again() {
        let mut stage = received();
        stage.later(30_000);
        stage.must(decline(1, 5_000, true));
        assert_eq!((attempts(&stage, 1), hidden(&stage)), (1, 1), "as if it were in time");
        stage.later(5_000);
        stage.must(Sweep::default());
        take(&mut stage);
        stage.later(30_000);
        stage.must(Sweep::default());
        stage.must(decline(2, 5_000, true));
        assert_eq!((attempts(&stage, 1), hidden(&stage)), (2, 0), "the sweep had ended the lease");
        take(&mut stage);
        assert_eq!(stage.run(decline(2, 0, true)).unwrap_err().code(), "stale_fence");
    }

    #[test]
    fn only_in_flight_messages_are_delayed() {
        let mut stage = received();
        stage.must(send("second", false));
        stage.must(decline(1, 5_000, true));
        assert_eq!((take(&mut stage), hidden(&stage)), (vec![2], 1));
        stage.must(decline(2, 0, true));
        stage.later(5_000);
        stage.must(Sweep::default());
        assert_eq!((take(&mut stage), hidden(&stage)), (vec![1, 2], 0));
        assert_eq!((attempts(&stage, 1), attempts(&stage, 2)), (1, 1));
    }

    #[test]
    fn a_workflow_without_visible_messages_is_suspended() {
        let mut stage = received();
        stage.must(decline(1, 5_000, true));
        let state = |stage: &Stage| stage.task("t").unwrap().lifecycle.public().as_str();
        assert_eq!(state(&stage), "suspended");
        stage.must(send("second", false));
        assert_eq!(state(&stage), "resumable");
    }

    #[test]
    fn a_turn_consumes_its_in_flight_messages() {
        let mut stage = received();
        stage.must(send("second", false));
        stage.must(CommitTurn {
            fence: fence(1),
            turn: 0,
            row: None,
            consumed: vec![1],
            commands: Vec::new(),
            next_step: 0,
            end: TurnEnd::Yield,
            sticky_ms: None,
            eager: None,
            metadata: None,
        });
        assert_eq!(attempts(&stage, 2), 0, "it was not in flight");
        assert_eq!(take(&mut stage), vec![2]);
        assert_eq!(stage.task("t").unwrap().attempts, 1, "it is the same attempt");
    }
}
