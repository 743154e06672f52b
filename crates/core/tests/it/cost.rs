//! The rows that a claim loads: the tasks that it leases, whatever waits beside them.

use windlass_core::command::{
    Claim, Complete, Create, Delay, LimitLane, NewTask, QuotaScope, SetQuota,
};
use windlass_core::{
    Command, Decided, Hints, LimitKey, Outcome, ReferenceTables, Rejection, SESSIONS, Tenant,
    World, decide,
};

use crate::batch::{START, lane, new_task};

const BACKLOG: usize = 2_000;

/// How many task rows the store returns for one claim, and what is claimed.
fn tasks_loaded(tables: &ReferenceTables, claim: &Command) -> (usize, Vec<String>) {
    let (outcome, rows, _) = decided(tables, claim);
    let Ok(Outcome::Claimed(tasks)) = outcome else { panic!("{outcome:?}") };
    (rows, tasks.iter().map(|task| task.id.to_string()).collect())
}

/// The result of a command, how many task rows it scanned, and in how many rounds.
fn decided(
    tables: &ReferenceTables,
    command: &Command,
) -> (Result<Outcome, Rejection>, usize, usize) {
    let mut world = World::new(START.plus_ms(1), Hints::default());
    let (mut rows, mut rounds) = (0, 1);
    loop {
        if let Decided::Ready(outcome) = decide(&mut world, command) {
            return (outcome, rows, rounds);
        }
        rounds += 1;
        let wanted = world.take_load_request().expect("a parked claim lacks something");
        let loaded = tables.load(&wanted);
        let of_tasks = wanted
            .scans
            .iter()
            .zip(&loaded.pages)
            .filter(|(scan, _)| scan.range.index.table() == windlass_core::Table::Task);
        rows += of_tasks.map(|(_, page)| page.len()).sum::<usize>();
        world.absorb(&wanted, loaded);
    }
}

fn backlog(shape: impl Fn(usize, &mut NewTask)) -> ReferenceTables {
    let mut tables = ReferenceTables::default();
    for from in (0..BACKLOG).step_by(500) {
        let task = |n: usize| {
            let mut new = new_task(&format!("{n:05}"));
            shape(n, &mut new);
            new
        };
        let tasks = (from..from + 500).map(task).collect();
        let create = Create { tenant: Tenant::default(), tasks };
        tables.execute(START, &create.into()).expect("a fixture is accepted");
    }
    tables
}

fn claim() -> Claim {
    Claim { lanes: vec![lane()], limit: 5, ..Claim::new("w") }
}

#[test]
fn a_claim_loads_only_what_it_may_lease() {
    let first: Vec<String> = (0..5).map(|n| format!("{n:05}")).collect();
    let plain = backlog(|_, _| {});
    assert_eq!(tasks_loaded(&plain, &claim().into()), (5, first.clone()));

    let other_routes = backlog(|n, new| {
        if n >= 5 {
            new.capabilities.insert("gpu".into());
            new.priority = 9;
        }
    });
    assert_eq!(tasks_loaded(&other_routes, &claim().into()), (5, first.clone()));

    let delayed = backlog(|n, new| {
        if n >= 5 {
            new.delay = Delay::For { ms: 60_000 };
            new.priority = 9;
        }
    });
    assert_eq!(tasks_loaded(&delayed, &claim().into()), (5, first));
}

#[test]
fn a_full_lane_is_skipped_without_loading_its_tasks() {
    let mut tables = backlog(|_, _| {});
    let limit = LimitLane { tenant: Tenant::default(), lane: lane(), limit: Some(3) };
    tables.execute(START, &limit.into()).expect("the lane exists");
    tables.execute(START, &claim().into()).expect("it takes three");
    assert_eq!(tasks_loaded(&tables, &claim().into()), (0, vec![]));
}

