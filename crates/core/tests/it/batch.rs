//! Runs commands as an engine does: rounds of decide, load, learn, and one change set at the end.

use windlass_core::command::{Claim, NewTask};
use windlass_core::{
    ChangeSet, Command, Decided, Fence, Hints, LaneName, Outcome, ReferenceTables, Rejection,
    TagFilter, TaskKey, Tenant, Timestamp, World, decide, probe,
};

/// A transition that needs more rounds than this would never settle.
const MOST_ROUNDS: usize = 2_000;

pub(crate) const START: Timestamp = Timestamp::from_millis(1_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A command is decided only after all those before it.
    Fixed,
    /// A command is decided once its rows are loaded; a parked command is overtaken.
    Free,
}

pub(crate) struct Batch {
    pub(crate) outcomes: Vec<Result<Outcome, Rejection>>,
    /// The commands in the order in which they were decided.
    pub(crate) decided: Vec<usize>,
    pub(crate) rounds: usize,
    /// A scan was answered while an earlier claim of its round was parked. It may have skipped the
    /// rows that the claim picked, as if they were locked, which no order of commands explains.
    pub(crate) overtook: bool,
    pub(crate) changes: ChangeSet,
    pub(crate) hints: Hints,
}

pub(crate) fn run(
    tables: &ReferenceTables,
    now: Timestamp,
    hints: Hints,
    commands: &[Command],
    order: Order,
) -> Batch {
    let mut world = World::new(now, hints);
    let mut outcomes: Vec<Option<Result<Outcome, Rejection>>> = vec![None; commands.len()];
    let mut decided = Vec::new();
    let mut rounds = 0;
    let mut overtook = false;
    while decided.len() < commands.len() {
        rounds += 1;
        assert!(rounds <= MOST_ROUNDS, "{commands:?} does not converge");
        let (mut waits, mut picked) = (false, false);
        for (at, command) in commands.iter().enumerate().filter(|(at, _)| !decided.contains(at)) {
            if waits && order == Order::Fixed {
                probe(&mut world, command);
            } else if let Decided::Ready(outcome) = decide(&mut world, command) {
                outcomes[at] = Some(outcome);
                overtook |= picked && matches!(command, Command::Claim(_) | Command::Sweep(_));
            } else {
                waits = true;
                picked |= matches!(command, Command::Claim(_));
            }
        }
        let fresh = |at: &usize| outcomes[*at].is_some() && !decided.contains(at);
        decided.extend((0..commands.len()).filter(fresh).collect::<Vec<_>>());
        if decided.len() < commands.len() {
            let wanted = world.take_load_request().expect("a parked command lacks something");
            let loaded = tables.load(&wanted);
            world.absorb(&wanted, loaded);
        }
    }
    let (changes, hints) = world.finish();
    let outcomes = outcomes.into_iter().flatten().collect();
    Batch { outcomes, decided, rounds, overtook, changes, hints }
}

/// Decides a batch in order, commits it, and returns the results.
pub(crate) fn commit(
    tables: &mut ReferenceTables,
    now: Timestamp,
    commands: &[Command],
) -> Vec<Result<Outcome, Rejection>> {
    let batch = run(tables, now, Hints::default(), commands, Order::Fixed);
    tables.commit(&batch.changes).expect("only this test writes to the reference tables");
    batch.outcomes
}

pub(crate) fn lane() -> LaneName {
    LaneName::new("l")
}

pub(crate) fn key(id: &str) -> TaskKey {
    TaskKey { tenant: Tenant::default(), id: id.into() }
}

/// The fence of the `nth` claim of a task that was created at the start.
pub(crate) fn fence(id: &str, nth: u64) -> Fence {
    let start = u64::try_from(START.micros()).expect("it is past the epoch");
    Fence { task: key(id), epoch: start + nth }
}

pub(crate) fn new_task(id: &str) -> NewTask {
    NewTask { lane: lane(), ..NewTask::new(id, "k") }
}

/// A claim of any route of the lane.
pub(crate) fn claim(limit: u32) -> Claim {
    let mut claim = Claim { lanes: vec![lane()], limit, ..Claim::new("w") };
    claim.capabilities.tags = TagFilter::Any;
    claim
}

/// The ids of the claimed tasks.
pub(crate) fn claimed(outcome: &Result<Outcome, Rejection>) -> Vec<String> {
    match outcome {
        Ok(Outcome::Claimed(tasks)) => tasks.iter().map(|task| task.id.to_string()).collect(),
        other => panic!("not a claim: {other:?}"),
    }
}
