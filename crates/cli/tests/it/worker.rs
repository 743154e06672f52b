use rustix::process::Signal;
use serde_json::{Value, json};
use windlass::{PublicState, RetryPolicy};

use crate::open_store::{OpenStore, ended, failure, is_running, until};
use crate::{text, windlass};

#[tokio::test]
async fn the_output_of_a_program_is_the_result() {
    let store = OpenStore::new().await;
    let _worker = store.run_scripts(&["--concurrency", "2"]);
    for (script, content_type, expected) in [
        ("echo '{\"sum\": 3}'", "application/json", "{\"sum\": 3}\n"),
        ("echo done; echo unheard >&2", "text/plain; charset=utf-8", "done\n"),
        ("printf '\\377'", "application/octet-stream", "\u{fffd}"),
        (
            "printf '%s' \"$WINDLASS_KIND $WINDLASS_LANE $WINDLASS_ATTEMPT\"",
            "text/plain; charset=utf-8",
            "script default 1",
        ),
        (
            "printf '%s' \"$WINDLASS_TENANT $WINDLASS_TASK\"",
            "text/plain; charset=utf-8",
            "default t-4",
        ),
        (
            "printf '%s' \"$WINDLASS_CONTENT_TYPE $WINDLASS_LABELS\"",
            "text/plain; charset=utf-8",
            "text/x-sh {\"to\":\"Ada\"}",
        ),
    ]
    .into_iter()
    {
        let task = store.script(script).label("to", "Ada");
        let task = match script.contains("WINDLASS_TASK") {
            true => task.id("t-4").await.unwrap(),
            false => task.await.unwrap(),
        };
        ended(&task).await;
        let result = store.engine.result(task.key()).await.unwrap().unwrap();
        assert_eq!(result.content_type, content_type, "{script}");
        assert_eq!(String::from_utf8_lossy(&result.bytes), expected, "{script}");
    }
    let silent = store.script("true").await.unwrap();
    assert_eq!(ended(&silent).await.lifecycle.public(), PublicState::Completed);
    assert_eq!(store.engine.result(silent.key()).await.unwrap(), None);
    let epoch = store.script("printf '%s' \"$WINDLASS_EPOCH\"").await.unwrap();
    assert_eq!(epoch.result::<u64>().await.unwrap(), ended(&epoch).await.epoch);
}

#[tokio::test]
async fn the_exit_code_decides() {
    let store = OpenStore::new().await;
    let _worker = store.run_scripts(&["--concurrency", "2"]);
    for (script, attempts, class, reason) in [
        ("echo first >&2; echo last >&2; exit 1", 2, "transient", "exit code 1: first\nlast"),
        ("exit 75", 2, "transient", "exit code 75"),
        ("echo no such user >&2; exit 65", 1, "permanent", "exit code 65: no such user"),
        ("exit 100", 1, "permanent", "exit code 100"),
        ("kill -9 $$", 2, "transient", "killed by signal 9"),
        ("yes", 1, "permanent", "the program printed more than 4194304 bytes"),
    ] {
        let task = store.script(script).retry(RetryPolicy::fixed(2, 1)).await.unwrap();
        assert_eq!(failure(&task).await, (class.into(), reason.into()), "{script}");
        assert_eq!(task.task().await.unwrap().attempts, attempts, "{script}");
    }
    let mended = store.script("[ $WINDLASS_ATTEMPT = 2 ]").retry(RetryPolicy::fixed(2, 1));
    let mended = ended(&mended.await.unwrap()).await;
    assert_eq!((mended.lifecycle.public(), mended.attempts), (PublicState::Completed, 2));
}

#[tokio::test]
async fn child_processes_of_a_program_do_not_block_its_worker() {
    let store = OpenStore::new().await;
    let _worker = store.run_scripts(&[]);
    let task = store.script("sleep 1000 & echo $! > child; echo done").await.unwrap();
    assert!(failure(&task).await.1.contains("held its output open"));
    until("the child process is killed", || !is_running(&store.path("child"))).await;
}

#[tokio::test]
async fn an_unread_payload_is_ignored_and_a_large_one_arrives() {
    let store = OpenStore::new().await;
    let _worker = store.run_scripts(&[]);
    let large = format!("wc -c < /dev/null; exit 0\n#{}", "x".repeat(3_000_000));
    let task = store.script(&large).await.unwrap();
    assert_eq!(task.result::<u64>().await.unwrap(), 0);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["worker", "exec", "--kind", "deaf", "--lane", "deaf", "--once"]);
    command.args(["--store", &store.url(), "--", "true"]);
    let deaf = store.engine.create("deaf").lane("deaf").payload(&"x".repeat(3_000_000));
    let deaf = deaf.await.unwrap();
    let worker = crate::open_store::Process::start(command);
    assert_eq!(ended(&deaf).await.lifecycle.public(), PublicState::Completed);
    assert!(worker.wait().await.0.success());
}