/// Ten thousand tasks that may not run.
fn crowd(shape: impl Fn(&mut NewTask)) -> ReferenceTables {
    let mut tables = ReferenceTables::default();
    for from in (0..CROWD).step_by(1_000) {
        let task = |n: usize| {
            let mut new = NewTask { priority: 9, ..new_task(&format!("crowd-{n:05}")) };
            shape(&mut new);
            new
        };
        let tasks = (from..from + 1_000).map(task).collect();
        let create = Create { tenant: Tenant::default(), tasks };
        tables.execute(START, &create.into()).expect("a fixture is accepted");
    }
    tables
}

const CROWD: usize = 10_000;

fn five_more(tables: &mut ReferenceTables, lane: &str) {
    let task = |n| NewTask { lane: lane.into(), ..new_task(&format!("{n:05}")) };
    let tasks = (0..5).map(task).collect();
    let create = Create { tenant: Tenant::default(), tasks };
    tables.execute(START, &create.into()).expect("a fixture is accepted");
}

fn with_sessions() -> Claim {
    let mut claim = claim();
    claim.capabilities.names.insert(SESSIONS.to_owned());
    claim
}

#[test]
fn tasks_behind_a_concurrency_limit_are_not_loaded() {
    let first: Vec<String> = (0..5).map(|n| format!("{n:05}")).collect();
    for limit_key in [LimitKey::Concurrency("k".into()), LimitKey::Session("s".into())] {
        let mut tables = crowd(|new| new.limit_key = Some(limit_key.clone()));
        let other = Claim { worker: "owner".into(), limit: 1, ..with_sessions() };
        tables.execute(START, &other.into()).expect("it takes the only one that may run");
        assert_eq!(tasks_loaded(&tables, &with_sessions().into()), (0, vec![]), "{limit_key:?}");
        five_more(&mut tables, "l");
        assert_eq!(
            tasks_loaded(&tables, &with_sessions().into()),
            (5, first.clone()),
            "{limit_key:?}"
        );
    }
}

#[test]
fn tasks_under_an_exceeded_quota_are_not_loaded() {
    let first: Vec<String> = (0..5).map(|n| format!("{n:05}")).collect();
    for scope in [QuotaScope::Lane(lane()), QuotaScope::Tenant] {
        let mut tables = crowd(|_| {});
        let (tenant, limit) = (Tenant::default(), Some(2));
        let quota = SetQuota { tenant, scope: scope.clone(), limit, rate: None };
        tables.execute(START, &quota.into()).expect("the lane exists");
        tables.execute(START, &claim().into()).expect("it takes two");
        assert_eq!(tasks_loaded(&tables, &claim().into()), (0, vec![]), "{scope:?}");
        if scope != QuotaScope::Tenant {
            five_more(&mut tables, "m");
            let both = Claim { lanes: vec![lane(), "m".into()], ..claim() };
            assert_eq!(tasks_loaded(&tables, &both.into()), (5, first.clone()), "{scope:?}");
        }
    }
}

/// The end of one task loads the task that it admits, and no other.
#[test]
fn a_concurrency_limit_loads_only_the_tasks_it_admits() {
    let mut tables = crowd(|new| new.limit_key = Some(LimitKey::Concurrency("k".into())));
    let claimed = tables.execute(START, &Claim { limit: 1, ..claim() }.into());
    let Ok(Outcome::Claimed(tasks)) = claimed else { panic!("{claimed:?}") };
    let complete = Complete { fence: tasks[0].fence(), result: None }.into();
    let (outcome, rows, rounds) = decided(&tables, &complete);
    outcome.expect("it is leased");
    assert_eq!((rows, rounds), (1, 4), "the task, its limit, the queue, and all of it");
}

#[test]
fn a_claim_of_many_lanes_loads_a_few_of_them() {
    let spread = backlog(|n, new| new.lane = format!("lane{}", n % 100).into());
    let lanes = (0..100).map(|n| format!("lane{n}").into()).collect();
    let (rows, taken) = tasks_loaded(&spread, &Claim { lanes, ..claim() }.into());
    assert_eq!(taken.len(), 5);
    assert!(rows <= 4 * 5, "{rows} rows");
}
