//! The benefit of batching: the same load with and without it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::Cargo;
use crate::json::number_of;
use crate::table::{row, table};
use crate::tree;

const CALLERS: &[u32] = &[256, 1];

struct Measured {
    cycles_per_s: f64,
    p50_ms: f64,
    rounds_per_batch: f64,
    mean_batch: f64,
}

pub(crate) fn run(seconds: u64) -> Result<(), String> {
    let build = Cargo::new("build --profile dist --locked --package windlass-cli --bin windlass");
    println!("==> {build}");
    build.run().map_err(|problem| format!("the build failed: {problem}\nreproduce: {build}"))?;
    // Beside the build and not in /tmp, which is often memory: there a commit costs nothing.
    let folder = target().join(format!("bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let report = measure_all(&folder, seconds);
    if let Err(error) = std::fs::remove_dir_all(&folder) {
        eprintln!("note: {} was not removed: {error}", folder.display());
    }
    print!("\n{}", report?);
    Ok(())
}

pub(crate) fn target() -> PathBuf {
    tree::root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()))
}

fn measure_all(folder: &Path, seconds: u64) -> Result<String, String> {
    let titles: [&dyn std::fmt::Display; 6] =
        [&"callers", &"mode", &"cycles/s", &"p50 ms", &"rounds/batch", &"mean batch"];
    let mut rows = vec![row(titles)];
    let mut ratios = String::new();
    for &callers in CALLERS {
        let batched = measure(folder, callers, seconds, true)?;
        let unbatched = measure(folder, callers, seconds, false)?;
        for (mode, found) in [("batched", &batched), ("unbatched", &unbatched)] {
            let rate = format!("{:.0}", found.cycles_per_s);
            let p50 = format!("{:.3}", found.p50_ms);
            let rounds = format!("{:.2}", found.rounds_per_batch);
            let batch = format!("{:.1}", found.mean_batch);
            rows.push(row([&callers, &mode, &rate, &p50, &rounds, &batch]));
        }
        let ratio = batched.cycles_per_s / unbatched.cycles_per_s;
        let plural = if callers == 1 { "caller" } else { "callers" };
        ratios += &format!("batched / unbatched at {callers} {plural}: {ratio:.2}\n");
    }
    Ok(format!("{}\n{ratios}", table(&rows)))
}

fn measure(folder: &Path, callers: u32, seconds: u64, batched: bool) -> Result<Measured, String> {
    let mode = if batched { "batched" } else { "unbatched" };
    let file = folder.join(format!("{mode}-{callers}.db"));
    let mut command = Command::new(target().join("dist/windlass"));
    command.args(["bench", "tasks", "--json"]);
    command.args(["--callers", &callers.to_string(), "--seconds", &seconds.to_string()]);
    command.args(["--store", &format!("sqlite://{}", file.display())]);
    if !batched {
        command.arg("--unbatched");
    }
    println!("==> {command:?}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let json = String::from_utf8_lossy(&output.stdout);
    let number =
        |key| number_of(&json, key).ok_or_else(|| format!("{command:?} printed no {key}: {json}"));
    Ok(Measured {
        cycles_per_s: number("cycles_per_s")?,
        p50_ms: number("p50_ms")?,
        rounds_per_batch: number("rounds_per_batch")?,
        mean_batch: number("mean_batch")?,
    })
}
