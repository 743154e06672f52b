//! How many loads a batch needs, and that pages and guesses never change an outcome.

use std::collections::BTreeSet;

use windlass_core::command::{
    Cancel, Claim, Complete, Create, Delay, LimitLane, NewTask, QuotaScope, RegisterWorker,
    SetQuota, Sweep, WaitChildren,
};
use windlass_core::{
    Command, Hints, LimitKey, Outcome, Rate, ReferenceTables, SESSIONS, TagFilter, Tenant,
    WorkerCapabilities,
};

use crate::batch::{self, Batch, Order, START, claim, claimed, key, lane, new_task};

/// `count` waiting tasks, over this many routes; the priority falls and rises with the number.
fn filled(count: usize, routes: usize) -> ReferenceTables {
    let mut tables = ReferenceTables::default();
    let task = |n: usize| {
        let tag = match n % routes {
            0 => None,
            route => Some(format!("route{route}")),
        };
        NewTask { tag, priority: priority(n), ..new_task(&format!("{n:04}")) }
    };
    let tasks: Vec<NewTask> = (0..count).map(task).collect();
    for bulk in tasks.chunks(500) {
        let create = Create { tenant: Tenant::default(), tasks: bulk.to_vec() };
        tables.execute(START, &create.into()).expect("a fixture is accepted");
    }
    tables
}

/// Scattered, with many ties.
fn priority(n: usize) -> i32 {
    i32::try_from(n * 7_919 % 97).expect("it is below 97")
}

fn limit(limit: u32) -> Command {
    LimitLane { tenant: Tenant::default(), lane: lane(), limit: Some(limit) }.into()
}

fn run(tables: &ReferenceTables, hints: Hints, commands: &[Command], order: Order) -> Batch {
    batch::run(tables, START.plus_ms(1), hints, commands, order)
}

/// The hints that a batch of claims leaves behind.
fn learned(tables: &ReferenceTables) -> Hints {
    run(tables, Hints::default(), &[claim(1).into()], Order::Fixed).hints
}

/// Rows of (routes, limit of the lane, whether the routes were guessed) -> most rounds.
#[test]
fn claims_of_one_batch_do_not_race_for_one_candidate() {
    let rows = [
        (1, None, false, 3),
        (1, None, true, 2),
        (2, None, false, 3),
        (2, None, true, 2),
        (7, None, false, 3),
        (1, Some(1_000), false, 3),
        (2, Some(50), false, 3),
        (2, Some(50), true, 2),
    ];
    for (routes, most, guessed, rounds) in rows {
        for order in [Order::Fixed, Order::Free] {
            let row = format!("{routes} routes, {most:?}, guessed {guessed}, {order:?}");
            let mut tables = filled(300, routes);
            if let Some(most) = most {
                tables.execute(START, &limit(most)).expect("the lane exists");
            }
            let hints = if guessed { learned(&tables) } else { Hints::default() };
            let batch = run(&tables, hints, &vec![claim(1).into(); 200], order);
            let ids: Vec<String> = batch.outcomes.iter().flat_map(claimed).collect();
            assert_eq!(ids.len(), most.map_or(200, |most| most.min(200)) as usize, "{row}");
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{row}");
            assert!(batch.rounds <= rounds, "{row}: {} rounds", batch.rounds);
            tables.commit(&batch.changes).expect("only this test writes to the reference tables");
        }
    }
}

/// A claim that is parked on its second lane keeps its picks from the first, so that claims behind
/// it continue with the next rows at once.
#[test]
fn claims_over_two_lanes_do_not_race_either() {
    let mut tables = filled(150, 2);
    let other = |n: u32| NewTask { lane: "other".into(), ..new_task(&format!("other{n:03}")) };
    let create = Create { tenant: Tenant::default(), tasks: (0..150).map(other).collect() };
    tables.execute(START, &create.into()).expect("a fixture is accepted");
    let mut both = claim(1);
    both.lanes.push("other".into());
    for order in [Order::Fixed, Order::Free] {
        let batch = run(&tables, Hints::default(), &vec![both.clone().into(); 250], order);
        let ids: BTreeSet<String> = batch.outcomes.iter().flat_map(claimed).collect();
        assert_eq!(ids.len(), 250, "{order:?}");
        assert!(batch.rounds <= 4, "{order:?}: {} rounds", batch.rounds);
    }
}

