//! The guide documents every JSON field.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use windlass::FailureClass;
use windlass::command::ReportProgress;

use crate::test_store::{TestStore, claim, fail};

/// Objects whose keys are data: of users, lanes, states, or the core.
const DATA: &[&str] = &["labels", "json", "ready", "tasks", "details", "facts", "values"];

fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                if !DATA.contains(&name.as_str()) {
                    fields(value, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_is_in_the_guide() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/README.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let named: BTreeSet<&str> = guide.split('`').skip(1).step_by(2).collect();

    let store = TestStore::empty();
    let engine = store.application().await;
    let mut found = BTreeSet::new();
    let mut note = |line: &str| {
        let output = store.run(&format!("{line} --json"));
        for text in output.out.lines().chain(output.err.lines()) {
            if let Ok(value) = serde_json::from_str(text) {
                fields(&value, &mut found);
            }
        }
    };
    let register = windlass::command::RegisterWorker {
        tenant: "default".into(),
        id: "w".into(),
        lanes: ["default".into()].into(),
        capabilities: windlass::WorkerCapabilities::default(),
        heartbeat_interval_ms: 60_000,
        held: None,
    };
    engine.submit(register).await.unwrap();
    note("task create k --id a --attempts 1 --payload 1 --attempt-timeout 1h");
    note("task create k --id b --delay 1h --lane slow");
    note("task show b");
    note("signal go --task b --payload 1");
    note("task messages b");
    let task = claim(&engine, "w", "default").await;
    let report = ReportProgress { fence: task.fence(), percent: 1, message: String::new() };
    engine.submit(report).await.unwrap();
    note("task show a");
    note("task why a");
    fail(&engine, &task, FailureClass::Transient, "no").await;
    for line in [
        "task list",
        "dlq list",
        "dlq replay a b",
        "task why a",
        "task priority a 1",
        "task cancel a",
        "task replay a",
        "lane list",
        "lane pause slow",
        "lane limit slow 2",
        "quota set --lane slow --limit 2 --rate 1/1s",
        "quota list",
        "quota show --lane slow",
        "session list",
        "node list",
        "worker list",
        "task grant b w",
        "task revoke b",
        "events",
        "stats",
        "migrate",
        "doctor",
    ] {
        note(line);
    }
    for line in [
        "workflow start k --id w --lane flows --input 1",
        "workflow signal w go --payload 1",
        "workflow list",
        "workflow show w",
        "workflow tree w",
        "workflow check-history w",
        "workflow prune w --keep 1 --dry-run",
        "workflow cancel w --force",
        "workflow delete --kind k --dry-run",
        "workflow delete w --yes",
    ] {
        note(line);
    }
    assert!(found.len() > 70, "the commands were run: {found:?}");
    let missing: Vec<&String> =
        found.iter().filter(|name| !named.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/operate does not name {missing:?}");
    engine.shutdown().await.unwrap();
}
