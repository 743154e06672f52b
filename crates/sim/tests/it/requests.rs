//! Real crashes around a call that must be made once: processes that are killed with signal 9 at
//! each step from the request to its answer, at any time, and storms of identical calls from one
//! and from two processes. The bank records every call, deduplicates nothing, and is never killed.
//!
//! At most one live process works on a key at any time, except in a storm, where requests are in
//! flight for far longer than the storm. So no call reaches the bank after another process has
//! looked it up: a killed process has written all its bytes, and the bank reads them before it
//! reports that there is no record. Only a fence stops a live process that is slower than its
//! lease.

#![allow(clippy::unwrap_used, reason = "a test that meets what it does not expect fails")]

mod judge;
#[path = "../../src/bin/kill-request/line.rs"]
mod line;
mod point;
mod process;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use windlass_store_test::Random;
use windlass_store_test::differential::seeds;

use crate::bank::Entry;
use judge::{Judge, not_replayed};
use line::{Ask, By, Instruction, Line};
use point::{Chain, chains};
use process::{NO_POINT, Place, Process};

/// The minimum, so that retries follow soon.
const SHORT_MS: u64 = 1_000;
/// Longer than any storm.
const LONG_MS: u64 = 600_000;
/// The number of parallel processes, most of which wait. A file has one writer at a time.
const ON_SQLITE: usize = 6;
const ON_POSTGRES: usize = 12;
/// The number of keys that one process retries.
const AT_ONCE: usize = 64;
/// A round counts as this many seeds of a test that starts no processes.
const SLOWER: u64 = 200;
const CENTS: u64 = 1_250;

#[test]
fn a_kill_at_any_point_calls_once_on_sqlite() {
    kill_at_every_point(&Place::sqlite(SHORT_MS), "sqlite", ON_SQLITE);
}

#[test]
fn a_kill_at_any_point_calls_once_on_postgres() {
    kill_at_every_point(&Place::postgres(SHORT_MS), "postgres", ON_POSTGRES);
}

#[test]
fn a_kill_at_any_moment_calls_once_on_sqlite() {
    kill_at_any_moment(&Place::sqlite(SHORT_MS), "sqlite");
}

#[test]
fn a_kill_at_any_moment_calls_once_on_postgres() {
    kill_at_any_moment(&Place::postgres(SHORT_MS), "postgres");
}

#[test]
fn a_storm_calls_once_on_sqlite() {
    let place = Place::sqlite(LONG_MS);
    storms(&place, 1);
    storms(&place, 2);
}

#[test]
fn a_storm_calls_once_on_postgres() {
    let place = Place::postgres(LONG_MS);
    storms(&place, 1);
    storms(&place, 2);
}

fn ask(by: By, key: &str) -> Ask {
    Ask { by, key: key.to_owned(), cents: CENTS, times: 1, holds: false }
}