#[tokio::test]
async fn a_cancelled_task_stops_its_program_and_its_children() {
    let store = OpenStore::new().await;
    let _worker = store.run_scripts(&["--lease", "1s"]);
    let script = "trap 'touch terminated; exit 0' TERM; sleep 1000 & echo $! > child; \
        touch started; while :; do sleep 0.01; done";
    let task = store.script(script).await.unwrap();
    store.until_exists("started").await;
    task.cancel("not wanted").await.unwrap();
    store.until_exists("terminated").await;
    until("the child has exited", || !is_running(&store.path("child"))).await;
    assert_eq!(ended(&task).await.lifecycle.public(), PublicState::Cancelled);
    // The worker keeps running.
    let next = store.script("true").await.unwrap();
    assert_eq!(ended(&next).await.lifecycle.public(), PublicState::Completed);
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed() {
    let store = OpenStore::new().await;
    let _worker = store.run_scripts(&["--lease", "1s"]);
    let script = "trap '' TERM; echo $$ > deaf; touch started; while :; do sleep 0.01; done";
    let task = store.script(script).await.unwrap();
    store.until_exists("started").await;
    task.cancel("not wanted").await.unwrap();
    until("it is killed", || !is_running(&store.path("deaf"))).await;
}

#[tokio::test]
async fn a_stopping_worker_lets_its_programs_finish() {
    for signal in [Signal::TERM, Signal::HUP] {
        let store = OpenStore::new().await;
        let worker = store.run_scripts(&[]);
        let script = "touch started; while [ ! -e go ]; do sleep 0.01; done; echo 7";
        let task = store.script(script).await.unwrap();
        store.until_exists("started").await;
        worker.signal(signal);
        let after = store.script("touch after").await.unwrap();
        std::fs::write(store.path("go"), "").unwrap();
        let (status, _, complaint) = worker.wait().await;
        assert!(status.success(), "{complaint}");
        assert!(complaint.contains("stopping: programs may finish"), "{complaint}");
        assert_eq!(task.result::<u64>().await.unwrap(), 7);
        let after = after.task().await.unwrap();
        assert_eq!((after.lifecycle.public(), after.claims), (PublicState::Waiting, 0));
    }
}

#[tokio::test]
async fn a_program_that_outlives_the_grace_is_stopped_and_its_task_released() {
    let store = OpenStore::new().await;
    let worker = store.run_scripts(&["--grace", "0s"]);
    // A successful exit after SIGTERM does not complete the task.
    let script = "trap 'exit 0' TERM; echo $$ > it; touch started; while :; do sleep 0.01; done";
    let task = store.script(script).await.unwrap();
    store.until_exists("started").await;
    worker.signal(Signal::INT);
    assert!(worker.wait().await.0.success());
    assert!(!is_running(&store.path("it")));
    let task = task.task().await.unwrap();
    assert_eq!((task.lifecycle.public(), task.attempts), (PublicState::Waiting, 0));
}

#[tokio::test]
async fn the_second_signal_stops_at_once() {
    let store = OpenStore::new().await;
    let worker = store.run_scripts(&[]);
    let script = "trap '' TERM; echo $$ > it; touch started; while :; do sleep 0.01; done";
    let task = store.script(script).await.unwrap();
    store.until_exists("started").await;
    // Two equal signals in quick succession may be delivered as one.
    worker.signal(Signal::TERM);
    worker.signal(Signal::INT);
    let (status, _, complaint) = worker.wait().await;
    assert_eq!(status.code(), Some(130), "{complaint}");
    until("the program is killed", || !is_running(&store.path("it"))).await;
    assert_eq!(task.task().await.unwrap().lifecycle.public(), PublicState::Active);
}

#[tokio::test]
async fn once_and_until_idle() {
    let store = OpenStore::new().await;
    let first = store.script("echo 1").priority(1).await.unwrap();
    let second = store.script("echo 2").await.unwrap();
    let (status, printed, _) = store.run_scripts(&["--once", "--json"]).wait().await;
    assert!(status.success());
    let report: Value = serde_json::from_str(&printed).unwrap();
    for (key, expected) in [
        ("task", json!(first.id())),
        ("kind", json!("script")),
        ("attempt", json!(1)),
        ("epoch", json!(first.task().await.unwrap().epoch)),
        ("outcome", json!("completed")),
        ("settled", json!(true)),
        ("code", json!(null)),
        ("reason", json!(null)),
        ("result_bytes", json!(2)),
    ] {
        assert_eq!(report[key], expected, "{key}");
    }
    assert_eq!(second.task().await.unwrap().claims, 0);
    let third = store.script("echo hm >&2; exit 100").await.unwrap();
    let (status, _, complaint) = store.run_scripts(&["--exit-when-idle=50ms"]).wait().await;
    assert!(status.success());
    assert_eq!(second.result::<u64>().await.unwrap(), 2);
    assert_eq!(failure(&third).await.1, "exit code 100: hm");
    assert!(complaint.contains("done, a result of 2 bytes"), "{complaint}");
    assert!(complaint.contains("permanent failure, not retried: exit code 100: hm"), "{complaint}");
}

#[test]
fn a_missing_program_is_reported_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let url = format!("sqlite://{}", file.display());
    let notes = folder.path().join("notes.txt");
    std::fs::write(&notes, "no program").unwrap();
    for program in ["no-such-program", "./no/such", notes.to_str().unwrap()] {
        let args = ["worker", "exec", "--kind", "k", "--store", &url, "--", program];
        let output = windlass(&args);
        assert_eq!(output.status.code(), Some(4));
        let complaint = text(&output.stderr);
        assert!(complaint.contains(&format!("no program {program}")), "{complaint}");
    }
    assert!(!file.exists());
}

#[test]
fn wrong_arguments_are_one_error_line() {
    for (args, expected) in [
        (&["--kind", "k"][..], "<CMD>"),
        (&["--", "true"], "--kind <KIND>"),
        (&["--kind", "k", "--tag", "a", "--any-tag", "--", "true"], "cannot be used with"),
        (&["--kind", "", "--", "true"], "kind is empty"),
        (&["--kind", "k", "--lease", "1", "--", "true"], "a number and ms, s, m"),
        (&["--kind", "k", "--lease", "1ms", "--", "true"], "between 100ms and 1d"),
        (&["--kind", "k", "--once", "--exit-when-idle", "--", "true"], "cannot be used with"),
    ] {
        let output = windlass(&[&["worker", "exec"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let complaint = text(&output.stderr);
        assert!(complaint.contains(expected), "{args:?}: {complaint}");
    }
}