/// The ids of `filled`, without `gone` and with `added`, in the order of a lane.
fn in_order(count: usize, gone: &BTreeSet<String>, added: &[(String, i32)]) -> Vec<String> {
    let filled = (0..count).map(|n| (format!("{n:04}"), priority(n), 0));
    let later = added.iter().map(|(id, priority)| (id.clone(), *priority, 1));
    let mut all: Vec<_> = filled.chain(later).filter(|(id, ..)| !gone.contains(id)).collect();
    all.sort_by_key(|(id, priority, ready)| (-priority, *ready, id.clone()));
    all.into_iter().map(|(id, ..)| id).collect()
}

#[test]
fn the_order_is_right_across_pages() {
    for routes in [1, 3] {
        let tables = filled(1_000, routes);
        let commands: Vec<Command> = vec![claim(50).into(); 10];
        let batch = run(&tables, Hints::default(), &commands, Order::Fixed);
        let found: Vec<String> = batch.outcomes.iter().flat_map(claimed).collect();
        assert_eq!(found, in_order(1_000, &BTreeSet::new(), &[])[..500], "{routes} routes");
    }
}

/// The first tasks are cancelled before the claims are decided, and others are added: the first
/// page is not enough, and added tasks take their positions, also behind the loaded ones.
#[test]
fn a_scan_trusts_only_what_was_loaded() {
    let tables = filled(1_000, 1);
    let gone: BTreeSet<String> =
        in_order(1_000, &BTreeSet::new(), &[]).into_iter().take(90).collect();
    let added: Vec<(String, i32)> = (0..97).map(|n| (format!("added{n:02}"), n)).collect();
    let hints = learned(&tables);
    let cancels = gone.iter().map(|id| {
        let cancel = windlass_core::command::Cancel { task: key(id), reason: String::new() };
        Command::from(cancel)
    });
    let creates = added.iter().map(|(id, priority)| {
        Command::from(Create::one(NewTask { priority: *priority, ..new_task(id) }))
    });
    let claims = std::iter::repeat_n(Command::from(claim(7)), 60);
    let commands: Vec<Command> = cancels.chain(creates).chain(claims).collect();
    let batch = run(&tables, hints, &commands, Order::Fixed);
    assert!(batch.rounds > 2, "one page was enough: this shows nothing");
    let claims = &batch.outcomes[gone.len() + added.len()..];
    let found: Vec<String> = claims.iter().flat_map(claimed).collect();
    assert_eq!(found, in_order(1_000, &gone, &added)[..420]);
}

/// Outdated guesses, whose routes do not exist, and none at all: the responses are the same.
#[test]
fn wrong_guesses_change_no_answer() {
    let (tables, elsewhere) = (filled(120, 3), filled(120, 7));
    let mut picky = claim(4);
    picky.capabilities.tags = TagFilter::Only(BTreeSet::from(["route1".to_owned()]));
    let create = Create::one(NewTask { tag: Some("fresh".into()), ..new_task("fresh") });
    let commands: Vec<Command> =
        vec![claim(3).into(), create.into(), picky.into(), claim(200).into(), claim(1).into()];
    for order in [Order::Fixed, Order::Free] {
        let right = run(&tables, learned(&tables), &commands, order);
        for hints in [Hints::default(), learned(&elsewhere), learned(&filled(1, 1))] {
            let other = run(&tables, hints.clone(), &commands, order);
            if order == Order::Fixed {
                assert_eq!(other.outcomes, right.outcomes, "{hints:?}");
                assert_eq!(other.changes, right.changes, "{hints:?}");
            }
            let all = |batch: &Batch| -> BTreeSet<String> {
                let claims = [0, 2, 3, 4].map(|at| claimed(&batch.outcomes[at]));
                claims.into_iter().flatten().collect()
            };
            assert_eq!(all(&other), all(&right), "{order:?} {hints:?}");
        }
    }
}

