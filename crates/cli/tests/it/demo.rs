use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::open_store::{Process, until};
use crate::{json, text};

/// A demo with its temporary files in the folder of the test.
fn demo(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["demo", "--tasks", "40"]).args(options).env("TMPDIR", folder);
    command
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

/// The number of processes that name this folder.
fn workers(folder: &Path) -> usize {
    let processes = Path::new("/proc").read_dir().unwrap().flatten();
    let command_lines =
        processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let named = folder.to_str().unwrap();
    let ours = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(named);
    command_lines.filter(ours).count()
}

#[test]
fn the_demo_passes_its_checks_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let found = json(&demo(folder.path(), &["--json"]).output().unwrap());
    for (path, expected) in [
        ("/requests", 41),
        ("/duplicates", 1),
        ("/tasks", 40),
        ("/states/completed", 37),
        ("/states/cancelled", 1),
        ("/dead_letters", 2),
        ("/effects/counted", 37),
    ] {
        assert_eq!(found.pointer(path), Some(&expected.into()), "{path}: {found}");
    }
    let killed = &found["killed"];
    assert!(killed["leases_held"].as_u64().unwrap() > 0, "{found}");
    assert_eq!(killed["leases_recovered"], killed["leases_held"]);
    assert_eq!(found["stale_write"]["code"], "stale_fence");
    let checks = found["checks"].as_object().unwrap();
    assert!(checks.len() == 9 && checks.values().all(|holds| holds == true), "{found}");
    assert!(is_empty(folder.path()));
    assert_eq!(workers(folder.path()), 0);
}

#[test]
fn the_demo_prints_its_steps_and_may_retain_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &["--keep"]).output().unwrap();
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    for part in [
        "kill -9",
        "next epoch",
        "stale",
        "dead letters",
        "What happened",
        "answered with the first",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(printed.contains("windlass dlq list --store"), "{printed}");
    assert!(!printed.contains("NOT"), "{printed}");
    let database =
        folder.path().read_dir().unwrap().next().unwrap().unwrap().path().join("demo.db");
    assert!(printed.contains(&format!("--store sqlite://{}", database.display())), "{printed}");
    assert!(database.exists());
}

#[tokio::test]
async fn an_interrupted_demo_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let demo = Process::start(demo(folder.path(), &[]));
        until("a worker runs", || workers(folder.path()) > 0).await;
        demo.signal(signal);
        let (status, _, complaint) = demo.wait().await;
        assert_eq!(status.code(), Some(130), "{complaint}");
        assert_eq!(workers(folder.path()), 0);
        assert!(is_empty(folder.path()));
    }
}

#[tokio::test]
async fn workers_do_not_outlive_a_killed_demo() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Process::start(demo(folder.path(), &[]));
    until("a worker runs", || workers(folder.path()) > 0).await;
    demo.signal(Signal::KILL);
    demo.wait().await;
    until("no worker runs", || workers(folder.path()) == 0).await;
}

#[tokio::test]
async fn a_closed_pipe_ends_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{} demo --tasks 40 | head -1", env!("CARGO_BIN_EXE_windlass"));
    let output = Command::new("sh").args(["-c", &line]).env("TMPDIR", folder.path()).output();
    let output = output.unwrap();
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(workers(folder.path()), 0);
    assert!(is_empty(folder.path()));
}
