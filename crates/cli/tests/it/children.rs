//! Parents and children in the output for people and programs.

use serde_json::json;
use windlass::command::WaitChildren;

use crate::test_store::{TestStore, claim, complete};

#[tokio::test(flavor = "multi_thread")]
async fn children_are_listed_and_waited_for() {
    let store = TestStore::empty();
    let engine = store.application().await;
    store.ok("task create order --id o --lane orders");
    let output = store.run("task create pack --id c1 --parent missing");
    assert!(output.code != 0 && output.err.ends_with("[parent_not_found]\n"), "{output:?}");
    for id in ["c1", "c2", "c3"] {
        store.ok(&format!("task create pack --id {id} --lane packing --parent o"));
    }
    store.ok("task create pack --id other --lane elsewhere");

    let listed = store.ok("task list --parent o");
    assert_eq!(listed.lines().filter(|line| line.contains("packing")).count(), 3, "{listed}");
    let listed = store.ok("task list --parent o --state completed");
    assert_eq!(listed.trim(), "There is no such task.");
    assert_eq!(store.one("task show c1")["parent"], "o");
    assert_eq!(store.one("task show o")["parent"], json!(null));
    assert!(store.ok("task show c1").contains("parent"));

    let order = claim(&engine, "w", "orders").await;
    engine.submit(WaitChildren { fence: order.fence() }).await.unwrap();
    let pack = claim(&engine, "w", "packing").await;
    complete(&engine, &pack).await;
    store.ok("task cancel c2");

    let text = store.ok("task why o");
    for part in [
        "Task o waits until the last of its children has ended",
        "1 open, 1 completed, 1 cancelled",
        "windlass task list --parent o",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let why = store.one("task why o");
    assert_eq!(
        (&why["why"], &why["state"]),
        (&json!("waiting_children"), &json!("waiting_children"))
    );
    assert_eq!(why["facts"]["children"]["open"], 1);
    let shown = store.one("task show o");
    let expected = json!({ "open": 1, "completed": 1, "failed": 0, "cancelled": 1, "expired": 0 });
    assert_eq!((&shown["state"], &shown["children"]), (&json!("waiting_children"), &expected));
    let text = store.ok("task show o");
    assert!(text.contains("1 open, 1 completed, 1 cancelled"), "{text}");
    assert!(text.contains("3 open"), "the log has the number of open children: {text}");

    let pack = claim(&engine, "w", "packing").await;
    complete(&engine, &pack).await;
    assert_eq!(store.one("task show o")["state"], "resumable");
    assert!(store.ok("task show o").contains("by its last child"));
    let order = claim(&engine, "w", "orders").await;
    assert_eq!(order.attempts, 1);
    complete(&engine, &order).await;
    let output = store.run("task create pack --parent o");
    assert!(output.code != 0 && output.err.ends_with("[parent_terminal]\n"), "{output:?}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_parent_cancels_its_children() {
    let store = TestStore::empty();
    let engine = store.application().await;
    store.ok("task create order --id o --lane orders");
    for n in 0..3 {
        store.ok(&format!("task create pack --id c{n} --lane packing --parent o"));
    }
    store.ok("task cancel o --reason enough");
    for n in 0..3 {
        let child = engine.handle(windlass::TaskKey {
            tenant: windlass::Tenant::default(),
            id: format!("c{n}").into(),
        });
        child.wait().await.unwrap();
        let shown = store.ok(&format!("task show c{n}"));
        assert!(shown.contains("its parent has ended"), "{shown}");
    }
    engine.shutdown().await.unwrap();
}