/// The number of loads must not grow with the number of due tasks.
#[test]
fn a_sweep_needs_a_few_rounds_for_a_full_page() {
    for due in [0, 1, 10, 256, 300] {
        let mut tables = ReferenceTables::default();
        let delayed = |n: u64| {
            let delay = Delay::For { ms: 1_000 + n % 3 };
            NewTask { delay, ..new_task(&format!("{n}")) }
        };
        if due > 0 {
            let tasks = (0..due).map(delayed).collect();
            let create = Create { tenant: Tenant::default(), tasks };
            tables.execute(START, &create.into()).expect("a fixture is accepted");
        }
        let sweep = [Sweep::default().into()];
        let now = START.plus_ms(2_000);
        let batch = batch::run(&tables, now, Hints::default(), &sweep, Order::Fixed);
        let Ok(Outcome::Swept { swept, .. }) = batch.outcomes[0] else { panic!("not a sweep") };
        assert_eq!(swept as u64, due.min(256));
        assert!(batch.rounds <= 5, "{due} due: {} rounds", batch.rounds);
    }
}

/// A parent with this many children, each in its own limited lane, all of them leased.
fn family(children: usize) -> (ReferenceTables, Vec<Command>) {
    let mut tables = ReferenceTables::default();
    let mut tasks = vec![new_task("parent")];
    tasks.extend((0..children).map(|n| NewTask {
        parent: Some("parent".into()),
        lane: format!("lane{n}").as_str().into(),
        ..new_task(&format!("child{n}"))
    }));
    let create = Create { tenant: Tenant::default(), tasks };
    tables.execute(START, &create.into()).expect("a fixture is accepted");
    let mut ends = Vec::new();
    for n in 0..children {
        let lane = windlass_core::LaneName::new(format!("lane{n}"));
        let limit = LimitLane { tenant: Tenant::default(), lane: lane.clone(), limit: Some(1) };
        tables.execute(START, &limit.into()).expect("the lane exists");
        let claim = Claim { lanes: vec![lane], ..claim(1) };
        let claimed = tables.execute(START, &claim.into());
        let Ok(Outcome::Claimed(tasks)) = claimed else { panic!("{claimed:?}") };
        ends.push(Complete { fence: tasks[0].fence(), result: None }.into());
    }
    (tables, ends)
}

/// The number of loads must not grow with the number of children, whether they complete or are
/// cancelled.
#[test]
fn a_parent_with_many_children_needs_a_few_rounds() {
    for children in [1, 10, 60] {
        let (tables, mut ends) = family(children);
        let mut waiting = tables.clone();
        let claimed = waiting.execute(START, &claim(1).into());
        let Ok(Outcome::Claimed(tasks)) = claimed else { panic!("{claimed:?}") };
        ends.insert(0, WaitChildren { fence: tasks[0].fence() }.into());
        let batch = run(&waiting, Hints::default(), &ends, Order::Fixed);
        assert!(batch.outcomes.iter().all(Result::is_ok));
        assert!(batch.rounds <= 5, "{children} end: {} rounds", batch.rounds);

        let mut called_off = tables;
        let cancel = Cancel { task: key("parent"), reason: String::new() };
        called_off.execute(START, &cancel.into()).expect("it is open");
        let batch = run(&called_off, Hints::default(), &[Sweep::default().into()], Order::Fixed);
        let cancelled = batch.changes.events.len();
        assert_eq!(cancelled, children);
        assert!(batch.rounds <= 8, "{children} are cancelled: {} rounds", batch.rounds);
    }
}

/// Concurrency limits or sessions with two tasks each; `limit_key` makes their keys.
fn with_limits(
    count: usize,
    limit_key: fn(String) -> LimitKey,
    quota: Option<&SetQuota>,
) -> ReferenceTables {
    let mut tables = ReferenceTables::default();
    for n in 0..count {
        let scope = match limit_key(format!("{n}")) {
            LimitKey::Concurrency(name) => QuotaScope::Concurrency(name),
            LimitKey::Session(name) => QuotaScope::Session(name),
            LimitKey::Affinity(_) => unreachable!("an affinity has no quota"),
        };
        if let Some(quota) = quota {
            let quota = SetQuota { scope, ..quota.clone() };
            tables.execute(START, &quota.into()).expect("a fixture is accepted");
        }
        let task = |which: &str| NewTask {
            limit_key: Some(limit_key(format!("{n}"))),
            lane: format!("lane{}", n % 100).as_str().into(),
            ..new_task(&format!("{which}{n}"))
        };
        let create = Create { tenant: Tenant::default(), tasks: ["a", "b"].map(task).into() };
        tables.execute(START, &create.into()).expect("a fixture is accepted");
    }
    tables
}

