//! Filtered and durable subscriptions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use windlass_core::command::{Create, NewTask, SetLaneState};
use windlass_core::{Cursor, EventCategory, LaneState, LogEvent, Tenant};
use windlass_engine::{Config, Engine, Error, EventFilter};
use windlass_store_test::{Call, Failure, FaultStore};

use crate::stage::{Stage, claim_now, complete, create, quiet, until};

fn labels(region: &str) -> BTreeMap<String, String> {
    [("region".to_owned(), region.to_owned())].into()
}

async fn create_in(engine: &Engine, id: &str, lane: &str, region: &str) {
    let kind = if region == "eu" { "email" } else { "fax" };
    let new = NewTask { lane: lane.into(), labels: labels(region), ..NewTask::new(id, kind) };
    engine.submit(Create::one(new)).await.unwrap();
}

fn seen(events: &[LogEvent]) -> Vec<String> {
    let id = |event: &LogEvent| event.task.as_ref().map_or(String::new(), ToString::to_string);
    events.iter().map(|event| format!("{} {}", event.name, id(event)).trim().to_owned()).collect()
}

#[tokio::test]
async fn a_filter_returns_matching_events() {
    let Stage { engine, .. } = Stage::new().await;
    create_in(&engine, "a", "mail", "eu").await;
    create_in(&engine, "b", "mail", "us").await;
    create_in(&engine, "c", "bulk", "eu").await;
    let (tenant, lane) = (Tenant::default(), "mail".into());
    engine.submit(SetLaneState { tenant, lane, state: LaneState::Paused }).await.unwrap();
    let any = EventFilter::default;
    for (filter, expected) in [
        (any(), "created a, created b, created c, lane_state_changed"),
        (EventFilter { categories: [EventCategory::Lane].into(), ..any() }, "lane_state_changed"),
        (EventFilter { lanes: ["bulk".into()].into(), ..any() }, "created c"),
        (EventFilter { kinds: ["fax".into()].into(), ..any() }, "created b"),
        (EventFilter { labels: labels("eu"), ..any() }, "created a, created c"),
        (EventFilter { labels: labels("eu"), lanes: ["mail".into()].into(), ..any() }, "created a"),
        (EventFilter { tenant: Some("other".into()), ..any() }, ""),
    ] {
        let mut log = engine.subscribe_with(filter.clone(), None).await.unwrap();
        let events = log.read().await.unwrap();
        assert_eq!(seen(&events).join(", "), expected, "{filter:?}");
        assert!(log.read().await.unwrap().is_empty());
        assert_eq!(log.cursor().seq, 4, "filtered-out events are read as well");
    }
}

#[tokio::test]
async fn a_filter_still_works_when_the_task_is_deleted() {
    let Stage { engine, clock, .. } = Stage::new().await;
    let mut new = NewTask { labels: labels("eu"), ..NewTask::new("a", "k") };
    new.policy.retention_ms = 0;
    engine.submit(Create::one(new)).await.unwrap();
    claim_now(&engine).await;
    engine.submit(complete(&engine, "a", 1).await).await.unwrap();
    clock.advance_ms(1);
    engine.sweep().await.unwrap();
    let filter = EventFilter { labels: labels("eu"), ..EventFilter::default() };
    let mut log = engine.subscribe_with(filter, None).await.unwrap();
    let events = log.read().await.unwrap();
    assert_eq!(seen(&events), ["created a", "claimed a", "completed a", "deleted a"]);
}

#[tokio::test]
async fn a_rare_event_is_found_behind_many_others() {
    let Stage { engine, .. } = Stage::new().await;
    let filter = EventFilter { lanes: ["rare".into()].into(), ..EventFilter::default() };
    let mut log = engine.subscribe_with(filter, None).await.unwrap();
    let waiting = tokio::spawn(async move { (log.next().await.unwrap(), log) });
    for n in 0..1_200 {
        engine.submit(create(&n.to_string())).await.unwrap();
    }
    create_in(&engine, "r", "rare", "eu").await;
    let (events, log) = waiting.await.unwrap();
    assert_eq!(seen(&events), ["created r"]);
    assert_eq!(log.cursor().seq, 1_201);
}