fn kill_at_every_point(place: &Place, store: &str, at_once: usize) {
    let (begun, rounds) = (Instant::now(), seeds(0..2, SLOWER));
    let chains: Vec<Chain> = rounds.clone().flat_map(chains).collect();
    let (left, judge) = (Mutex::new(chains.iter()), Mutex::new(Judge::default()));
    let problems = Mutex::new(Vec::new());
    let work = || {
        loop {
            let Some(chain) = left.lock().unwrap().next() else { return };
            for point in &chain.points {
                let mut process = place.process(point, std::slice::from_ref(&chain.key));
                process.tell(&Instruction::Ask(ask(chain.by, &chain.key)));
                match process.killed() {
                    Ok(said) => judge.lock().unwrap().hear(&said),
                    Err(problem) => {
                        problems.lock().unwrap().push(format!("{chain:?} at {point}: {problem}"));
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(work))));
    let asks: Vec<Ask> = chains.iter().map(|chain| ask(chain.by, &chain.key)).collect();
    problems.lock().unwrap().extend(end(place, &mut judge.lock().unwrap(), &asks));
    must(&problems.into_inner().unwrap(), &rounds, "a_kill_at_any_point");
    let mut kills = BTreeMap::<String, usize>::new();
    for Chain { by, points, .. } in &chains {
        points.iter().for_each(|at| *kills.entry(format!("{by:?} {at}")).or_default() += 1);
    }
    let (count, time) = (kills.values().sum::<usize>(), begun.elapsed());
    eprintln!("{store}: {count} kills of {} keys in {time:.1?}: {kills:#?}", chains.len());
}

/// One process after the other, each killed some time after its commands.
fn kill_at_any_moment(place: &Place, store: &str) {
    const KEYS: usize = 8;
    let (begun, rounds) = (Instant::now(), seeds(0..4, SLOWER));
    let (mut judge, mut asks) = (Judge::default(), Vec::<Ask>::new());
    // The number of kills with open requests.
    let mut cut = 0;
    for round in rounds.clone() {
        let mut random = Random::new(round);
        for nth in 0..KEYS {
            let by = *random.pick(&[By::Request, By::Task]);
            asks.push(ask(by, &format!("{by:?}-{nth}-in-round-{round}")));
        }
        // Some live long enough to retry the in-flight requests of earlier processes.
        let least_us = if random.percent(30) { 1_000 * SHORT_MS } else { 0 };
        let most_us = *random.pick(&[3_000, 10_000, 50_000]);
        let pause = Duration::from_micros(least_us + random.below(most_us));
        let open: Vec<Ask> = asks.iter().filter(|ask| !judge.knows(&ask.key)).cloned().collect();
        let mut process = place.process(NO_POINT, &lanes(&open));
        process.until(|line| *line == Line::Ready);
        open.iter().for_each(|ask| process.tell(&Instruction::Ask(ask.clone())));
        std::thread::sleep(pause);
        judge.hear(&process.kill());
        cut += usize::from(open.iter().any(|ask| !judge.knows(&ask.key)));
    }
    must(&end(place, &mut judge, &asks), &rounds, "a_kill_at_any_moment");
    let (keys, time, rounds) = (asks.len(), begun.elapsed(), rounds.count());
    eprintln!("{store}: {rounds} kills of {keys} keys, {cut} with open requests, in {time:.1?}");
}

/// Retries everything twice. Returns the violations.
fn end(place: &Place, judge: &mut Judge, asks: &[Ask]) -> Vec<String> {
    let keys: Vec<String> = asks.iter().map(|ask| ask.key.clone()).collect();
    let retry_some = |asks: &[Ask]| {
        let mut process = place.process(NO_POINT, &lanes(asks));
        asks.iter().for_each(|ask| process.tell(&Instruction::Ask(ask.clone())));
        process.ended()
    };
    let retry = || asks.chunks(AT_ONCE).flat_map(retry_some).collect::<Vec<Line>>();
    judge.hear(&retry());
    let replays = retry();
    judge.hear(&replays);
    let again = not_replayed(&keys, &replays).into_iter();
    let again = again.map(|key| format!("{key}: the last retry was not a replay"));
    judge.broken(&keys, &place.books()).into_iter().chain(again).collect()
}

fn lanes(asks: &[Ask]) -> Vec<String> {
    asks.iter().filter(|ask| ask.by == By::Task).map(|ask| ask.key.clone()).collect()
}

fn must(problems: &[String], rounds: &Range<u64>, test: &str) {
    let seeds = match rounds.clone().count() {
        1 => format!("WINDLASS_SEED={}", rounds.start),
        _ => format!("WINDLASS_SEEDS={}", SLOWER * rounds.end),
    };
    let reproduce = format!("{seeds} cargo test -p windlass-sim --test it {test}");
    assert!(problems.is_empty(), "{}\nreproduce: {reproduce}", problems.join("\n"));
}

fn storms(place: &Place, count: usize) {
    let mut processes: Vec<Process> = (0..count).map(|_| place.process(NO_POINT, &[])).collect();
    for process in &mut processes {
        process.until(|line| *line == Line::Ready);
    }
    let mut asked = BTreeMap::new();
    for times in [2, 16, 256] {
        let storm = Ask { times, ..ask(By::Request, &storm_key("free", times, count)) };
        processes.iter_mut().for_each(|process| process.tell(&Instruction::Ask(storm.clone())));
        asked.insert(storm.key, times * count);
    }
    for times in [2, 16, 256] {
        let key = storm_key("held", times, count);
        storm_in_flight(&mut processes, &key, times);
        asked.insert(key, times * count);
    }
    for process in &mut processes {
        process.tell(&Instruction::Go);
    }
    let said: Vec<Line> = processes.into_iter().flat_map(Process::ended).collect();
    let responses: Vec<Line> =
        said.into_iter().filter(|it| matches!(it, Line::Responded { .. })).collect();
    let mut judge = Judge::default();
    judge.hear(&responses);
    let keys: Vec<String> = asked.keys().cloned().collect();
    let own = |entry: &Entry| asked.contains_key(&entry.order);
    let books: Vec<_> = place.books().into_iter().filter(own).collect();
    assert_eq!(judge.broken(&keys, &books), [""; 0], "{count} processes");
    for (key, times) in asked {
        let of_key = |line: &&Line| matches!(line, Line::Responded { key: of, .. } if *of == key);
        let first = |line: &&Line| matches!(line, Line::Responded { replayed: false, .. });
        let answers = responses.iter().filter(of_key).count();
        assert_eq!(answers, times, "{key}: every call is answered");
        let firsts = responses.iter().filter(of_key).filter(first).count();
        assert_eq!(firsts, 1, "{key}: exactly one answer is not a replay");
    }
}

fn storm_key(name: &str, times: usize, processes: usize) -> String {
    format!("{name}-{times}-times-from-{processes}-processes")
}

/// One handler is held while all others send the same request. A conflicting request under its
/// key is rejected before it continues.
fn storm_in_flight(processes: &mut [Process], key: &str, times: usize) {
    let held = Ask { holds: true, ..ask(By::Request, key) };
    processes[0].tell(&Instruction::Ask(held.clone()));
    processes[0].until(|line| matches!(line, Line::Begun { key: of } if of == key));
    for (nth, process) in processes.iter_mut().enumerate() {
        let times = if nth == 0 { times - 1 } else { times };
        process.tell(&Instruction::Ask(Ask { times, ..held.clone() }));
        process.tell(&Instruction::Ask(Ask { cents: CENTS + 1, ..held.clone() }));
    }
    for process in processes {
        let is_of_key = |line: &Line| match line {
            Line::Responded { key: of, .. } | Line::Rejected { key: of, .. } => of == key,
            Line::Ready | Line::Begun { .. } => false,
        };
        let said = process.until(is_of_key).last().cloned();
        let code = "idempotency_conflict".to_owned();
        assert_eq!(said, Some(Line::Rejected { key: key.to_owned(), code }), "in flight");
    }
}