fn claim_all(tables: &mut ReferenceTables, count: usize, registered: bool) {
    let lanes = (0..count.min(100)).map(|n| format!("lane{n}").as_str().into()).collect();
    let mut claim = Claim { lanes, registered, ..claim(1_000) };
    claim.capabilities.names.insert(SESSIONS.to_owned());
    let claimed = tables.execute(START, &claim.into());
    assert!(matches!(claimed, Ok(Outcome::Claimed(tasks)) if tasks.len() >= count));
}

/// Many leases expire together, each with a concurrency key that other tasks wait for.
#[test]
fn leases_with_keys_expire_in_a_few_rounds() {
    for keys in [1, 10, 250] {
        let mut tables = with_limits(keys, LimitKey::Concurrency, None);
        claim_all(&mut tables, keys, false);
        let sweep = [Sweep::default().into()];
        let now = START.plus_ms(60_000);
        let batch = batch::run(&tables, now, Hints::default(), &sweep, Order::Fixed);
        assert!(batch.rounds <= 8, "{keys} keys: {} rounds", batch.rounds);
    }
}

/// Many rate limits admit their next tasks at the same time.
#[test]
fn rate_limits_reopen_in_a_few_rounds() {
    let rate = Some(Rate { limit: 1, window_ms: 10_000 });
    let (tenant, scope) = (Tenant::default(), QuotaScope::Tenant);
    let quota = SetQuota { tenant, scope, limit: None, rate };
    for keys in [1, 10, 250] {
        let mut tables = with_limits(keys, LimitKey::Concurrency, Some(&quota));
        claim_all(&mut tables, keys, false);
        let sweep = [Sweep::default().into()];
        let now = START.plus_ms(20_000);
        let batch = batch::run(&tables, now, Hints::default(), &sweep, Order::Fixed);
        assert!(batch.rounds <= 8, "{keys} keys: {} rounds", batch.rounds);
    }
}

/// A worker claims the first tasks of many sessions, each of which has more ready tasks.
#[test]
fn sessions_are_claimed_in_a_few_rounds() {
    let (tenant, scope) = (Tenant::default(), QuotaScope::Tenant);
    let quota = SetQuota { tenant, scope, limit: Some(2), rate: None };
    for sessions in [1, 10, 200] {
        let mut tables = with_limits(sessions, LimitKey::Session, Some(&quota));
        let lanes = (0..sessions.min(100)).map(|n| format!("lane{n}").as_str().into()).collect();
        let mut claim = Claim { lanes, ..claim(sessions as u32) };
        claim.capabilities.names.insert(SESSIONS.to_owned());
        let batch = run(&tables, Hints::default(), &[claim.into()], Order::Fixed);
        assert!(batch.rounds <= 16, "{sessions} sessions: {} rounds", batch.rounds);
        tables.commit(&batch.changes).expect("only this test writes to the reference tables");
    }
}

/// Many workers die together, each with a lease of a concurrency key that other tasks wait for.
#[test]
fn dead_workers_are_swept_in_a_few_rounds() {
    for workers in [1, 10, 250] {
        let mut tables = with_limits(workers, LimitKey::Concurrency, None);
        for n in 0..workers {
            let lanes = vec![format!("lane{}", n % 100).as_str().into()];
            let (id, heartbeat_interval_ms) = (format!("w{n}").as_str().into(), 1_000);
            let (tenant, capabilities) = (Tenant::default(), WorkerCapabilities::default());
            let register = RegisterWorker {
                tenant,
                id,
                lanes: lanes.iter().cloned().collect(),
                capabilities,
                heartbeat_interval_ms,
                held: None,
            };
            tables.execute(START, &register.clone().into()).expect("a fixture is accepted");
            let claim = Claim { lanes, registered: true, worker: register.id, ..claim(1) };
            tables.execute(START, &claim.into()).expect("a fixture is accepted");
        }
        let sweep = [Sweep::default().into()];
        let missed = START.plus_ms(2_500);
        tables.execute(missed, &sweep[0]).expect("a sweep is accepted");
        let now = START.plus_ms(10_000);
        let batch = batch::run(&tables, now, Hints::default(), &sweep, Order::Fixed);
        assert!(batch.rounds <= 14, "{workers} workers: {} rounds", batch.rounds);
    }
}
