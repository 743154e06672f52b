//! Who is called when something may be found that was not there before.

use windlass_core::command::{
    Cancel, Claim, Complete, Create, Delay, Fail, LimitLane, NewTask, Release, Replay,
    SetLaneState, Start, Sweep,
};
use windlass_core::{Command, FailureClass, LaneState, Retry, RetryPolicy, Shelf, Timestamp};

use crate::batch::{START, fence, key, lane};

/// A shelf on which this happened, one after the other.
fn after(commands: &[Command]) -> Shelf {
    let mut shelf = Shelf::default();
    for command in commands {
        shelf.execute(START, command).expect("what led here is accepted");
    }
    shelf
}

fn new_task(id: &str) -> NewTask {
    let mut task = NewTask { lane: lane(), ..NewTask::new(id, "k") };
    task.policy.retry = Some(RetryPolicy::fixed(3, 60_000));
    task
}

fn create() -> Command {
    Create::one(new_task("t")).into()
}

fn claim() -> Command {
    Claim { lanes: vec![lane()], ..Claim::new("w") }.into()
}

fn limit(limit: Option<u32>) -> Command {
    LimitLane { tenant: Default::default(), lane: lane(), limit }.into()
}

fn set(state: LaneState) -> Command {
    SetLaneState { tenant: Default::default(), lane: lane(), state }.into()
}

fn complete() -> Command {
    Complete { fence: fence("t", 1), result: None }.into()
}

fn fail() -> Command {
    let (class, retry) = (FailureClass::Transient, Retry::Policy);
    Fail { fence: fence("t", 1), class, reason: String::new(), retry }.into()
}

fn cancel() -> Command {
    Cancel { task: key("t"), reason: String::new() }.into()
}

fn sweep() -> Command {
    Sweep::default().into()
}

/// The wakes of a command: a route, or `*` for any.
fn wakes(shelf: &Shelf, later_ms: u64, command: &Command) -> String {
    let now: Timestamp = START.plus_ms(later_ms);
    let (answer, changes) = shelf.attempt(now, command);
    answer.expect("it is accepted");
    let each = changes.wakes.iter().map(|(wake, tasks)| {
        let route = wake.route.as_ref().map_or("*", |route| route.as_str());
        format!("{}/{route} x{tasks}", wake.lane)
    });
    each.collect::<Vec<_>>().join(", ")
}

#[test]
fn what_wakes_whom() {
    let mut late = new_task("t");
    late.start = Start::After { ms: 10_000 };
    let mut dated = new_task("t");
    dated.deadline_ms = Some(1_000);
    let mut special = new_task("t");
    special.capabilities = ["gpu".to_owned()].into();
    let (late, dated) = (Create::one(late), Create::one(dated));
    let special: Command = Create::one(special).into();
    let (release, delay) =
        (Release { fence: fence("t", 1) }, Delay { fence: fence("t", 1), delay_ms: 5 });
    let replay = Replay { task: key("t"), generation: 0 };
    let open = [create(), claim()];
    let gated = [create(), limit(Some(1)), claim()];
    let none = "";
    let rows: Vec<(&str, Vec<Command>, u64, Command, &str)> = vec![
        ("a task is created", vec![], 0, create(), "l/ x1"),
        ("for some workers", vec![], 0, special, "l/gpu x1"),
        ("for later", vec![], 0, late.clone().into(), none),
        ("its time has come", vec![late.into()], 10_000, sweep(), "l/ x1"),
        ("it is completed", open.to_vec(), 0, complete(), none),
        ("and makes room", gated.to_vec(), 0, complete(), "l/* x1"),
        ("it has failed for now", open.to_vec(), 0, fail(), none),
        ("and makes room", gated.to_vec(), 0, fail(), "l/* x1"),
        ("it is put off, and makes room", gated.to_vec(), 0, delay.into(), "l/* x1"),
        ("it is released", open.to_vec(), 0, release.clone().into(), "l/ x1"),
        ("and makes room", gated.to_vec(), 0, release.into(), "l/* x1, l/ x1"),
        ("it is cancelled", open.to_vec(), 0, cancel(), none),
        ("and makes room", gated.to_vec(), 0, cancel(), "l/* x1"),
        ("its lease has run out", open.to_vec(), 30_000, sweep(), "l/ x1"),
        ("and makes room", gated.to_vec(), 30_000, sweep(), "l/* x1, l/ x1"),
        ("it expires and uncovers others", vec![dated.into()], 1_000, sweep(), "l/ x1"),
        ("it is replayed", [&open[..], &[complete()]].concat(), 0, replay.into(), "l/ x1"),
        ("a lane is paused", vec![create()], 0, set(LaneState::Paused), none),
        (
            "and goes on",
            vec![create(), set(LaneState::Paused)],
            0,
            set(LaneState::Active),
            "l/* x1",
        ),
        ("a limit is raised", gated.to_vec(), 0, limit(Some(2)), "l/* x1"),
        ("a limit is lifted", gated.to_vec(), 0, limit(None), "l/* x1"),
        ("a limit stays", gated.to_vec(), 0, limit(Some(1)), none),
    ];
    for (what, before, later_ms, command, expected) in rows {
        assert_eq!(wakes(&after(&before), later_ms, &command), expected, "{what}: {command:?}");
    }
}
