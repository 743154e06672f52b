use std::time::Duration;

use windlass_core::Cursor;
use windlass_engine::{Config, Error};

use crate::stage::{Stage, claim_now, complete, create, quiet, until};

#[tokio::test]
async fn a_subscriber_sees_every_event_in_order() {
    let stage = Stage::new().await;
    let mut subscription = stage.engine.subscribe(None).await.unwrap();
    for n in 0..700 {
        stage.engine.submit(create(&format!("{n:03}"))).await.unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 700 {
        seen.extend(subscription.next().await.unwrap());
    }
    let seqs: Vec<u64> = seen.iter().map(|logged| logged.seq).collect();
    assert_eq!(seqs, (1..=700).collect::<Vec<_>>());

    let cursor = subscription.cursor().clone();
    let waiting = tokio::spawn(async move { subscription.next().await });
    claim_now(&stage.engine).await;
    let next = waiting.await.unwrap().unwrap();
    assert_eq!(next[0].name, "claimed");
    let mut resumed = stage.engine.subscribe(Some(cursor)).await.unwrap();
    assert_eq!(resumed.next().await.unwrap()[0].seq, 701);
}

#[tokio::test]
async fn a_cursor_behind_the_trimmed_log_expires() {
    let config = Config { event_retention: Duration::from_secs(60), ..quiet() };
    let stage = Stage::with(config).await;
    stage.engine.submit(create("a")).await.unwrap();
    stage.engine.submit(create("b")).await.unwrap();
    let mut subscription = stage.engine.subscribe(None).await.unwrap();
    let start = subscription.cursor().clone();
    stage.clock.advance_ms(60_000);
    stage.engine.submit(create("c")).await.unwrap();
    assert_eq!(stage.engine.trim_log().await.unwrap(), 2);
    let Err(Error::CursorExpired(expired)) = subscription.next().await else { panic!() };
    assert_eq!(expired.oldest.seq, 2);
    let mut fresh = stage.engine.subscribe(Some(expired.oldest)).await.unwrap();
    assert_eq!(fresh.next().await.unwrap()[0].seq, 3);
    let mut fresh = stage.engine.subscribe(None).await.unwrap();
    assert_eq!(fresh.next().await.unwrap()[0].seq, 3);
    let expired = Cursor { incarnation: "another".into(), ..start };
    let mut expired = stage.engine.subscribe(Some(expired)).await.unwrap();
    assert_eq!(expired.next().await.unwrap_err().code(), "cursor_expired");
    let start = stage.engine.subscribe(None).await.unwrap().cursor().clone();
    let mut ahead = stage.engine.subscribe(Some(Cursor { seq: 99, ..start })).await.unwrap();
    assert_eq!(ahead.next().await.unwrap_err().code(), "cursor_expired", "beyond the end");
}

#[tokio::test]
async fn a_fully_trimmed_log_continues_its_sequence() {
    let config = Config { event_retention: Duration::ZERO, ..quiet() };
    let stage = Stage::with(config).await;
    for n in 0..1_500 {
        stage.engine.submit(create(&n.to_string())).await.unwrap();
    }
    assert_eq!(stage.engine.trim_log().await.unwrap(), 1_500);
    let mut subscription = stage.engine.subscribe(None).await.unwrap();
    claim_now(&stage.engine).await;
    stage.engine.submit(complete(&stage.engine, "0", 1).await).await.unwrap();
    assert_eq!(subscription.next().await.unwrap()[0].seq, 1_501);
}

#[tokio::test]
async fn a_subscription_is_disconnected_at_shutdown() {
    let stage = Stage::new().await;
    let mut subscription = stage.engine.subscribe(None).await.unwrap();
    let waiting = tokio::spawn(async move { subscription.next().await });
    until(|| true).await;
    stage.engine.shutdown().await.unwrap();
    let Err(Error::Disconnected { cursor, cause }) = waiting.await.unwrap() else { panic!() };
    assert_eq!((cursor.seq, cause.code()), (0, "shutting_down"));
}
