//! The reports of `worker exec` on tasks.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use windlass::command::{Claim, Complete};
use windlass::{PublicState, Tenant};

use crate::open_store::{OpenStore, ended, is_running};

const WAIT_FOR_GO: &str =
    "echo $$ > it; touch started; while [ ! -e go ]; do sleep 0.01; done; echo 7";

fn check(printed: &str, expected: &[(&str, Value)]) {
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let report: Value = serde_json::from_str(printed).unwrap();
    for (key, value) in expected {
        assert_eq!(report[key], *value, "{key}: {report}");
    }
}

#[tokio::test]
async fn a_cancelled_task_is_not_reported_as_done() {
    for (lease, goes) in [("1s", false), ("1h", true)] {
        let store = OpenStore::new().await;
        let worker = store.run_scripts(&["--json", "--once", "--lease", lease]);
        let task = store.script(WAIT_FOR_GO).await.unwrap();
        store.until_exists("started").await;
        task.cancel("not wanted").await.unwrap();
        if goes {
            std::fs::write(store.path("go"), "").unwrap();
        }
        let (status, printed, _) = worker.wait().await;
        assert!(status.success());
        let lost = [("outcome", json!("not_settled")), ("settled", json!(false))];
        check(&printed, &lost);
        check(&printed, &[("code", json!("already_terminal")), ("task", json!(task.id()))]);
        // A program that may go may also be stopped first, by the cancellation.
        let report: Value = serde_json::from_str(&printed).unwrap();
        let requested = &report["requested"];
        assert!(requested.is_null() || goes && *requested == json!("complete"), "{report}");
    }
}

#[tokio::test]
async fn a_rejected_settle_is_reported_to_people() {
    let store = OpenStore::new().await;
    let worker = store.run_scripts(&["--once", "--lease", "1h"]);
    let task = store.script(WAIT_FOR_GO).await.unwrap();
    store.until_exists("started").await;
    task.cancel("not wanted").await.unwrap();
    std::fs::write(store.path("go"), "").unwrap();
    let (_, _, complaint) = worker.wait().await;
    let line = complaint.lines().last().unwrap();
    assert!(line.contains("not settled, the task has ended as cancelled"), "{complaint}");
    // Either the program ended first, or the worker stopped it on the cancellation.
    let ends = ["done, a result of 2 bytes", "stopped"];
    let expected = ends.map(|end| format!("[already_terminal]; it was {end}"));
    assert!(expected.iter().any(|end| line.ends_with(end)), "{complaint}");
}

#[tokio::test]
async fn a_lost_lease_is_reported() {
    let store = OpenStore::new().await;
    let worker = store.run_scripts(&["--json", "--once", "--lease", "1s"]);
    let task = store.script(WAIT_FOR_GO).await.unwrap();
    store.until_exists("started").await;
    worker.signal(Signal::STOP);
    let stolen = loop {
        store.engine.sweep().await.unwrap();
        let claimed = store.engine.claim(Claim::new("thief"), Duration::from_millis(20)).await;
        if let Some(claimed) = claimed.unwrap().pop() {
            break claimed.task.fence();
        }
    };
    store.engine.submit(Complete { fence: stolen, result: None }).await.unwrap();
    worker.signal(Signal::CONT);
    let (status, printed, _) = worker.wait().await;
    assert!(status.success());
    check(&printed, &[("outcome", json!("not_settled")), ("settled", json!(false))]);
    check(&printed, &[("code", json!("lease_expired")), ("requested", json!(null))]);
    assert!(!is_running(&store.path("it")));
    assert_eq!(ended(&task).await.lifecycle.public(), PublicState::Completed);
}

#[tokio::test]
async fn released_and_snoozed_tasks_are_reported() {
    let store = OpenStore::new().await;
    let worker = store.run_scripts(&["--json", "--grace", "0s"]);
    let task = store.script(WAIT_FOR_GO).await.unwrap();
    store.until_exists("started").await;
    worker.signal(Signal::TERM);
    let (_, printed, _) = worker.wait().await;
    check(&printed, &[("outcome", json!("released")), ("task", json!(task.id()))]);
    task.cancel("enough").await.unwrap();
    let stranger = store.engine.create("unknown").await.unwrap();
    let worker = store.run_scripts(&["--json", "--exit-when-idle=50ms"]);
    let (_, printed, _) = worker.wait().await;
    check(&printed, &[("outcome", json!("snoozed")), ("task", json!(stranger.id()))]);
}

