//! `lane list`, `pause`, `resume`, `drain`, `disable`, `limit`.

use serde_json::json;

use crate::place::{Place, claim};

#[tokio::test(flavor = "multi_thread")]
async fn lanes_are_listed_and_changed() {
    let place = Place::empty();
    let engine = place.application().await;
    assert_eq!(place.ok("lane list"), "There is no lane: the first task of a lane creates it.\n");
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
    assert_eq!(place.json("lane list"), expected);

    for (verb, state, says) in [
        ("pause", "paused", "accepts tasks and dispatches none"),
        ("drain", "draining", "accepts no tasks and dispatches those it has"),
        ("disable", "disabled", "accepts no tasks and dispatches none"),
        ("resume", "active", "accepts tasks and dispatches them"),
    ] {
        let out = place.ok(&format!("lane {verb} mail"));
        assert!(out.starts_with(&format!("Lane mail is {state}: it {says}")), "{out}");
        assert_eq!(
            place.one(&format!("lane {verb} mail")),
            json!({ "lane": "mail", "state": state })
        );
        assert_eq!(place.json("lane list")[0], row("mail", state, 2, 1, None));
    }

    assert_eq!(place.ok("lane limit mail 5"), "Lane mail runs 5 at once at most.\n");
    assert_eq!(place.json("lane list")[0], row("mail", "active", 2, 1, Some(5)));
    let table = place.ok("lane list");
    assert!(table.contains("1 of 5"), "{table}");
    assert_eq!(place.one("lane limit mail none"), json!({ "lane": "mail", "limit": null }));
    assert_eq!(place.ok("lane limit mail none"), "Lane mail has no limit.\n");
    assert_eq!(place.run("lane limit mail 99999999").code, 2);
    engine.shutdown().await.unwrap();
}

#[test]
fn figures() {
    let place = Place::empty();
    place.ok("task create k --id a --lane mail");
    place.ok("task create k --id b --lane mail --after 1h");
    let stats = place.one("stats");
    assert_eq!(stats["tasks"]["waiting"], 1);
    assert_eq!(stats["tasks"]["delayed"], 1);
    assert_eq!(stats["tasks"]["failed"], 0);
    assert_eq!(stats["ready"], json!({ "mail": 1 }));
    assert_eq!((&stats["log"]["first"], &stats["log"]["last"]), (&json!(1), &json!(2)));
    assert_eq!(stats["durability"], "wal, synchronous=FULL");
    assert_eq!(stats["store"], place.url());
    let text = place.ok("stats");
    for part in ["1 waiting, 1 delayed, 0 active", "1 in mail", "1 to 2, incarnation", "FULL"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(place.ok("stats --tenant other").contains("none in any lane"));
}

#[test]
fn a_restored_store_gets_a_new_incarnation() {
    let place = Place::empty();
    assert_eq!(place.run("store reset-cursors").code, 4, "there is nothing to restore");
    place.ok("task create k");
    let stats = |place: &Place| place.one("stats")["log"]["incarnation"].clone();
    let before = stats(&place);
    let renewed = place.one("store reset-cursors");
    assert_ne!(renewed["incarnation"], before);
    assert_eq!(renewed["incarnation"], stats(&place));
    let cursor = format!("{}:1", before.as_str().unwrap());
    let refused = place.run(&format!("events --after {cursor}"));
    assert!(refused.err.contains("cursor_expired"), "{}", refused.err);
}
