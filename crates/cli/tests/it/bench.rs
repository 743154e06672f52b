use std::process::Command;

use serde_json::Value;
use windlass_store_test::postgres::Server;

use crate::{json, text, windlass};

/// Runs a benchmark on a store, and checks that it reports these numbers.
fn on(store: &str, line: &str, numbers: &[&str]) -> Value {
    let words = line.split(' ').chain(["--json", "--store", store]);
    let found = json(&windlass(&[&["bench"], &words.collect::<Vec<_>>()[..]].concat()));
    for name in numbers {
        let path = format!("/{}", name.replace('.', "/"));
        assert!(found.pointer(&path).is_some_and(Value::is_number), "{name}: {found}");
    }
    found
}

#[test]
fn help_lists_the_benchmarks() {
    let help = text(&windlass(&["--help"]).stdout);
    assert!(help.contains("bench"), "{help}");
    let help = text(&windlass(&["bench", "--help"]).stdout);
    let names = ["tasks", "pickup", "drain", "claim", "signal", "contended", "snapshot", "idle"];
    for name in names.into_iter().chain(["workflows"]) {
        assert!(help.contains(name), "{help}");
    }
    assert!(!help.contains("drain-share"), "{help}");
}

#[test]
fn a_wrong_argument_is_one_error_line() {
    for (args, expected) in [
        (&["bench", "tasks", "--store", "mysql://x"][..], "a store is sqlite://PATH"),
        (&["bench", "tasks", "--callers", "0"], "0 is not in 1..="),
        (&["bench", "task"], "unrecognized subcommand"),
        (&["bench", "drain", "--tasks", "-5"], "invalid value '-5' for '--tasks'"),
        (&["bench", "drain", "--claim", "5"], "--raw"),
        (&["bench", "drain", "--raw", "--handlers", "5"], "cannot be used with"),
        (&["bench", "pickup", "--rate", "0"], "0 is not in 1..="),
        (&["bench", "tasks", "--compare", "--unbatched"], "cannot be used with"),
        (&["bench", "drain", "--processes", "2", "--raw"], "cannot be used with"),
        (&["bench", "drain", "--compare"], "--processes"),
        (&["bench", "workflows", "--sleeping", "5", "--replay", "10"], "cannot be used with"),
        (&["bench", "workflows", "--replay", "10", "--steps", "5"], "cannot be used with"),
        (&["bench", "workflows", "--due-after", "5"], "--sleeping"),
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
fn a_file_that_is_not_a_database_is_rejected_unchanged() {
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
fn the_tasks_benchmark_reports_speed_and_durability() {
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
    assert_eq!(claims["claims"].as_array().unwrap().len(), 22, "eleven shapes of two sizes");
    let idle = json(&windlass(&["bench", "idle", "--seconds", "2", "--backlog", "100", "--json"]));
    assert_eq!(idle["commits"], 0);
}

#[test]
fn a_backlog_is_created_in_bulk_or_one_by_one() {
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
    // A late arrival is counted from its due time.
    assert!(ms("max_ms") >= ms("latest_arrival_ms"), "{found}");
    assert!(ms("p50_ms") > 0.0 && ms("p50_ms") <= ms("p99_ms") && ms("p99_ms") <= ms("max_ms"));
    assert_eq!(found["durability"], "wal, synchronous=FULL");
}

#[test]
fn signal_times_every_resumed_task() {
    let args = ["bench", "signal", "--tasks", "100", "--callers", "8", "--json"];
    let found = json(&windlass(&args));
    assert_eq!((&found["tasks"], &found["resumed"]), (&100.into(), &100.into()));
    let ms = |key: &str| found[key].as_f64().unwrap();
    assert!(ms("p50_ms") > 0.0 && ms("p50_ms") <= ms("p99_ms") && ms("p99_ms") <= ms("max_ms"));
    assert_eq!(found["durability"], "wal, synchronous=FULL");
}

#[test]
fn the_workflows_benchmark_reports_speed_and_cost_of_a_step() {
    for mode in [&["--steps", "3"][..], &["--steps", "8", "--fan-out"]] {
        let args = [&["bench", "workflows", "--workflows", "20", "--json"], mode].concat();
        let found = json(&windlass(&args));
        for key in ["workflows_per_s", "steps_per_s", "p50_ms", "mean_batch"] {
            assert!(found[key].as_f64().unwrap() > 0.0, "{key}: {found}");
        }
        assert_eq!(found["history_rows"], 0, "{found}");
        assert!(found.get("last_to_first").is_none(), "only a single workflow has this figure");
    }
    let args = ["bench", "workflows", "--workflows", "1", "--steps", "210", "--json"];
    let found = json(&windlass(&args));
    let number = |key: &str| found[key].as_f64().unwrap();
    assert!(number("first_steps_us") > 0.0 && number("last_steps_us") > 0.0, "{found}");
    let ratio = number("last_steps_us") / number("first_steps_us");
    assert!((ratio - number("last_to_first")).abs() < 0.01, "{found}");
    assert_eq!(found["history_rows"], 0, "{found}");
}

#[test]
fn sleeping_workflows_are_measured_and_woken() {
    let server = Server::start();
    for store in [None, Some(server.url())] {
        let mut args = vec!["bench", "workflows", "--sleeping", "60", "--json"];
        args.extend(store.iter().flat_map(|url| ["--store", url]));
        let found = json(&windlass(&args));
        assert_eq!((&found["sleeping"], &found["history_rows"]), (&60.into(), &60.into()));
        for key in ["row_bytes_each", "all_resumed_after_s", "resumed_per_s", "suspended_per_s"] {
            assert!(found[key].as_f64().unwrap() > 0.0, "{key}: {found}");
        }
        assert!(found["memory_bytes_each"].is_number(), "{found}");
        assert_eq!(found["file_bytes_each"].is_number(), store.is_none(), "{found}");
    }
    let soon = windlass(&["bench", "workflows", "--sleeping", "5", "--due-after", "0"]);
    assert_eq!(soon.status.code(), Some(1));
    assert!(text(&soon.stderr).contains("--due-after"), "{soon:?}");
}

#[test]
fn a_long_history_is_replayed_part_by_part() {
    let found = json(&windlass(&["bench", "workflows", "--replay", "200", "--json"]));
    let number = |key: &str| found[key].as_f64().unwrap();
    assert_eq!((number("events"), number("history_rows")), (201.0, 101.0), "{found}");
    let parts = ["load_ms", "decode_ms", "replay_ms"].map(number);
    assert!(parts.iter().all(|part| *part > 0.0), "{found}");
    assert!((parts.iter().sum::<f64>() - number("cold_replay_ms")).abs() < 0.01, "{found}");
    assert!(number("message_to_end_ms") > 0.0 && number("history_bytes") > 0.0, "{found}");
}

#[test]
fn a_named_store_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("bench.db").display());
    json(&windlass(&["bench", "drain", "--tasks", "500", "--json", "--store", &url]));
    let again = json(&windlass(&["bench", "drain", "--tasks", "500", "--json", "--store", &url]));
    assert_eq!(again["tasks"], 500);
    let memory = ["bench", "drain", "--tasks", "500", "--json", "--store", "memory:"];
    assert!(json(&windlass(&memory))["durability"].as_str().unwrap().starts_with("none"));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let command = format!(
        "{} bench claim --waiting 10,20 --claims 5 | head -1",
        env!("CARGO_BIN_EXE_windlass")
    );
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let complaint = text(&output.stderr);
    assert!(!complaint.contains("panicked"), "{complaint}");
    assert!(text(&output.stdout).contains("one-lane"));
}

#[test]
fn two_processes_share_a_backlog_and_nothing_runs_twice() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}", folder.path().join("shared.db").display());
    let server = Server::start();
    for store in [&file, &server.url()] {
        let line = "drain --tasks 3000 --handlers 20 --processes 2 --compare";
        let found = on(store, line, &["tasks_per_s", "one_process_per_s", "ratio"]);
        let number = |path: &str| found.pointer(path).and_then(Value::as_u64).unwrap();
        let both = |what: &str| {
            number(&format!("/process-1/{what}")) + number(&format!("/process-2/{what}"))
        };
        assert_eq!(both("completions"), 3_000, "{found}");
        assert_eq!(both("claims"), number("/claims"), "{found}");
        assert_eq!(number("/one_process/process-1/completions"), 3_000, "{found}");
        assert_eq!(both("not_settled"), 0, "{found}");
    }
}

