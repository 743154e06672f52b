use crate::children::Children;
use crate::command::{Outcome, Transition};
use crate::digest::Digester;
use crate::event::Change;
use crate::primitive::{
    LateSettle, begin_attempt, children_of, require_lease, require_task, settle,
};
use crate::task::{Fence, Lifecycle, Settled};
use crate::world::World;

/// Suspends a leased task until its last child has ended; the next claim then resumes the attempt.
/// When no child is open, the lease stays and the response counts the children.
#[derive(Clone, Debug)]
pub struct WaitChildren {
    pub fence: Fence,
}

impl WaitChildren {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        let key = &self.fence.task;
        key.check()?;
        world.prefetch(Children::key_of(&key.tenant, &key.id));
        let digest = Digester::new("wait_children").finish();
        let settled = require_task(world, key)?.last_settle.as_ref().map(|settle| settle.epoch);
        let mut open = 0;
        if settled != Some(self.fence.epoch) {
            let (task, _) = require_lease(world, &self.fence)?;
            let counts = children_of(world, &task)?;
            if counts.open == 0 {
                return Ok(Outcome::ChildrenDone(counts));
            }
            open = counts.open;
        }
        settle(world, &self.fence, digest, LateSettle::Never, |_, task, now| {
            let Lifecycle::Active(mut lease) = task.lifecycle.clone() else {
                unreachable!("only the lease holder settles a task")
            };
            // Begins the attempt if it has not begun, so that the next claim can resume it.
            let attempt =
                begin_attempt(task, &mut lease, now).expect("a claimed task has attempts left");
            task.lifecycle = Lifecycle::WaitingChildren {
                since: now,
                suspended_attempt: attempt.to_suspended(now),
            };
            (Settled::WaitingChildren, Change::WaitingChildren { epoch: task.epoch, open })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::ChildCounts;
    use crate::command::{
        Cancel, Claim, Command, Complete, Create, Decided, DeleteTask, Fail, NewTask, Release,
        Replay, Sweep, decide,
    };
    use crate::lane::Lane;
    use crate::name::Tenant;
    use crate::rejection::Rejection;
    use crate::task::{FailureClass, PublicState, ResumeCause, Retry, RetryPolicy};
    use crate::testing::{Stage, check_task, child, claim, fence, key, lane, new_task};
    use crate::world::Hints;

    #[test]
    fn table() {
        check_task(
            "
            absent    |             | absent          | ! task_not_found    |
            waiting   |             | waiting e0 a0   | ! stale_fence       |
            waiting   | epoch=0     | waiting e0 a0   | ! not_leased        |
            delayed   |             | delayed e0 a0   | ! stale_fence       |
            claimed   |             | claimed e1 a0   | done 0 of 0         |
            active    |             | active e1 a1    | done 0 of 0         |
            active    | epoch=2     | active e1 a1    | ! stale_fence       |
            lease_expired    |             | active e1 a1    | ! lease_expired     |
            lease_expired    | policy=accept_expired_lease | active e1 a1    | done 0 of 0         |
            completed |             | completed e1 a1 | ! already_settled |
            failed    |             | failed e1 a1    | ! already_settled |
            cancelled |             | cancelled e1 a1 | ! already_terminal  |
            expired   |             | expired e1 a1   | ! already_terminal  |
            waiting_children |      | waiting_children e1 a1 | waitingchildren |
            waiting_children | epoch=2 | waiting_children e1 a1 | ! stale_fence |
            blocked   |             | blocked e0 a0   | ! stale_fence       |
            owned     |             | owned e0 a0     | ! stale_fence       |
            granted   |             | granted e0 a0   | ! stale_fence       |
            suspended | | suspended e1 a1 | ! already_settled |
            resumable | | resumable e1 a1 | ! already_settled |
            ",
            |args| WaitChildren { fence: args.fence() },
        );
    }

    fn children(stage: &Stage, id: &str) -> Option<Children> {
        stage.record(&Children::key_of(&Tenant::default(), &id.into()))
    }

    fn counts(stage: &Stage, id: &str) -> ChildCounts {
        children(stage, id).expect("it has children").counts()
    }

    fn state(stage: &Stage, id: &str) -> PublicState {
        stage.task(id).expect("it exists").lifecycle.public()
    }

    fn events(stage: &Stage, name: &str) -> usize {
        stage.tables.events_after(0).filter(|logged| logged.name == name).count()
    }

    fn bulk(tasks: Vec<NewTask>) -> Create {
        Create { tenant: Tenant::default(), tasks }
    }

    /// Claims the next task of the lane of children.
    fn take(stage: &mut Stage) -> Fence {
        let taken = stage.must(Claim { lanes: vec!["children".into()], ..claim() });
        let Outcome::Claimed(tasks) = taken else { panic!("{taken:?}") };
        tasks[0].fence()
    }

    fn cancel(id: &str) -> Cancel {
        Cancel { task: key(id), reason: "stop".into() }
    }

    #[test]
    fn a_parent_resumes_its_attempt_when_the_last_child_has_ended() {
        let mut new = new_task("t");
        new.policy.attempt_timeout_ms = Some(20_000);
        let mut stage = Stage::with_new_task("active", new);
        stage.must(bulk(vec![child("c"), child("d")]));
        stage.later(5_000);
        stage.must(WaitChildren { fence: fence(1) });
        stage.later(3_600_000);
        let held = take(&mut stage);
        stage.must(Complete { fence: held, result: None });
        assert_eq!(state(&stage, "t"), PublicState::WaitingChildren);
        let held = take(&mut stage);
        let (class, retry) = (FailureClass::Permanent, Retry::Policy);
        stage.must(Fail { fence: held, class, reason: "no".into(), retry });
        let task = stage.task("t").unwrap();
        assert_eq!(task.lifecycle.public(), PublicState::Resumable);
        assert_eq!(task.resumption.unwrap().cause, ResumeCause::Children);
        let Outcome::Claimed(tasks) = stage.must(claim()) else { panic!() };
        let Lifecycle::Active(lease) = &tasks[0].lifecycle else { panic!() };
        let attempt = lease.attempt.as_ref().unwrap();
        assert_eq!((attempt.number, tasks[0].attempts, tasks[0].claims), (1, 1, 2));
        assert_eq!(attempt.timeout_at, Some(stage.now.plus_ms(15_000)), "the timeout was paused");
        let done = ChildCounts { completed: 1, failed: 1, ..ChildCounts::default() };
        let outcome = stage.must(WaitChildren { fence: fence(2) });
        assert_eq!(outcome, Outcome::ChildrenDone(done));
        assert_eq!(events(&stage, "resumed"), 1);
        stage.must(Complete { fence: fence(2), result: None });
        assert!(children(&stage, "t").unwrap().closed);
    }

    #[test]
    fn waiting_begins_the_attempt() {
        let mut stage = Stage::with_task("claimed");
        stage.must(Create::one(child("c")));
        stage.must(WaitChildren { fence: fence(1) });
        assert_eq!(stage.task("t").unwrap().attempts, 1);
        stage.must(cancel("c"));
        stage.must(claim());
        assert_eq!(stage.task("t").unwrap().attempts, 1);
    }

    #[test]
    fn a_failed_attempt_after_the_wait_is_retried_as_a_fresh_one() {
        let mut new = new_task("t");
        new.policy.retry = Some(RetryPolicy::fixed(2, 0));
        let mut stage = Stage::with_new_task("active", new);
        stage.must(Create::one(child("c")));
        stage.must(WaitChildren { fence: fence(1) });
        stage.must(cancel("c"));
        stage.must(claim());
        let (class, retry) = (FailureClass::Transient, Retry::Policy);
        stage.must(Fail { fence: fence(2), class, reason: "no".into(), retry });
        let Outcome::Claimed(tasks) = stage.must(claim()) else { panic!() };
        assert_eq!((tasks[0].attempts, &tasks[0].resumption), (2, &None));
    }

    #[test]
    fn a_parent_must_exist_and_be_open() {
        for (state, expected) in [
            ("absent", Some("parent_not_found")),
            ("waiting", None),
            ("delayed", None),
            ("claimed", None),
            ("active", None),
            ("lease_expired", None),
            ("waiting_children", None),
            ("completed", Some("parent_terminal")),
            ("failed", Some("parent_terminal")),
            ("cancelled", Some("parent_terminal")),
            ("expired", Some("parent_terminal")),
        ] {
            let mut stage = Stage::with_task(state);
            let before = stage.tables.clone();
            let outcome = stage.run(bulk(vec![new_task("before"), child("x")]));
            assert_eq!(outcome.as_ref().err().map(Rejection::code), expected, "{state}");
            if expected.is_some() {
                assert_eq!(stage.tables, before, "all or none: {state}");
            } else {
                let open = if state == "waiting_children" { 2 } else { 1 };
                assert_eq!(counts(&stage, "t").open, open, "{state}");
                assert!(stage.task("t").unwrap().has_children, "{state}");
            }
        }
        let mut stage = Stage::with_task("active");
        stage.must(Create::one(child("c")));
        stage.must(Complete { fence: fence(1), result: None });
        let outcome = stage.run(Create::one(child("d")));
        assert_eq!(outcome, Err(Rejection::ParentTerminal), "its children are closed");
        let again = stage.must(Create::one(child("c")));
        assert!(matches!(again, Outcome::Created(made) if made[0].duplicate));
        let orphan = NewTask { parent: None, ..child("c") };
        assert_eq!(stage.run(Create::one(orphan)), Err(Rejection::Conflict), "another request");
        let nameless = NewTask { parent: Some("".into()), ..child("e") };
        assert_eq!(stage.run(Create::one(nameless)).unwrap_err().code(), "invalid");
    }

    #[test]
    fn parent_and_child_belong_to_one_tenant() {
        let mut stage = Stage::with_task("active");
        let of_other_tenant = Create { tenant: "other".into(), tasks: vec![child("c")] };
        assert_eq!(stage.run(of_other_tenant), Err(Rejection::ParentNotFound));
        let tasks = vec![new_task("t"), child("c")];
        stage.must(Create { tenant: "other".into(), tasks });
        assert_eq!(children(&stage, "t"), None, "they belong to another task with this id");
    }

    #[test]
    fn parents_come_before_their_children_in_a_bulk() {
        let grandchild = || NewTask { parent: Some("c".into()), ..child("g") };
        let mut stage = Stage::new();
        stage.must(bulk(vec![new_task("t"), child("c"), child("d"), grandchild()]));
        assert_eq!((counts(&stage, "t").open, counts(&stage, "c").open), (2, 1));
        let mut stage = Stage::new();
        let wrong = bulk(vec![child("c"), new_task("t")]);
        assert_eq!(stage.run(wrong), Err(Rejection::ParentNotFound));
        let own = NewTask { parent: Some("x".into()), ..new_task("x") };
        assert_eq!(stage.run(Create::one(own)), Err(Rejection::ParentNotFound));
    }

    /// Decides several commands in one batch.
    fn batch(stage: &mut Stage, commands: &[Command]) {
        let mut world = World::new(stage.now, Hints::default());
        for command in commands {
            loop {
                match decide(&mut world, command) {
                    Decided::Ready(outcome) => break drop(outcome.expect("it is accepted")),
                    Decided::Parked => {
                        let wanted = world.take_load_request().unwrap();
                        let loaded = stage.tables.load(&wanted);
                        world.absorb(&wanted, loaded);
                    }
                }
            }
        }
        stage.tables.commit(&world.finish().0).unwrap();
    }

    #[test]
    fn two_children_that_end_in_one_batch_wake_their_parent_once() {
        let mut stage = Stage::with_task("active");
        stage.must(bulk(vec![child("c"), child("d")]));
        let held = [take(&mut stage), take(&mut stage)];
        let [one, two] = held.map(|fence| Complete { fence, result: None }.into());
        batch(&mut stage, &[WaitChildren { fence: fence(1) }.into(), one, two]);
        assert_eq!(state(&stage, "t"), PublicState::Resumable);
        assert_eq!((events(&stage, "resumed"), counts(&stage, "t").completed), (1, 2));
    }

    #[test]
    fn a_child_may_be_a_parent() {
        let mut stage = Stage::with_task("active");
        stage.must(Create::one(child("c")));
        stage.must(WaitChildren { fence: fence(1) });
        let held = take(&mut stage);
        stage.must(Create::one(NewTask { parent: Some("c".into()), ..child("g") }));
        stage.must(WaitChildren { fence: held });
        let held = take(&mut stage);
        stage.must(Complete { fence: held, result: None });
        assert_eq!(state(&stage, "c"), PublicState::Resumable);
        assert_eq!(state(&stage, "t"), PublicState::WaitingChildren);
        let held = take(&mut stage);
        stage.must(Complete { fence: held, result: None });
        assert_eq!(state(&stage, "t"), PublicState::Resumable);
    }

    /// A root with 150 children, of which six have two children each, each of those with one more.
    fn tree() -> (Stage, usize) {
        let mut stage = Stage::with_task("active");
        let of = |parent: &str, id: &str| NewTask { parent: Some(parent.into()), ..child(id) };
        let mut tasks: Vec<NewTask> = (0..150).map(|n| child(&format!("c{n:03}"))).collect();
        for n in 0..6 {
            for m in 0..2 {
                let (above, id) = (format!("c{n:03}"), format!("c{n:03}-{m}"));
                tasks.extend([of(&above, &id), of(&id, &format!("{id}-leaf"))]);
            }
        }
        let made = tasks.len();
        stage.must(bulk(tasks));
        (stage, made)
    }

    #[test]
    fn the_children_of_a_cancelled_task_are_cancelled_page_by_page() {
        let (mut stage, made) = tree();
        stage.must(cancel("t"));
        assert_eq!(events(&stage, "cancelled"), 1, "the rest is left to the sweep");
        let mut sweeps = 0;
        loop {
            let before = events(&stage, "cancelled");
            let Outcome::Swept { next_due, .. } = stage.must(Sweep::default()) else { panic!() };
            let page = events(&stage, "cancelled") - before;
            assert!(page <= 256, "{page} at once");
            sweeps += 1;
            if next_due > Some(stage.now) {
                break;
            }
        }
        assert!(sweeps >= 3, "150 children are more than two pages: {sweeps}");
        assert_eq!(events(&stage, "cancelled"), made + 1);
        assert_eq!(counts(&stage, "t"), ChildCounts { cancelled: 150, ..ChildCounts::default() });
        assert_eq!(children(&stage, "c003").unwrap().due_at, None);
    }

    #[test]
    fn cancelled_and_expired_parents_cancel_their_children() {
        type End = fn(&mut Stage);
        let rows: [(&str, End, bool); 5] = [
            ("cancelled", |stage| drop(stage.must(cancel("t"))), true),
            (
                "cancelled",
                |stage| {
                    let (fence, reason) = (fence(1), String::new());
                    stage.must(crate::command::CancelHeld { fence, reason });
                },
                true,
            ),
            (
                "expired",
                |stage| {
                    stage.later(60_000);
                    stage.must(Sweep::default());
                },
                true,
            ),
            (
                "completed",
                |stage| drop(stage.must(Complete { fence: fence(1), result: None })),
                false,
            ),
            (
                "failed",
                |stage| {
                    let (class, retry) = (FailureClass::Permanent, Retry::Never);
                    stage.must(Fail { fence: fence(1), class, reason: "no".into(), retry });
                },
                false,
            ),
        ];
        for (ended, end, called_off) in rows {
            let mut new = new_task("t");
            new.deadline_ms = Some(60_000);
            let mut stage = Stage::with_new_task("waiting", new);
            stage.must(Claim { lease_ms: 600_000, ..claim() });
            stage.must(Create::one(child("c")));
            let held = take(&mut stage);
            end(&mut stage);
            assert_eq!(state(&stage, "t").as_str(), ended);
            stage.must(Sweep::default());
            stage.must(Sweep::default());
            let found = state(&stage, "c") == PublicState::Cancelled;
            assert_eq!(found, called_off, "{ended}");
            if called_off {
                let late = stage.run(Complete { fence: held, result: None });
                assert_eq!(late.unwrap_err().code(), "already_terminal");
            }
        }
    }

    #[test]
    fn a_waiting_parent_expires_at_its_deadline() {
        let mut new = new_task("t");
        new.deadline_ms = Some(5_000);
        let mut stage = Stage::with_new_task("waiting_children", new);
        stage.later(5_000);
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "t"), PublicState::Expired);
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "c"), PublicState::Cancelled);
        assert_eq!(events(&stage, "resumed"), 0);
    }

    #[test]
    fn a_parent_is_retained_while_a_child_is_open() {
        let mut new = new_task("t");
        new.policy.retention_ms = 1_000;
        let mut stage = Stage::with_new_task("active", new);
        stage.must(Create::one(child("c")));
        stage.must(Complete { fence: fence(1), result: None });
        assert_eq!(
            stage.run(DeleteTask { task: key("t") }),
            Err(Rejection::ChildrenOpen { open: 1 })
        );
        stage.later(1_000);
        stage.must(Sweep::default());
        assert!(stage.task("t").unwrap().due_at > Some(stage.now), "it is swept later");
        stage.must(cancel("c"));
        stage.must(Sweep::default());
        assert_eq!((stage.task("t"), children(&stage, "t")), (None, None));
        stage.must(DeleteTask { task: key("c") });
    }

    #[test]
    fn a_child_is_retained_while_its_parent_is_open() {
        let mut stage = Stage::with_task("waiting");
        let mut new = child("c");
        new.policy.retention_ms = 0;
        stage.must(Create::one(new));
        stage.must(cancel("c"));
        stage.must(Sweep::default());
        assert!(stage.task("c").unwrap().due_at > Some(stage.now), "it is swept later");
        stage.must(cancel("t"));
        stage.later(3_600_000);
        stage.must(Sweep::default());
        assert_eq!(stage.task("c"), None);
        assert_eq!(counts(&stage, "t").cancelled, 1, "the parent still knows");
    }

    #[test]
    fn a_replayed_child_is_open_again() {
        let mut stage = Stage::with_task("active");
        stage.must(bulk(vec![child("c"), child("d")]));
        stage.must(WaitChildren { fence: fence(1) });
        stage.must(cancel("c"));
        stage.must(Replay { task: key("c"), execution: 0 });
        assert_eq!(counts(&stage, "t"), ChildCounts { open: 2, ..ChildCounts::default() });
        stage.must(cancel("d"));
        assert_eq!(state(&stage, "t"), PublicState::WaitingChildren);
        let held = take(&mut stage);
        stage.must(Complete { fence: held, result: None });
        let expected = ChildCounts { completed: 1, cancelled: 1, ..ChildCounts::default() };
        assert_eq!(counts(&stage, "t"), expected);
        assert_eq!(state(&stage, "t"), PublicState::Resumable);
    }

    #[test]
    fn a_replayed_child_of_an_ended_parent_is_counted() {
        let mut stage = Stage::with_task("active");
        stage.must(Create::one(child("c")));
        stage.must(cancel("c"));
        stage.must(Complete { fence: fence(1), result: None });
        stage.must(Replay { task: key("c"), execution: 0 });
        assert_eq!(counts(&stage, "t").open, 1);
        assert_eq!(stage.run(DeleteTask { task: key("t") }).unwrap_err().code(), "children_open");
        stage.must(cancel("c"));
        stage.must(DeleteTask { task: key("t") });
    }

    #[test]
    fn a_replayed_child_of_a_deleted_parent_has_no_parent() {
        for recreated in [false, true] {
            let mut stage = Stage::with_task("active");
            stage.must(Create::one(child("c")));
            stage.must(cancel("c"));
            stage.must(Complete { fence: fence(1), result: None });
            stage.must(DeleteTask { task: key("t") });
            stage.later(1);
            if recreated {
                stage.must(bulk(vec![new_task("t"), child("d")]));
            }
            stage.must(Replay { task: key("c"), execution: 0 });
            assert_eq!(stage.task("c").unwrap().parent, None);
            stage.must(cancel("c"));
            let open = children(&stage, "t").map(|children| children.open);
            assert_eq!(open, recreated.then_some(1));
        }
    }

    #[test]
    fn a_replayed_parent_keeps_its_open_children_and_may_add_more() {
        let mut stage = Stage::with_task("active");
        stage.must(bulk(vec![child("c"), child("d")]));
        stage.must(cancel("c"));
        stage.must(cancel("t"));
        stage.must(Replay { task: key("t"), execution: 0 });
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "d"), PublicState::Waiting, "its cancellation is not pending");
        stage.must(Create::one(child("e")));
        assert_eq!(counts(&stage, "t").open, 2);
    }

    #[test]
    fn an_unreadable_children_record_blocks_no_other_task() {
        let mut stage = Stage::with_task("waiting_children");
        let mut new = new_task("u");
        new.lane = "children".into();
        stage.must(Create::one(new));
        let held = take(&mut stage);
        assert_eq!(held.task.id.as_str(), "c");
        take(&mut stage);
        stage.garble(&Children::key_of(&Tenant::default(), &"t".into()));
        stage.later(30_000);
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "c"), PublicState::Active, "it waits for a newer version");
        assert_eq!(state(&stage, "u"), PublicState::Waiting);
    }

    #[test]
    fn an_unreadable_parent_lane_does_not_fail_the_sweep() {
        let mut stage = Stage::with_task("active");
        let mut dying = child("c");
        dying.deadline_ms = Some(1_000);
        stage.must(bulk(vec![dying]));
        stage.must(WaitChildren { fence: fence(1) });
        stage.garble(&Lane::key_of(&Tenant::default(), &lane()));
        stage.later(1_000);
        stage.must(Sweep::default());
        assert_eq!(state(&stage, "c"), PublicState::Waiting, "it waits for a newer version");
        assert_eq!(state(&stage, "t"), PublicState::WaitingChildren);
    }

    #[test]
    fn a_released_child_is_still_open() {
        let mut stage = Stage::with_task("waiting_children");
        let held = take(&mut stage);
        stage.must(Release { fence: held });
        assert_eq!(counts(&stage, "t").open, 1);
        let retried = take(&mut stage);
        let (class, retry) = (FailureClass::Transient, Retry::Policy);
        stage.must(Fail { fence: retried, class, reason: "no".into(), retry });
        assert_eq!(state(&stage, "t"), PublicState::WaitingChildren, "it is retried");
    }

    #[test]
    fn a_replayed_parent_resets_its_child_counts() {
        let mut stage = Stage::with_task("active");
        stage.must(Create::one(child("c")));
        let held = take(&mut stage);
        let (class, retry) = (FailureClass::Permanent, Retry::Never);
        stage.must(Fail { fence: held, class, reason: "no".into(), retry });
        stage.must(Fail { fence: fence(1), class, reason: "a child failed".into(), retry });
        stage.must(Replay { task: key("t"), execution: 0 });
        stage.must(claim());
        stage.must(Create::one(child("c~1")));
        let held = take(&mut stage);
        stage.must(Complete { fence: held, result: None });
        let done = ChildCounts { completed: 1, ..ChildCounts::default() };
        let outcome = stage.must(WaitChildren { fence: fence(2) });
        assert_eq!(outcome, Outcome::ChildrenDone(done), "the failure was of another execution");
        stage.must(Replay { task: key("c"), execution: 0 });
        let held = take(&mut stage);
        stage.must(Complete { fence: held, result: None });
        assert_eq!(counts(&stage, "t").total(), 2, "one of them was replayed, and is counted");
    }

    #[test]
    fn a_child_of_an_earlier_task_with_the_same_id_is_a_conflict() {
        let mut stage = Stage::with_task("active");
        stage.must(Create::one(child("c")));
        let held = take(&mut stage);
        stage.must(Complete { fence: held, result: None });
        stage.must(Complete { fence: fence(1), result: None });
        stage.must(DeleteTask { task: key("t") });
        let again = stage.must(Create::one(child("c")));
        assert!(matches!(again, Outcome::Created(made) if made[0].duplicate), "it exists");
        stage.later(1);
        stage.must(Create::one(new_task("t")));
        assert_eq!(stage.run(Create::one(child("c"))), Err(Rejection::Conflict));
        stage.must(DeleteTask { task: key("c") });
        stage.must(Create::one(child("c")));
        assert_eq!(counts(&stage, "t").open, 1);
    }
}