#[tokio::test]
async fn a_closed_pipe_lets_programs_finish() {
    let store = OpenStore::new().await;
    let mut worker = store.run_scripts(&["--json", "--concurrency", "2"]);
    let long = store.script(WAIT_FOR_GO).await.unwrap();
    store.until_exists("started").await;
    worker.stop_reading();
    ended(&store.script("true").await.unwrap()).await;
    std::fs::write(store.path("go"), "").unwrap();
    assert_eq!(ended(&long).await.lifecycle.public(), PublicState::Completed);
    let (status, _, complaint) = worker.wait().await;
    assert!(status.success(), "{complaint}");
    assert_eq!(complaint, "");
    assert_eq!(long.task().await.unwrap().attempts, 1);
}

#[tokio::test]
async fn a_closed_pipe_ends_an_idle_worker() {
    let store = OpenStore::new().await;
    let mut worker = store.run_scripts(&["--json"]);
    worker.stop_reading();
    let (status, _, complaint) = worker.wait().await;
    assert!(status.success(), "{complaint}");
    assert_eq!(complaint, "");
}

fn write_program(store: &OpenStore, text: &str) {
    let path = store.path("program");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_be_started_costs_no_attempt() {
    let store = OpenStore::new().await;
    write_program(&store, "#!/no/such/interpreter\n");
    let task = store.script("unread").await.unwrap();
    let worker = store.run_program(&["--exit-when-idle=50ms"], "./program");
    let (status, _, complaint) = worker.wait().await;
    assert_eq!(status.code(), Some(1), "{complaint}");
    assert!(
        complaint.contains("snoozed for 1 s: the program could not be started: No such"),
        "{complaint}"
    );
    assert!(complaint.contains("./program could not be started: No such"), "{complaint}");
    let snoozed = task.task().await.unwrap();
    assert_eq!((snoozed.lifecycle.public(), snoozed.attempts), (PublicState::Delayed, 0));
    write_program(&store, "#!/bin/sh\nexit 0\n");
    let worker = store.run_program(&["--exit-when-idle=3s"], "./program");
    assert!(worker.wait().await.0.success());
    let done = task.task().await.unwrap();
    assert_eq!((done.lifecycle.public(), done.attempts), (PublicState::Completed, 1));
}

#[tokio::test]
async fn a_worker_whose_program_never_starts_ends() {
    let store = OpenStore::new().await;
    write_program(&store, "#!/no/such/interpreter\n");
    let task = store.script("unread").await.unwrap();
    let (status, printed, complaint) = store.run_program(&["--json"], "./program").wait().await;
    assert_eq!(status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("not_started"), "{complaint}");
    assert_eq!(printed.lines().count(), 5, "{printed}");
    assert_eq!(task.task().await.unwrap().attempts, 0);
}

#[tokio::test]
async fn tasks_are_selected_by_tag() {
    for (options, expected) in [
        (&[][..], "plain"),
        (&["--tag", "gpu"], "gpu"),
        (&["--tag", "gpu", "--tag", "eu"], "gpu eu"),
        (&["--any-tag"], "plain gpu eu"),
    ] {
        let store = OpenStore::new().await;
        let plain = store.script("true").await.unwrap();
        let gpu = store.script("true").tag("gpu").await.unwrap();
        let eu = store.script("true").tag("eu").await.unwrap();
        let options = [options, &["--exit-when-idle=50ms"]].concat();
        assert!(store.run_scripts(&options).wait().await.0.success());
        let mut claimed = Vec::new();
        for (name, task) in [("plain", plain), ("gpu", gpu), ("eu", eu)] {
            let claims = task.task().await.unwrap().claims;
            claimed.extend((claims > 0).then_some(name));
        }
        assert_eq!(claimed.join(" "), expected, "{options:?}");
    }
}

#[tokio::test]
async fn a_program_cannot_control_the_terminal() {
    let store = OpenStore::new().await;
    store.script("printf '\\033[31mred\\007' >&2; exit 100").await.unwrap();
    let (_, _, complaint) = store.run_scripts(&["--once"]).wait().await;
    assert!(complaint.contains("exit code 100: \u{fffd}[31mred\u{fffd}"), "{complaint:?}");
}

#[tokio::test]
async fn a_moved_store_is_reported() {
    for json in [false, true] {
        let store = OpenStore::new().await;
        let options: &[&str] = if json { &["--json"] } else { &[] };
        let mut worker = store.run_scripts(options);
        if !json {
            assert!(worker.next_complaint().contains("claims tasks from"));
        }
        // It has registered: from here on it sends heartbeats to the file.
        while store.engine.workers(&Tenant::default(), None, 1).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::rename(store.path("tasks.db"), store.path("moved.db")).unwrap();
        let complaint = worker.next_complaint();
        assert!(complaint.contains("the file was removed or replaced"), "{complaint}");
        assert!(complaint.contains("store_unavailable"), "{complaint}");
        assert_eq!(complaint.starts_with('{'), json, "{complaint}");
    }
}
