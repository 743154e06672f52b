use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use crate::command::{CreatedWaitpoint, NewWaitpoint, Outcome, Transition};
use crate::digest::{Digest, Digester};
use crate::event::{Change, Event};
use crate::limits;
use crate::name::WaitpointId;
use crate::primitive::{
    activate, check_waitpoint, create_waitpoint, earlier_settle, end_lease, mark_resuming,
    matching_messages, prefetch_waitpoints, require_lease, require_task, signed_waitpoint,
    transition_to,
};
use crate::rejection::{Problem, Rejection};
use crate::task::{
    ActiveAttempt, Condition, Fence, Lifecycle, OnTimeout, ResumeCause, Resumption, Settle,
    Settled, SuspendReason, SuspendRequest, Suspension, Task, Timeout,
};
use crate::waitpoint::{Waitpoint, WaitpointState};
use crate::world::{Halt, World};

/// Ends a lease until a condition over the mailbox is met; the next claim then resumes the attempt.
/// When it is met already, the lease stays.
#[derive(Clone, Debug)]
pub struct Suspend {
    pub fence: Fence,
    pub condition: Condition,
    pub reason: SuspendReason,
    pub timeout: Option<SuspendTimeout>,
    /// Created with the suspension.
    pub waitpoints: Vec<NewWaitpoint>,
    /// Numbers the requests under one lease, so that a repeated request gets the same response.
    pub nth: u32,
}

/// When a suspension times out, and what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SuspendTimeout {
    pub after_ms: u64,
    pub action: OnTimeout,
}

impl Suspend {
    /// A suspension without a timeout.
    pub fn new(fence: Fence, condition: Condition) -> Self {
        let (reason, timeout) = (SuspendReason::default(), None);
        Self { fence, condition, reason, timeout, waitpoints: Vec::new(), nth: 0 }
    }

    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.check()?;
        let digest = self.digest();
        let task = require_task(world, &self.fence.task)?;
        prefetch_waitpoints(world, &task, &self.named().into_iter().collect::<Vec<_>>());
        if earlier_settle(&task, self.fence.epoch, digest)?.is_some() {
            return self.again(world);
        }
        let (task, lease) = require_lease(world, &self.fence)?;
        let request = SuspendRequest { epoch: self.fence.epoch, nth: self.nth, digest };
        if let Some(resumption) = satisfied_before(&task, request)? {
            return Ok(Outcome::AlreadySatisfied(resumption));
        }
        let attempt = lease.attempt.ok_or(Rejection::NotBegun)?;
        match matching_messages(world, &task, &self.condition, attempt.began_at)? {
            Some(seqs) => keep_lease(world, &task, &attempt, request, seqs),
            None => self.suspend(world, &task, &attempt, digest),
        }
    }

    fn check(&self) -> Result<(), Rejection> {
        self.condition.check()?;
        if self.timeout.is_none() && self.condition.needs_timeout() {
            return Err(Rejection::Invalid { field: "timeout", problem: Problem::TimeoutRequired });
        }
        if let Some(timeout) = &self.timeout {
            limits::SUSPEND_MS.check(timeout.after_ms)?;
        }
        limits::SUSPEND_WAITPOINTS.check(self.waitpoints.len())?;
        let mut ids = BTreeSet::new();
        for waitpoint in &self.waitpoints {
            check_waitpoint(waitpoint)?;
            if !ids.insert(&waitpoint.id) {
                let (field, problem) = (limits::WAITPOINT_ID.field, Problem::Repeated);
                return Err(Rejection::Invalid { field, problem });
            }
        }
        Ok(())
    }

    fn digest(&self) -> Digest {
        let parts = (&self.condition, self.reason, self.timeout, &self.waitpoints, self.nth);
        Digester::new("suspend").json(&parts).finish()
    }

    /// Every waitpoint of the condition and of the request.
    fn named(&self) -> BTreeSet<&WaitpointId> {
        let made = self.waitpoints.iter().map(|waitpoint| &waitpoint.id);
        self.condition.waitpoints().into_iter().chain(made).collect()
    }

    /// The response of the first request, with the same tokens.
    fn again(&self, world: &mut World) -> Transition {
        let signed = |new: &NewWaitpoint| {
            let key = Waitpoint::key_of(&self.fence.task.tenant, &new.id);
            let missing = Rejection::WaitpointNotFound { id: new.id.clone() };
            let waitpoint = world.get::<Waitpoint>(&key)?.ok_or(missing)?;
            signed_waitpoint(world, &waitpoint)
        };
        let waitpoints: Result<Vec<CreatedWaitpoint>, Halt> =
            self.waitpoints.iter().map(signed).collect();
        Ok(Outcome::Suspended { waitpoints: waitpoints? })
    }

    fn suspend(
        &self,
        world: &mut World,
        current: &Task,
        attempt: &ActiveAttempt,
        digest: Digest,
    ) -> Transition {
        let now = world.now();
        let mut task = current.clone();
        let make =
            |new: &NewWaitpoint| create_waitpoint(world, &mut task, new, WaitpointState::Active);
        let waitpoints: Result<Vec<CreatedWaitpoint>, Halt> =
            self.waitpoints.iter().map(make).collect();
        let waitpoints = waitpoints?;
        for id in self.named() {
            activate(world, &task, id)?;
        }
        end_lease(world, current)?;
        let timeout = self
            .timeout
            .map(|timeout| Timeout { at: now.plus_ms(timeout.after_ms), action: timeout.action });
        task.lifecycle = Lifecycle::Suspended(Suspension {
            since: now,
            reason: self.reason,
            condition: self.condition.clone(),
            timeout,
            escalated_at: None,
            suspended_attempt: attempt.to_suspended(now),
        });
        let settled = Settled::Suspended;
        task.last_settle = Some(Settle { epoch: self.fence.epoch, digest, result: settled });
        let change = Change::Suspended { epoch: task.epoch, reason: self.reason };
        world.emit(Event::of_task(&task, now, change));
        transition_to(world, task)?;
        Ok(Outcome::Suspended { waitpoints })
    }
}

