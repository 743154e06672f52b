//! The reports of `worker exec` on tasks.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use windlass::command::{Claim, Complete};
use windlass::{PublicState, Tenant};

use crate::stage::{Stage, ended, is_running};

const PATIENT: &str = "echo $$ > it; touch begun; while [ ! -e go ]; do sleep 0.01; done; echo 7";

fn check(printed: &str, expected: &[(&str, Value)]) {
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let told: Value = serde_json::from_str(printed).unwrap();
    for (key, value) in expected {
        assert_eq!(told[key], *value, "{key}: {told}");
    }
}

#[tokio::test]
async fn a_cancelled_task_is_not_reported_as_done() {
    // It is stopped, or exits before its worker is notified of the cancellation.
    for (lease, goes, requested) in [("1s", false, json!(null)), ("1h", true, json!("complete"))] {
        let stage = Stage::new().await;
        let worker = stage.run_scripts(&["--json", "--once", "--lease", lease]);
        let task = stage.script(PATIENT).await.unwrap();
        stage.until_there("begun").await;
        task.cancel("not wanted").await.unwrap();
        if goes {
            std::fs::write(stage.path("go"), "").unwrap();
        }
        let (status, printed, _) = worker.wait().await;
        assert!(status.success());
        let lost = [("outcome", json!("not_settled")), ("settled", json!(false))];
        check(&printed, &lost);
        check(
            &printed,
            &[
                ("code", json!("already_terminal")),
                ("requested", requested),
                ("task", json!(task.id())),
            ],
        );
    }
}

#[tokio::test]
async fn a_rejected_settle_is_reported_to_people() {
    let stage = Stage::new().await;
    let worker = stage.run_scripts(&["--once", "--lease", "1h"]);
    let task = stage.script(PATIENT).await.unwrap();
    stage.until_there("begun").await;
    task.cancel("not wanted").await.unwrap();
    std::fs::write(stage.path("go"), "").unwrap();
    let (_, _, told) = worker.wait().await;
    let line = told.lines().last().unwrap();
    assert!(line.contains("not settled, the task has ended as cancelled"), "{told}");
    assert!(line.contains("[already_terminal]; it was done, a result of 2 bytes"), "{told}");
}

#[tokio::test]
async fn a_lost_lease_is_reported() {
    let stage = Stage::new().await;
    let worker = stage.run_scripts(&["--json", "--once", "--lease", "1s"]);
    let task = stage.script(PATIENT).await.unwrap();
    stage.until_there("begun").await;
    worker.signal(Signal::STOP);
    let stolen = loop {
        stage.engine.sweep().await.unwrap();
        let claimed = stage.engine.claim(Claim::new("thief"), Duration::from_millis(20)).await;
        if let Some(claimed) = claimed.unwrap().pop() {
            break claimed.task.fence();
        }
    };
    stage.engine.submit(Complete { fence: stolen, result: None }).await.unwrap();
    worker.signal(Signal::CONT);
    let (status, printed, _) = worker.wait().await;
    assert!(status.success());
    check(&printed, &[("outcome", json!("not_settled")), ("settled", json!(false))]);
    check(&printed, &[("code", json!("lease_expired")), ("requested", json!(null))]);
    assert!(!is_running(&stage.path("it")));
    assert_eq!(ended(&task).await.lifecycle.public(), PublicState::Completed);
}

#[tokio::test]
async fn released_and_snoozed_tasks_are_reported() {
    let stage = Stage::new().await;
    let worker = stage.run_scripts(&["--json", "--grace", "0s"]);
    let task = stage.script(PATIENT).await.unwrap();
    stage.until_there("begun").await;
    worker.signal(Signal::TERM);
    let (_, printed, _) = worker.wait().await;
    check(&printed, &[("outcome", json!("released")), ("task", json!(task.id()))]);
    task.cancel("enough").await.unwrap();
    let stranger = stage.engine.create("unknown").await.unwrap();
    let worker = stage.run_scripts(&["--json", "--exit-when-idle=50ms"]);
    let (_, printed, _) = worker.wait().await;
    check(&printed, &[("outcome", json!("snoozed")), ("task", json!(stranger.id()))]);
}

