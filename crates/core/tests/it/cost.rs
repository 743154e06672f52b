//! What a claim has to look at: the tasks it takes, whatever waits beside them.

use windlass_core::command::{Claim, Create, LimitLane, NewTask, Start};
use windlass_core::{Command, Decided, Hints, Shelf, Tenant, World, decide};

use crate::batch::{START, lane, new_task};

const BACKLOG: usize = 2_000;

/// How many rows of tasks the store gives out for one claim, and what is claimed.
fn tasks_loaded(shelf: &Shelf, claim: &Command) -> (usize, Vec<String>) {
    let mut world = World::new(START.plus_ms(1), Hints::default());
    let mut rows = 0;
    loop {
        if let Decided::Ready(answer) = decide(&mut world, claim) {
            let Ok(windlass_core::Outcome::Claimed(tasks)) = answer else { panic!("{answer:?}") };
            return (rows, tasks.iter().map(|task| task.id.to_string()).collect());
        }
        let wanted = world.wanted().expect("a parked claim lacks something");
        let loaded = shelf.load(&wanted);
        let of_tasks = wanted
            .scans
            .iter()
            .zip(&loaded.pages)
            .filter(|(scan, _)| scan.range.index.table() == windlass_core::Table::Task);
        rows += of_tasks.map(|(_, page)| page.len()).sum::<usize>();
        world.learn(&wanted, loaded);
    }
}

fn backlog(shape: impl Fn(usize, &mut NewTask)) -> Shelf {
    let mut shelf = Shelf::default();
    for from in (0..BACKLOG).step_by(500) {
        let task = |n: usize| {
            let mut new = new_task(&format!("{n:05}"));
            shape(n, &mut new);
            new
        };
        let tasks = (from..from + 500).map(task).collect();
        let create = Create { tenant: Tenant::default(), tasks };
        shelf.execute(START, &create.into()).expect("a fixture is accepted");
    }
    shelf
}

fn claim() -> Claim {
    Claim { lanes: vec![lane()], limit: 5, ..Claim::new("w") }
}

#[test]
fn a_claim_looks_only_at_what_it_may_take() {
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
            new.start = Start::After { ms: 60_000 };
            new.priority = 9;
        }
    });
    assert_eq!(tasks_loaded(&delayed, &claim().into()), (5, first));
}

#[test]
fn a_full_lane_is_passed_over_before_its_tasks_are_looked_at() {
    let mut shelf = backlog(|_, _| {});
    let limit = LimitLane { tenant: Tenant::default(), lane: lane(), limit: Some(3) };
    shelf.execute(START, &limit.into()).expect("the lane is there");
    shelf.execute(START, &claim().into()).expect("it takes three");
    assert_eq!(tasks_loaded(&shelf, &claim().into()), (0, vec![]));
}

#[test]
fn a_claim_of_many_lanes_looks_at_a_few_of_them() {
    let spread = backlog(|n, new| new.lane = format!("lane{}", n % 100).into());
    let lanes = (0..100).map(|n| format!("lane{n}").into()).collect();
    let (rows, taken) = tasks_loaded(&spread, &Claim { lanes, ..claim() }.into());
    assert_eq!(taken.len(), 5);
    assert!(rows <= 4 * 5, "{rows} rows");
}
