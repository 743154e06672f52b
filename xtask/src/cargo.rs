//! Calls of cargo, run from the root of the repository.

use std::fmt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::tree;

/// One call of cargo; prints as the command to type.
pub(crate) struct Cargo {
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
}

impl Cargo {
    pub(crate) fn new(line: &'static str) -> Self {
        Self { args: line.split(' ').map(String::from).collect(), env: Vec::new() }
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        command.args(&self.args).current_dir(tree::root());
        // These describe xtask. Passed on, they change what build scripts and `env!` see, and so
        // rebuild crates that a manual call would not.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(describes_xtask) {
                command.env_remove(name);
            }
        }
        for (name, value) in &self.env {
            command.env(name, value);
        }
        command
    }

    pub(crate) fn run(&self) -> Result<(), String> {
        let status = self.command().status();
        let status = status.map_err(|error| format!("cannot run cargo: {error}"))?;
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    }

    /// Whether it succeeds, without output.
    pub(crate) fn works(&self) -> bool {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl fmt::Display for Cargo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(out, "{name}={} ", quoted(value))?;
        }
        write!(out, "cargo")?;
        self.args.iter().try_for_each(|arg| write!(out, " {}", quoted(arg)))
    }
}

fn quoted(argument: &str) -> String {
    if argument.contains(' ') { format!("'{argument}'") } else { argument.to_owned() }
}

fn describes_xtask(name: &str) -> bool {
    let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CFG_"];
    let names = ["CARGO", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || names.contains(&name)
}

pub(crate) fn has_nextest() -> bool {
    Cargo::new("nextest --version").works()
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_prints_as_the_command_to_type() {
        let doc = Cargo::new("doc --no-deps").env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(doc.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }

    #[test]
    fn variables_of_xtask_are_not_passed_on() {
        for name in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "OUT_DIR"] {
            assert!(describes_xtask(name), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_TERM_COLOR", "PATH"] {
            assert!(!describes_xtask(name), "{name}");
        }
    }
}