/// The response to the same request, if the condition was met then. A request older than the last
/// one is rejected: its holder has resumed since.
fn satisfied_before(task: &Task, request: SuspendRequest) -> Result<Option<Resumption>, Rejection> {
    let Some(resumption) = &task.resumption else { return Ok(None) };
    match resumption.request.filter(|last| last.epoch == request.epoch) {
        Some(last) if last == request => Ok(Some(resumption.clone())),
        Some(last) if request.nth <= last.nth => Err(Rejection::AlreadySettled),
        _ => Ok(None),
    }
}

/// Keeps the lease and records the messages that met the condition.
fn keep_lease(
    world: &mut World,
    task: &Arc<Task>,
    attempt: &ActiveAttempt,
    request: SuspendRequest,
    messages: Vec<u64>,
) -> Transition {
    let (now, cause) = (world.now(), ResumeCause::Signals);
    mark_resuming(world, task, &messages, attempt.began_at)?;
    let change = Change::Resumed { cause, messages: messages.clone(), by: None };
    world.emit(Event::of_task(task, now, change));
    let resumption = Resumption { at: now, cause, messages, request: Some(request) };
    world.put::<Task>(Task { resumption: Some(resumption.clone()), ..(**task).clone() });
    Ok(Outcome::AlreadySatisfied(resumption))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Claim, Command, Complete, CompleteWaitpoint, ConsumeMessages, CreateWaitpoint, Decided,
        Delay, Fail, NewMessage, Resume, SendMessages, decide,
    };
    use crate::lane::Lane;
    use crate::name::Tenant;
    use crate::task::{Distinct, FailureClass, Matcher, PublicState, Retry};
    use crate::testing::{Stage, check_task, claim, fence, key, lane, message};
    use crate::token::Token;
    use crate::world::Hints;

    #[test]
    fn table() {
        check_task(
            "
            absent    |             | absent          | ! task_not_found    |
            waiting   |             | waiting e0 a0   | ! stale_fence       |
            delayed   |             | delayed e0 a0   | ! stale_fence       |
            claimed   |             | claimed e1 a0   | ! not_begun         |
            active    |             | suspended e1 a1 | suspended 0         | suspended
            active    | epoch=2     | active e1 a1    | ! stale_fence       |
            active    | timeout=0   | active e1 a1    | ! invalid           |
            active    | on=p        | active e1 a1    | ! waitpoint_not_found |
            active    | with=p      | suspended e1 a1 | suspended 1 | waitpoint_created suspended
            active    | with=a.b    | active e1 a1    | ! invalid           |
            lease_expired    |             | active e1 a1    | ! lease_expired     |
            lease_expired    | policy=accept_expired_lease | suspended e1 a1 | suspended 0         | suspended
            completed |             | completed e1 a1 | ! already_settled |
            failed    |             | failed e1 a1    | ! already_settled |
            cancelled |             | cancelled e1 a1 | ! already_terminal  |
            expired   |             | expired e1 a1   | ! already_terminal  |
            suspended |             | suspended e1 a1 | suspended 0         |
            suspended | name=other  | suspended e1 a1 | ! already_settled |
            suspended | epoch=2     | suspended e1 a1 | ! stale_fence       |
            resumable |             | resumable e1 a1 | suspended 0         |
            resumable | epoch=2     | resumable e1 a1 | ! stale_fence       |
            waiting_children | | waiting_children e1 a1 | ! already_settled |
            blocked | | blocked e0 a0 | ! stale_fence |
            owned    | | owned e0 a0    | ! stale_fence |
            granted | | granted e0 a0 | ! stale_fence |
            ",
            |args| {
                let mut suspend =
                    Suspend::new(args.fence(), Condition::signal(args.text("name", "go")));
                if args.has("on") {
                    suspend.condition = Condition::waitpoint(args.text("on", ""));
                }
                if args.has("with") {
                    let id = args.text("with", "").into();
                    suspend.waitpoints = vec![NewWaitpoint { id, ttl_ms: 60_000 }];
                }
                if args.has("timeout") {
                    let (after_ms, action) = (args.number("timeout", 0), OnTimeout::Fail);
                    suspend.timeout = Some(SuspendTimeout { after_ms, action });
                }
                suspend
            },
        );
    }

    fn public(stage: &Stage) -> PublicState {
        stage.task("t").unwrap().lifecycle.public()
    }

    fn until(name: &str) -> Suspend {
        Suspend::new(fence(1), Condition::signal(name))
    }

    #[test]
    fn a_satisfied_condition_keeps_the_lease() {
        let mut stage = Stage::with_task("active");
        stage.must(SendMessages::one(message("go")));
        let Outcome::AlreadySatisfied(first) = stage.must(until("go")) else { panic!() };
        assert_eq!((first.messages.as_slice(), first.cause), (&[1][..], ResumeCause::Signals));
        assert_eq!(public(&stage), PublicState::Active);
        let before = stage.tables.clone();
        assert_eq!(stage.must(until("go")), Outcome::AlreadySatisfied(first), "a repeat");
        assert_eq!(stage.tables, before);
        let next = Suspend { nth: 1, ..until("go") };
        assert_eq!(stage.must(next), Outcome::Suspended { waitpoints: vec![] }, "it was taken");
        assert_eq!(stage.run(until("go")), Err(Rejection::AlreadySettled), "a late repeat");
    }

    #[test]
    fn an_outdated_suspend_request_is_rejected() {
        let mut stage = Stage::with_task("active");
        for name in ["a", "b"] {
            stage.must(SendMessages::one(message(name)));
        }
        stage.must(until("a"));
        stage.must(Suspend { nth: 1, ..until("b") });
        let rejected = stage.run(until("a"));
        assert_eq!(rejected, Err(Rejection::AlreadySettled), "its message is consumed");
        assert_eq!(public(&stage), PublicState::Active);
    }

    #[test]
    fn each_condition_is_evaluated_with_every_message() {
        let any = Matcher::default;
        let voted = Matcher { name: Some("yes".into()), ..any() };
        let rows: [(Condition, &[&str], usize); 5] = [
            (Condition::Signal(any()), &["a"], 1),
            (
                Condition::All(vec![Condition::signal("a"), Condition::signal("b")]),
                &["b", "b", "a"],
                3,
            ),
            (Condition::Any(vec![Condition::signal("a"), Condition::signal("b")]), &["c", "b"], 2),
            (Condition::Count { n: 2, distinct: Distinct::Names, of: any() }, &["a", "a", "b"], 3),
            (Condition::Count { n: 1, distinct: Distinct::Sources, of: voted }, &["no", "yes"], 2),
        ];
        for (condition, names, after) in rows {
            let mut stage = Stage::with_task("active");
            stage.must(Suspend::new(fence(1), condition.clone()));
            for (at, name) in names.iter().enumerate() {
                stage.must(SendMessages::one(message(name)));
                let expected =
                    if at + 1 < after { PublicState::Suspended } else { PublicState::Resumable };
                assert_eq!(public(&stage), expected, "{condition:?} with {:?}", &names[..=at]);
            }
            let mut stage = Stage::with_task("active");
            for name in names {
                stage.must(SendMessages::one(message(name)));
            }
            let outcome = stage.must(Suspend::new(fence(1), condition.clone()));
            assert!(matches!(outcome, Outcome::AlreadySatisfied(_)), "{condition:?}: {outcome:?}");
        }
    }

    #[test]
    fn a_message_counts_once_for_an_attempt_and_again_for_the_next() {
        let mut stage = Stage::with_task("resumable");
        stage.must(claim());
        let again =
            |nth, epoch| Suspend { nth, ..Suspend::new(fence(epoch), Condition::signal("go")) };
        assert_eq!(stage.must(again(0, 2)), Outcome::Suspended { waitpoints: vec![] });
        stage.must(Resume { task: key("t"), by: "ada".into() });
        stage.must(claim());
        let (class, reason) = (FailureClass::Transient, "no".into());
        stage.later(1);
        stage.must(Fail { fence: fence(3), class, reason, retry: Retry::After { ms: 0 } });
        stage.must(claim());
        let outcome = stage.must(again(0, 4));
        assert!(matches!(outcome, Outcome::AlreadySatisfied(_)), "{outcome:?}");
    }

    #[test]
    fn waitpoints_of_a_suspension_are_active_and_their_tokens_repeatable() {
        let mut stage = Stage::with_task("active");
        stage.seed();
        let new = |id: &str| NewWaitpoint { id: id.into(), ttl_ms: 60_000 };
        let pending = |id| crate::command::CreateWaitpoint {
            task: key("t"),
            epoch: None,
            waitpoint: new(id),
        };
        stage.must(pending("before"));
        stage.must(pending("aside"));
        let both = vec![Condition::waitpoint("with"), Condition::waitpoint("before")];
        let suspend = Suspend {
            waitpoints: vec![new("with")],
            ..Suspend::new(fence(1), Condition::All(both))
        };
        let Outcome::Suspended { waitpoints } = stage.must(suspend.clone()) else { panic!() };
        let state = |stage: &Stage, id: &str| {
            let key = Waitpoint::key_of(&Tenant::default(), &id.into());
            stage.record::<Waitpoint>(&key).unwrap().state
        };
        assert_eq!(state(&stage, "with"), WaitpointState::Active);
        assert_eq!(state(&stage, "before"), WaitpointState::Active);
        assert_eq!(state(&stage, "aside"), WaitpointState::Pending);
        stage.later(1_000);
        let again = stage.must(suspend);
        assert_eq!(again, Outcome::Suspended { waitpoints: waitpoints.clone() });
        let Outcome::WaitpointCreated(before) = stage.must(pending("before")) else { panic!() };
        for (at, token) in [&waitpoints[0].token, &before.token].into_iter().enumerate() {
            let signal = CompleteWaitpoint {
                tenant: Tenant::default(),
                token: token.clone(),
                name: "yes".into(),
                source: "ada".into(),
                idempotency: None,
                payload: None,
            };
            let Outcome::Sent(sent) = stage.must(signal) else { panic!() };
            assert_eq!(sent[0].resumed, at == 1);
        }
    }

    #[test]
    fn a_suspended_task_frees_its_place_in_the_lane_limit() {
        let mut stage = Stage::with_lane("limited");
        stage.must(claim());
        stage.must(until("go"));
        let running = |stage: &Stage| {
            let lane = stage.record::<Lane>(&Lane::key_of(&Tenant::default(), &lane()));
            lane.unwrap().concurrency.unwrap().running
        };
        assert_eq!(running(&stage), 0);
        stage.must(SendMessages::one(message("go")));
        stage.must(Claim { begin: false, ..claim() });
        assert_eq!(running(&stage), 1);
        stage.must(Complete { fence: fence(2), result: None });
        assert_eq!(public(&stage), PublicState::Completed);
    }

    #[test]
    fn without_a_signing_key_no_token_is_issued() {
        let mut stage = Stage::with_task("active");
        let waitpoints = vec![NewWaitpoint { id: "p".into(), ttl_ms: 60_000 }];
        let rejected = stage.run(Suspend { waitpoints, ..until("go") });
        assert_eq!(rejected, Err(Rejection::NoSigningKey));
        assert_eq!(public(&stage), PublicState::Active);
    }

    #[test]
    fn invalid_suspensions_are_rejected() {
        let mut stage = Stage::with_task("active");
        let rejected = stage.run(Suspend::new(fence(1), Condition::Timeout));
        assert_eq!(rejected.unwrap_err().code(), "invalid");
        let twice = vec![NewWaitpoint { id: "p".into(), ttl_ms: 60_000 }; 2];
        let rejected = stage.run(Suspend { waitpoints: twice, ..until("go") });
        assert_eq!(rejected.unwrap_err().code(), "invalid");
        let many = (0..65).map(|n| NewWaitpoint { id: n.to_string().into(), ttl_ms: 60_000 });
        let rejected = stage.run(Suspend { waitpoints: many.collect(), ..until("go") });
        assert_eq!(rejected.unwrap_err().code(), "invalid");
        assert_eq!(public(&stage), PublicState::Active);
    }

    /// A batch on another node may have an earlier timestamp than the message, and read it.
    #[test]
    fn a_message_with_a_later_timestamp_counts() {
        for after_ms in [0, 5] {
            let mut stage = Stage::with_task("active");
            stage.later(10);
            stage.must(SendMessages::one(NewMessage {
                delay: Delay::For { ms: after_ms },
                ..message("go")
            }));
            stage.later(after_ms);
            stage.must(crate::command::Sweep::default());
            stage.now = stage.now.minus_ms(1);
            let Outcome::AlreadySatisfied(_) = stage.must(until("go")) else { panic!() };
        }
    }

    /// The sweep that shows the message finds no suspended task, while the task is about to
    /// suspend: one of the two commits has to conflict.
    #[test]
    fn a_message_shown_concurrently_conflicts_with_the_suspension() {
        let mut stage = Stage::with_task("active");
        stage.must(SendMessages::one(NewMessage { delay: Delay::For { ms: 5 }, ..message("go") }));
        let command = Command::from(until("go"));
        let mut world = World::new(stage.now, Hints::default());
        while let Decided::Parked = decide(&mut world, &command) {
            let wanted = world.take_load_request().unwrap();
            let loaded = stage.tables.load(&wanted);
            world.absorb(&wanted, loaded);
        }
        stage.later(5);
        stage.must(crate::command::Sweep::default());
        assert!(stage.tables.commit(&world.finish().0).is_err());
    }

    #[test]
    fn a_hidden_message_does_not_meet_the_condition() {
        let mut stage = Stage::with_task("active");
        stage.must(SendMessages::one(NewMessage {
            delay: Delay::For { ms: 1_000 },
            ..message("go")
        }));
        assert_eq!(stage.must(until("go")), Outcome::Suspended { waitpoints: vec![] });
    }

    #[test]
    fn a_waitpoint_whose_message_was_consumed_can_be_used_again() {
        let mut stage = Stage::with_task("active");
        stage.seed();
        let make = |stage: &mut Stage| {
            let waitpoint = NewWaitpoint { id: "p".into(), ttl_ms: 60_000 };
            let made = CreateWaitpoint { task: key("t"), epoch: None, waitpoint };
            let Outcome::WaitpointCreated(made) = stage.must(made) else { panic!() };
            made.token
        };
        let complete = |token: &Token| CompleteWaitpoint {
            tenant: Tenant::default(),
            token: token.clone(),
            name: "yes".into(),
            source: "ada".into(),
            idempotency: None,
            payload: None,
        };
        let first = make(&mut stage);
        stage.must(complete(&first));
        stage.must(Suspend::new(fence(1), Condition::waitpoint("p")));
        stage.must(ConsumeMessages { fence: fence(1), seqs: vec![1] });
        let (class, retry) = (FailureClass::Transient, Retry::After { ms: 0 });
        stage.later(1);
        stage.must(Fail { fence: fence(1), class, reason: "no".into(), retry });
        stage.must(claim());
        let second = make(&mut stage);
        stage.must(Suspend::new(fence(2), Condition::waitpoint("p")));
        assert_eq!(public(&stage), PublicState::Suspended, "its message was consumed");
        assert_eq!(stage.run(complete(&first)), Err(Rejection::TokenInvalid));
        stage.must(complete(&second));
        assert_eq!(public(&stage), PublicState::Resumable, "or nothing would ever wake it");
    }
}
