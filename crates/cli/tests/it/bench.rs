use std::process::Command;

use crate::{json, text, windlass};

#[test]
fn help_names_what_there_is() {
    let help = text(&windlass(&["--help"]).stdout);
    assert!(help.contains("bench"), "{help}");
    let help = text(&windlass(&["bench", "--help"]).stdout);
    for name in ["tasks", "pickup", "drain", "claim", "idle"] {
        assert!(help.contains(name), "{help}");
    }
}

#[test]
fn a_wrong_argument_is_one_clear_complaint() {
    for (args, expected) in [
        (&["bench", "tasks", "--store", "mysql://x"][..], "a store is sqlite://PATH"),
        (&["bench", "tasks", "--callers", "0"], "0 is not in 1..="),
        (&["bench", "task"], "unrecognized subcommand"),
        (&["bench", "drain", "--tasks", "-5"], "invalid value '-5' for '--tasks'"),
        (&["bench", "drain", "--claim", "5"], "--raw"),
        (&["bench", "drain", "--raw", "--handlers", "5"], "cannot be used with"),
        (&["bench", "pickup", "--rate", "0"], "0 is not in 1..="),
    ] {
        let output = windlass(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let complaint = text(&output.stderr);
        assert!(complaint.contains(expected), "{args:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{args:?}: {complaint}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "these are my notes, ".repeat(400)).unwrap();
    let before = std::fs::read(&path).unwrap();
    let url = format!("sqlite://{}", path.display());
    let output = windlass(&["bench", "tasks", "--seconds", "1", "--store", &url]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("not a Windlass database"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn tasks_say_how_fast_and_how_durable() {
    let found = json(&windlass(&["bench", "tasks", "--seconds", "1", "--callers", "8", "--json"]));
    for key in [
        "cycles_per_s",
        "commands_per_s",
        "mean_batch",
        "rounds_per_batch",
        "p50_ms",
        "p99_ms",
        "commits",
        "cpu_percent",
    ] {
        assert!(found[key].is_number(), "{key}: {found}");
    }
    assert_eq!(found["durability"], "wal, synchronous=FULL");
    assert!(found["cycles_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn unbatched_is_one_command_a_commit() {
    let args = ["bench", "tasks", "--seconds", "1", "--callers", "8", "--unbatched", "--json"];
    assert_eq!(json(&windlass(&args))["mean_batch"], 1.0);
}

#[test]
fn drain_claim_and_idle_report() {
    for mode in ["--raw", "--handlers=50"] {
        let drained = json(&windlass(&["bench", "drain", "--tasks", "2000", "--json", mode]));
        assert_eq!(drained["tasks"], 2_000, "{mode}");
        for key in ["fill_per_s", "tasks_per_s", "mean_batch", "memory_mib_peak"] {
            assert!(drained[key].as_f64().unwrap() > 0.0, "{mode} {key}: {drained}");
        }
        let memory = |when| drained[format!("memory_mib_{when}")].as_f64().unwrap();
        assert!(memory("peak") >= memory("before").max(memory("after")), "{mode}: {drained}");
    }
    let args = ["bench", "claim", "--waiting", "100,200", "--claims", "20", "--json"];
    let claims = json(&windlass(&args));
    assert_eq!(claims["claims"].as_array().unwrap().len(), 12, "six shapes of two sizes");
    let idle = json(&windlass(&["bench", "idle", "--seconds", "2", "--backlog", "100", "--json"]));
    assert_eq!(idle["commits"], 0);
}

#[test]
fn a_backlog_is_made_in_bulk_or_one_by_one() {
    for (options, batching) in [
        (&["--raw"][..], "1 producer, 500 a create; 4 workers, 100 a claim"),
        (&["--raw", "--producers", "8"], "8 producers, 1 a create; 4 workers, 100 a claim"),
        (&["--handlers", "50"], "1 producer, 500 a create; 1 worker, 50 handlers"),
    ] {
        let args = [&["bench", "drain", "--tasks", "1100", "--json"], options].concat();
        let drained = json(&windlass(&args));
        assert_eq!(drained["tasks"], 1_100, "{drained}");
        assert_eq!(drained["batching"], batching);
        assert!(drained["fill_per_s"].as_f64().unwrap() > 0.0, "{drained}");
    }
}

#[test]
fn pickup_times_every_task() {
    let args = ["bench", "pickup", "--rate", "100", "--seconds", "1", "--json"];
    let found = json(&windlass(&args));
    assert_eq!(found["tasks"], 100);
    let ms = |key: &str| found[key].as_f64().unwrap();
    // One that came late is counted from when it was due.
    assert!(ms("max_ms") >= ms("latest_arrival_ms"), "{found}");
    assert!(ms("p50_ms") > 0.0 && ms("p50_ms") <= ms("p99_ms") && ms("p99_ms") <= ms("max_ms"));
    assert_eq!(found["durability"], "wal, synchronous=FULL");
}

#[test]
fn a_named_store_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("kept.db").display());
    json(&windlass(&["bench", "drain", "--tasks", "500", "--json", "--store", &url]));
    let again = json(&windlass(&["bench", "drain", "--tasks", "500", "--json", "--store", &url]));
    assert_eq!(again["tasks"], 500);
    let memory = ["bench", "drain", "--tasks", "500", "--json", "--store", "memory:"];
    assert!(json(&windlass(&memory))["durability"].as_str().unwrap().starts_with("none"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_trouble() {
    let command = format!(
        "{} bench claim --waiting 10,20 --claims 5 | head -1",
        env!("CARGO_BIN_EXE_windlass")
    );
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let complaint = text(&output.stderr);
    assert!(!complaint.contains("panicked"), "{complaint}");
    assert!(text(&output.stdout).contains("one-lane"));
}