#[tokio::test]
async fn a_durable_subscription_continues_from_its_cursor() {
    let Stage { engine, memory, .. } = Stage::new().await;
    for id in ["a", "b", "c"] {
        engine.submit(create(id)).await.unwrap();
    }
    let mut log = engine.subscribe_durable("mailer", EventFilter::default()).await.unwrap();
    let first = log.read().await.unwrap();
    assert_eq!(seen(&first), ["created a", "created b", "created c"]);
    let incarnation = log.cursor().incarnation.clone();
    let at = |seq| Cursor { incarnation: incarnation.clone(), seq };
    assert_eq!(log.ack(&at(2)).await.unwrap(), at(2));
    assert_eq!(log.ack(&at(1)).await.unwrap(), at(2), "a late acknowledgement is ignored");
    drop(log);
    // A later subscription on another engine: unacknowledged events are redelivered.
    let other = Engine::with_store(memory.another(), quiet()).await.unwrap();
    let mut log = other.subscribe_durable("mailer", EventFilter::default()).await.unwrap();
    assert_eq!(seen(&log.read().await.unwrap()), ["created c"]);
    assert_eq!(log.ack_all().await.unwrap(), at(3));
    let stored = engine.subscription_cursor(&Tenant::default(), "mailer").await.unwrap().unwrap();
    assert_eq!(stored.cursor, at(3));
    // Acknowledgements write no events, so reading the log does not grow it.
    assert!(log.read().await.unwrap().is_empty());
    let mut fresh = engine.subscribe_durable("auditor", EventFilter::default()).await.unwrap();
    assert_eq!(fresh.read().await.unwrap().len(), 3);
    fresh.ack_all().await.unwrap();
    let stored = engine.subscription_cursors(&Tenant::default(), None, 10).await.unwrap();
    let names: Vec<&str> = stored.iter().map(|stored| stored.name.as_str()).collect();
    assert_eq!(names, ["auditor", "mailer"]);
    assert!(engine.delete_subscription(&Tenant::default(), "mailer").await.unwrap());
    assert!(!engine.delete_subscription(&Tenant::default(), "mailer").await.unwrap());
    let mut again = engine.subscribe_durable("mailer", EventFilter::default()).await.unwrap();
    assert_eq!(again.read().await.unwrap().len(), 3);
}

/// A subscription to rare events reads all others and does not fall behind the log.
#[tokio::test]
async fn a_durable_subscription_advances_past_filtered_out_events() {
    let Stage { engine, .. } = Stage::new().await;
    let rare = || EventFilter { lanes: ["rare".into()].into(), ..EventFilter::default() };
    let place = async |engine: &Engine| {
        let stored = engine.subscription_cursor(&Tenant::default(), "mailer").await.unwrap();
        stored.map_or(0, |stored| stored.cursor.seq)
    };
    create_in(&engine, "r", "rare", "eu").await;
    let mut log = engine.subscribe_durable("mailer", rare()).await.unwrap();
    assert_eq!(seen(&log.next().await.unwrap()), ["created r"]);
    for n in 0..1_200 {
        engine.submit(create(&n.to_string())).await.unwrap();
    }
    let waits = tokio::time::timeout(Duration::from_millis(1), log.next());
    assert!(waits.await.is_err());
    assert_eq!(place(&engine).await, 0, "delivered events are not acknowledged");
    log.ack(&Cursor { seq: 1, ..log.cursor().clone() }).await.unwrap();
    let waiting = tokio::spawn(async move { log.next().await.unwrap() });
    while place(&engine).await < 1_001 {
        tokio::task::yield_now().await;
    }
    create_in(&engine, "s", "rare", "eu").await;
    assert_eq!(seen(&waiting.await.unwrap()), ["created s"]);
    assert_eq!(place(&engine).await, 1_201, "the last event is not acknowledged");
    let mut again = engine.subscribe_durable("mailer", rare()).await.unwrap();
    assert_eq!(seen(&again.read().await.unwrap()), ["created s"]);
}

