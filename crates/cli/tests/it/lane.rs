//! `lane list`, `pause`, `resume`, `drain`, `disable`, `limit`.

use serde_json::json;

use crate::test_store::{TestStore, claim};

#[tokio::test(flavor = "multi_thread")]
async fn lanes_are_listed_and_changed() {
    let store = TestStore::empty();
    let engine = store.application().await;
    assert_eq!(store.ok("lane list"), "There is no lane: the first task of a lane creates it.\n");
    for _ in 0..3 {
        engine.create("k").lane("mail").await.unwrap();
    }
    engine.create("k").lane("slow").requires("gpu").await.unwrap();
    claim(&engine, "w", "mail").await;

    let row = |lane, state, ready, running, limit: Option<u32>| {
        json!({
            "lane": lane, "state": state, "ready": ready, "running": running, "limit": limit,
            "routes": 1,
        })
    };
    let expected = [row("mail", "active", 2, 1, None), row("slow", "active", 1, 0, None)];
    assert_eq!(store.json("lane list"), expected);

    for (verb, state, says) in [
        ("pause", "paused", "accepts tasks and leases none"),
        ("drain", "draining", "accepts no tasks and leases those it has"),
        ("disable", "disabled", "accepts no tasks and leases none"),
        ("resume", "active", "accepts tasks and leases them"),
    ] {
        let out = store.ok(&format!("lane {verb} mail"));
        assert!(out.starts_with(&format!("Lane mail is {state}: it {says}")), "{out}");
        assert_eq!(
            store.one(&format!("lane {verb} mail")),
            json!({ "lane": "mail", "state": state })
        );
        assert_eq!(store.json("lane list")[0], row("mail", state, 2, 1, None));
    }

    assert_eq!(store.ok("lane limit mail 5"), "Lane mail runs at most 5 at once.\n");
    assert_eq!(store.json("lane list")[0], row("mail", "active", 2, 1, Some(5)));
    let table = store.ok("lane list");
    assert!(table.contains("1 of 5"), "{table}");
    assert_eq!(store.one("lane limit mail none"), json!({ "lane": "mail", "limit": null }));
    assert_eq!(store.ok("lane limit mail none"), "Lane mail has no limit.\n");
    assert_eq!(store.run("lane limit mail 99999999").code, 2);
    engine.shutdown().await.unwrap();
}

#[test]
fn figures() {
    let store = TestStore::empty();
    store.ok("task create k --id a --lane mail");
    store.ok("task create k --id b --lane mail --delay 1h");
    let stats = store.one("stats");
    assert_eq!(stats["tasks"]["waiting"], 1);
    assert_eq!(stats["tasks"]["delayed"], 1);
    assert_eq!(stats["tasks"]["failed"], 0);
    assert_eq!(stats["ready"], json!({ "mail": 1 }));
    assert_eq!((&stats["log"]["first"], &stats["log"]["last"]), (&json!(1), &json!(2)));
    assert_eq!(stats["durability"], "wal, synchronous=FULL");
    assert_eq!(stats["store"], store.url());
    let text = store.ok("stats");
    for part in ["1 waiting, 1 delayed, 0 active", "1 in mail", "1 to 2, incarnation", "FULL"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(store.ok("stats --tenant other").contains("none in any lane"));
}

#[test]
fn a_restored_store_gets_a_new_incarnation() {
    let store = TestStore::empty();
    assert_eq!(store.run("store reset-cursors").code, 4, "there is nothing to restore");
    store.ok("task create k");
    let stats = |store: &TestStore| store.one("stats")["log"]["incarnation"].clone();
    let before = stats(&store);
    let renewed = store.one("store reset-cursors");
    assert_ne!(renewed["incarnation"], before);
    assert_eq!(renewed["incarnation"], stats(&store));
    let cursor = format!("{}:1", before.as_str().unwrap());
    let rejected = store.run(&format!("events --after {cursor}"));
    assert!(rejected.err.contains("cursor_expired"), "{}", rejected.err);
}