#[test]
fn processes_share_no_memory() {
    let rejected = windlass(&["bench", "drain", "--processes", "2", "--store", "memory:"]);
    assert!(text(&rejected.stderr).contains("name a file or a server"), "{rejected:?}");
}

#[test]
fn a_benchmark_that_needs_a_server_is_rejected_without_one() {
    let rejected = windlass(&["bench", "snapshot", "--seconds", "2"]);
    assert_eq!(rejected.status.code(), Some(1));
    assert!(text(&rejected.stderr).contains("needs a database server"), "{rejected:?}");
}

#[test]
fn contended_has_one_figure_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}", folder.path().join("contended.db").display());
    let found = on(&file, "contended --seconds 1 --callers 8", &["waiting_per_s"]);
    assert!(found.get("optimistic").is_none(), "{found}");
}

#[test]
fn benchmarks_on_postgres() {
    let server = Server::start();
    let url = server.url();
    let batched = ["batched.statements_per_batch", "batched.round_trips_per_batch", "ratio"];
    let found = on(&url, "tasks --callers 32 --seconds 1 --compare", &batched);
    assert_eq!(found["unbatched"]["engines"], 16);
    assert_eq!(found["unbatched"]["connections"], 16);
    assert_eq!(found["unbatched"]["mean_batch"], 1.0);
    let found = on(&url, "tasks --callers 32 --seconds 1 --engines 2", &["cycles_per_s"]);
    assert_eq!(found["connections"], 16, "eight each");
    let both = ["waiting_per_s", "optimistic_per_s", "waiting_conflicts", "optimistic_conflicts"];
    on(&url, "contended --seconds 1 --callers 16", &both);
    let ends = ["first_per_s", "last_per_s", "ratio", "without.ratio"];
    on(&url, "snapshot --seconds 2 --callers 16 --compare", &ends);
    let claims = "claim --waiting 2000,4000 --claims 10 --shape routes-of-lane,routes-of-hundred";
    let found = on(&url, claims, &["worst_ratio"]);
    assert!(found["routes-of-lane.4000.p50_ms"].is_number(), "{found}");
    assert_eq!(found["claims"].as_array().unwrap().len(), 4, "{found}");
}
