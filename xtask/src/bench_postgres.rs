//! Every benchmark on Postgres, each on a fresh server.

use std::process::{Command, Stdio};

use crate::bench::target;
use crate::cargo::Cargo;
use crate::json::number_of;
use crate::table::{row, table};

/// One benchmark: its command line, and the numbers to show.
struct Point {
    line: &'static str,
    shown: &'static [&'static str],
}

const POINTS: &[Point] = &[
    Point {
        line: "bench tasks --callers 256 --seconds 10 --compare",
        shown: &["batched_per_s", "unbatched_per_s", "ratio"],
    },
    Point {
        line: "bench tasks --callers 256 --seconds 10",
        shown: &[
            "cycles_per_s",
            "statements_per_batch",
            "round_trips_per_batch",
            "rounds_per_batch",
            "mean_batch",
            "conflicts",
            "p50_ms",
            "p99_ms",
        ],
    },
    Point {
        line: "bench tasks --callers 1024 --seconds 10 --engines 2",
        shown: &["cycles_per_s", "conflicts", "p50_ms", "p99_ms"],
    },
    Point {
        line: "bench drain --tasks 200000 --processes 2 --compare",
        shown: &[
            "tasks_per_s",
            "one_process_per_s",
            "ratio",
            "min_share_percent",
            "claims",
            "max_attempts",
            "released",
            "leases_expired",
        ],
    },
    Point {
        line: "bench claim --waiting 10000,1000000 --shape routes-of-lane,routes-of-hundred",
        shown: &[
            "routes-of-lane.10000.p50_ms",
            "routes-of-lane.1000000.p50_ms",
            "routes-of-hundred.10000.p50_ms",
            "routes-of-hundred.1000000.p50_ms",
            "worst_ratio",
            "worst_ratio_interleaved",
        ],
    },
    Point {
        line: "bench contended --writers 4 --callers 256 --seconds 10",
        shown: &[
            "waiting_per_s",
            "waiting_conflicts",
            "optimistic_per_s",
            "optimistic_conflicts",
            "ratio",
        ],
    },
    Point {
        line: "bench snapshot --callers 256 --seconds 60",
        shown: &["first_per_s", "last_per_s", "ratio"],
    },
];

pub(crate) fn run() -> Result<(), String> {
    let build =
        "build --profile dist --locked --package windlass-cli --package windlass-store-test";
    let build = Cargo::new(build);
    println!("==> {build}");
    build.run().map_err(|problem| format!("the build failed: {problem}\nreproduce: {build}"))?;
    let mut rows = vec![row([&"on a fresh Postgres", &"figure", &"value"])];
    for point in POINTS {
        let json = measure(point)?;
        let mut line = format!("windlass {}", point.line);
        for name in point.shown {
            let value = number_of(&json, name);
            let value = value.ok_or_else(|| format!("{line} printed no {name}: {json}"))?;
            rows.push(row([&line, name, &figure(value)]));
            line = String::new();
        }
    }
    print!("\n{}", table(&rows));
    Ok(())
}

/// Runs one benchmark. Returns its output.
fn measure(point: &Point) -> Result<String, String> {
    let folder = target().join("dist");
    let mut command = Command::new(folder.join("with-postgres"));
    command.arg("--").arg(folder.join("windlass")).args(point.line.split(' '));
    command.args(["--json", "--store", "{}"]);
    println!("==> {command:?}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let json = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{json}");
    Ok(json)
}

/// Formats a number: without decimals from 100 on, else with two.
fn figure(value: f64) -> String {
    match value {
        large if large >= 100.0 => format!("{large:.0}"),
        small => format!("{small:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, expected) in [(16_524.4, "16524"), (1.038, "1.04"), (0.0, "0.00")] {
            assert_eq!(figure(value), expected);
        }
    }
}