#[tokio::test]
async fn a_durable_subscription_belongs_to_its_tenant() {
    let Stage { engine, .. } = Stage::new().await;
    engine.submit(create("a")).await.unwrap();
    let of = |tenant: &str| EventFilter { tenant: Some(tenant.into()), ..EventFilter::default() };
    let mut acme = engine.subscribe_durable("mailer", of("acme")).await.unwrap();
    assert!(acme.read().await.unwrap().is_empty());
    acme.ack_all().await.unwrap();
    let mut own = engine.subscribe_durable("mailer", of("default")).await.unwrap();
    assert_eq!(own.read().await.unwrap().len(), 1);
    assert_eq!(engine.subscribe_durable("", of("default")).await.unwrap().name(), "");
    let nameless = engine.subscribe_durable("", of("default")).await.unwrap();
    assert_eq!(nameless.ack_all().await.unwrap_err().code(), "invalid");
}

#[tokio::test]
async fn a_durable_subscription_behind_the_trimmed_log_expires() {
    let config = Config { event_retention: Duration::from_secs(60), ..quiet() };
    let Stage { engine, clock, .. } = Stage::with(config).await;
    engine.submit(create("a")).await.unwrap();
    let mut log = engine.subscribe_durable("mailer", EventFilter::default()).await.unwrap();
    log.read().await.unwrap();
    log.ack_all().await.unwrap();
    engine.submit(create("b")).await.unwrap();
    clock.advance_ms(60_001);
    engine.submit(create("c")).await.unwrap();
    assert_eq!(engine.trim_log().await.unwrap(), 2);
    let mut log = engine.subscribe_durable("mailer", EventFilter::default()).await.unwrap();
    let Err(Error::CursorExpired(expired)) = log.next().await else { panic!() };
    log.seek(expired.oldest);
    assert_eq!(seen(&log.next().await.unwrap()), ["created c"]);
    assert_eq!(log.ack_all().await.unwrap().seq, 3);
}

#[tokio::test]
async fn an_event_stream_ends_with_a_cursor_to_continue_from() {
    let Stage { engine, memory, .. } = Stage::new().await;
    let filter = EventFilter { categories: [EventCategory::Task].into(), ..EventFilter::default() };
    let mut events = engine.subscribe_with(filter.clone(), None).await.unwrap().into_stream();
    engine.submit(create("a")).await.unwrap();
    claim_now(&engine).await;
    engine.submit(create("b")).await.unwrap();
    for id in ["a", "b"] {
        let event = events.next().await.unwrap().unwrap();
        assert_eq!(seen(&[event]), [format!("created {id}")]);
    }
    let waiting = tokio::spawn(async move { (events.next().await, events) });
    until(|| true).await;
    engine.shutdown().await.unwrap();
    let (ended, mut events) = waiting.await.unwrap();
    let Some(Err(Error::Disconnected { cursor, cause })) = ended else { panic!("{ended:?}") };
    assert_eq!((cursor.seq, cause.code()), (3, "shutting_down"));
    assert!(events.next().await.is_none(), "the stream has ended");
    let engine = Engine::with_store(memory.another(), quiet()).await.unwrap();
    engine.submit(create("c")).await.unwrap();
    let mut events = engine.subscribe_with(filter, Some(cursor)).await.unwrap().into_stream();
    let event = events.next().await.unwrap().unwrap();
    assert_eq!(seen(&[event]), ["created c"]);
}

#[tokio::test]
async fn an_unavailable_store_ends_a_subscription_with_its_cursor() {
    let stage = Stage::new().await;
    let faults = FaultStore::new(Arc::new(stage.memory.another()));
    let engine = Engine::with_store(faults.clone(), quiet()).await.unwrap();
    engine.submit(create("a")).await.unwrap();
    let mut log = engine.subscribe(None).await.unwrap();
    assert_eq!(log.next().await.unwrap().len(), 1);
    faults.fail_times(Call::Events, 1, Failure::Unavailable);
    let Err(Error::Disconnected { cursor, cause }) = log.next().await else { panic!() };
    assert_eq!((cursor.seq, cause.code()), (1, "store_unavailable"));
    engine.submit(create("b")).await.unwrap();
    assert_eq!(seen(&log.next().await.unwrap()), ["created b"], "the subscription can be retried");
}
