//! The checks that every change must pass, fastest failure first.

use std::process::Command;
use std::time::Instant;

use crate::cargo::{Cargo, has_nextest, seconds};
use crate::table::{row, table};
use crate::{tidy, tree};

struct Step {
    name: &'static str,
    work: Work,
}

enum Work {
    Tidy,
    Cargo(Cargo),
}

pub(crate) fn run() -> Result<(), String> {
    require_components()?;
    require_compiler()?;
    require_postgres()?;
    require_pgbouncer()?;
    let start = Instant::now();
    let mut rows = vec![row([&"step", &"took"])];
    for step in steps(has_nextest(), seed_start(tree::commit())) {
        println!("==> {}: {}", step.name, step.work.line());
        let step_start = Instant::now();
        let result = step.work.run();
        let took = seconds(step_start.elapsed());
        if let Err(problem) = result {
            let (name, line) = (step.name, step.work.line());
            return Err(format!("{name} failed after {took}: {problem}\nreproduce: {line}"));
        }
        println!("==> {}: passed in {took}\n", step.name);
        rows.push(row([&step.name, &took]));
    }
    rows.push(row([&"all", &seconds(start.elapsed())]));
    print!("{}", table(&rows));
    Ok(())
}

/// The first of the simulator's seeds that are run beside the fixed ones: the same for the same
/// commit, different for the next one, and zero, which adds none, without a commit.
fn seed_start(commit: Option<u32>) -> u64 {
    commit.map_or(0, |commit| u64::from(commit) * 1_000)
}

fn steps(with_nextest: bool, seed_start: u64) -> Vec<Step> {
    let tests = if with_nextest {
        "nextest run --workspace --locked"
    } else {
        println!("note: cargo-nextest is not installed, using cargo test");
        "test --workspace --locked"
    };
    let tests = Cargo::new(tests).env("WINDLASS_SEED_START", seed_start.to_string());
    let clippy = "clippy --workspace --all-targets --locked -- -D warnings";
    let doc = Cargo::new("doc --workspace --no-deps --locked").env("RUSTDOCFLAGS", "-D warnings");
    let cargo = |name, cargo| Step { name, work: Work::Cargo(cargo) };
    vec![
        Step { name: "tidy", work: Work::Tidy },
        cargo("fmt", Cargo::new("fmt --all --check")),
        cargo("clippy", Cargo::new(clippy)),
        cargo("tests", tests),
        // Nextest runs no doctests.
        cargo("doctests", Cargo::new("test --workspace --doc --locked")),
        cargo("docs", doc),
    ]
}

impl Work {
    fn run(&self) -> Result<(), String> {
        match self {
            Work::Tidy => tidy::run(),
            Work::Cargo(cargo) => cargo.run(),
        }
    }

    fn line(&self) -> String {
        match self {
            Work::Tidy => "cargo xtask tidy".into(),
            Work::Cargo(cargo) => cargo.to_string(),
        }
    }
}

fn require_components() -> Result<(), String> {
    for (component, probe) in [("rustfmt", "fmt --version"), ("clippy", "clippy --version")] {
        if !Cargo::new(probe).works() {
            return Err(format!("{component} is missing: rustup component add {component}"));
        }
    }
    Ok(())
}

/// SQLite is compiled from C, so a bare machine needs a C compiler.
fn require_compiler() -> Result<(), String> {
    if succeeds("cc", &["--version"]) {
        return Ok(());
    }
    install("a C compiler (cc)", "build-essential")
}

/// The tests start their servers in temporary directories.
fn require_postgres() -> Result<(), String> {
    let debian = std::fs::read_dir("/usr/lib/postgresql");
    let there = debian.is_ok_and(|mut versions| versions.next().is_some());
    if there || succeeds("initdb", &["--version"]) {
        return Ok(());
    }
    install("Postgres (initdb)", "postgresql")
}

/// Debian installs it where only root's PATH finds it.
fn require_pgbouncer() -> Result<(), String> {
    if succeeds("pgbouncer", &["--version"]) || succeeds("/usr/sbin/pgbouncer", &["--version"]) {
        return Ok(());
    }
    install("PgBouncer (pgbouncer)", "pgbouncer")
}

fn install(what: &str, package: &str) -> Result<(), String> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !is_root || !succeeds("apt-get", &["--version"]) {
        return Err(format!("{what} is missing: install {package}, or its name on your system"));
    }
    println!("==> {what} is missing: installing {package}");
    for args in [&["update", "-qq"][..], &["install", "-y", "--no-install-recommends", package]] {
        let mut apt = Command::new("apt-get");
        // At this run level no package starts a service: the tests start what they need.
        apt.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        let status = apt.args(args).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(format!("apt-get {} failed: install {package}", args.join(" ")));
        }
    }
    Ok(())
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_in_order() {
        let lines: Vec<String> = steps(true, 7_000).iter().map(|step| step.work.line()).collect();
        let expected = [
            "cargo xtask tidy",
            "cargo fmt --all --check",
            "cargo clippy --workspace --all-targets --locked -- -D warnings",
            "WINDLASS_SEED_START=7000 cargo nextest run --workspace --locked",
            "cargo test --workspace --doc --locked",
            "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked",
        ];
        assert_eq!(lines, expected);
        let line = "WINDLASS_SEED_START=0 cargo test --workspace --locked";
        assert_eq!(steps(false, 0)[3].work.line(), line);
    }

    #[test]
    fn the_seeds_depend_on_the_commit() {
        for (commit, start) in [(None, 0), (Some(0x9a2f_6d5c), 2_586_799_452_000)] {
            assert_eq!(seed_start(commit), start);
        }
    }
}