#[tokio::test]
async fn a_closed_pipe_lets_programs_finish() {
    let stage = Stage::new().await;
    let mut worker = stage.run_scripts(&["--json", "--concurrency", "2"]);
    let long = stage.script(PATIENT).await.unwrap();
    stage.until_there("begun").await;
    worker.stop_reading();
    ended(&stage.script("true").await.unwrap()).await;
    std::fs::write(stage.path("go"), "").unwrap();
    assert_eq!(ended(&long).await.lifecycle.public(), PublicState::Completed);
    let (status, _, complaint) = worker.wait().await;
    assert!(status.success(), "{complaint}");
    assert_eq!(complaint, "");
    assert_eq!(long.task().await.unwrap().attempts, 1);
}

#[tokio::test]
async fn a_closed_pipe_ends_an_idle_worker() {
    let stage = Stage::new().await;
    let mut worker = stage.run_scripts(&["--json"]);
    worker.stop_reading();
    let (status, _, complaint) = worker.wait().await;
    assert!(status.success(), "{complaint}");
    assert_eq!(complaint, "");
}

fn write_program(stage: &Stage, text: &str) {
    let path = stage.path("program");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_be_started_costs_no_attempt() {
    let stage = Stage::new().await;
    write_program(&stage, "#!/no/such/interpreter\n");
    let task = stage.script("unread").await.unwrap();
    let worker = stage.run_program(&["--exit-when-idle=50ms"], "./program");
    let (status, _, told) = worker.wait().await;
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("snoozed for 1 s: the program could not be started: No such"), "{told}");
    assert!(told.contains("./program could not be started: No such"), "{told}");
    let snoozed = task.task().await.unwrap();
    assert_eq!((snoozed.lifecycle.public(), snoozed.attempts), (PublicState::Delayed, 0));
    write_program(&stage, "#!/bin/sh\nexit 0\n");
    let worker = stage.run_program(&["--exit-when-idle=3s"], "./program");
    assert!(worker.wait().await.0.success());
    let done = task.task().await.unwrap();
    assert_eq!((done.lifecycle.public(), done.attempts), (PublicState::Completed, 1));
}

#[tokio::test]
async fn a_worker_whose_program_never_starts_ends() {
    let stage = Stage::new().await;
    write_program(&stage, "#!/no/such/interpreter\n");
    let task = stage.script("unread").await.unwrap();
    let (status, printed, told) = stage.run_program(&["--json"], "./program").wait().await;
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("not_started"), "{told}");
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
        let stage = Stage::new().await;
        let plain = stage.script("true").await.unwrap();
        let gpu = stage.script("true").tag("gpu").await.unwrap();
        let eu = stage.script("true").tag("eu").await.unwrap();
        let options = [options, &["--exit-when-idle=50ms"]].concat();
        assert!(stage.run_scripts(&options).wait().await.0.success());
        let mut taken = Vec::new();
        for (name, task) in [("plain", plain), ("gpu", gpu), ("eu", eu)] {
            let claims = task.task().await.unwrap().claims;
            taken.extend((claims > 0).then_some(name));
        }
        assert_eq!(taken.join(" "), expected, "{options:?}");
    }
}

#[tokio::test]
async fn a_program_cannot_control_the_terminal() {
    let stage = Stage::new().await;
    stage.script("printf '\\033[31mred\\007' >&2; exit 100").await.unwrap();
    let (_, _, told) = stage.run_scripts(&["--once"]).wait().await;
    assert!(told.contains("exit code 100: \u{fffd}[31mred\u{fffd}"), "{told:?}");
}

#[tokio::test]
async fn a_moved_store_is_reported() {
    for json in [false, true] {
        let stage = Stage::new().await;
        let options: &[&str] = if json { &["--json"] } else { &[] };
        let mut worker = stage.run_scripts(options);
        if !json {
            assert!(worker.next_complaint().contains("claims tasks from"));
        }
        // It has registered: from here on it sends heartbeats to the file.
        while stage.engine.workers(&Tenant::default(), None, 1).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::rename(stage.path("tasks.db"), stage.path("moved.db")).unwrap();
        let told = worker.next_complaint();
        assert!(told.contains("the file was removed or replaced"), "{told}");
        assert!(told.contains("store_unavailable"), "{told}");
        assert_eq!(told.starts_with('{'), json, "{told}");
    }
}
