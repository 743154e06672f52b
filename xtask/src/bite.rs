//! Whether the simulator bites: switches off one rule at a time and counts the seeds that notice.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::Cargo;
use crate::table::{row, table};
use crate::tree;
use crate::{bite_foreign, bite_requests, bite_workflows};

/// A rule, and the change that switches it off.
pub(crate) struct Bite {
    pub(crate) rule: &'static str,
    pub(crate) file: &'static str,
    /// Found exactly once in the file.
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

const BITES: &[Bite] = &[
    Bite {
        rule: "a fence counts only under its own epoch",
        file: "crates/core/src/primitive/hold.rs",
        from: "if task.epoch != epoch {",
        to: "if false {",
    },
    Bite {
        rule: "what was only read is checked at the commit",
        file: "crates/core/src/shelf.rs",
        from: "changes.reads.iter().all(|(key, version)| same(key, *version))",
        to: "changes.reads.iter().all(|_| true)",
    },
    Bite {
        rule: "an attempt is counted when it begins",
        file: "crates/core/src/primitive/begin.rs",
        from: "    task.count_attempt();\n",
        to: "",
    },
    Bite {
        rule: "the last settle is remembered",
        file: "crates/core/src/primitive/settle.rs",
        from: "task.last_settle = Some(Settle",
        to: "let _: Option<Settle> = Some(Settle",
    },
    Bite {
        rule: "another settle of a settled lease is refused",
        file: "crates/core/src/primitive/settle.rs",
        from: "Some(last) if last.digest != digest =>",
        to: "Some(_) if false =>",
    },
    Bite {
        rule: "an insert is an insert",
        file: "crates/core/src/shelf.rs",
        from: ".all(|row| !self.rows.contains_key(&row.key));",
        to: ".all(|_| true);",
    },
    Bite {
        rule: "an answer comes after its commit",
        file: "crates/engine/src/batch.rs",
        from: "let committed = tx.commit(changes.clone()).await;",
        to: "let committed = Ok(drop(tokio::spawn(tx.commit(changes.clone()))));",
    },
    Bite {
        rule: "an unknown outcome is looked up",
        file: "crates/engine/src/batcher.rs",
        from: "Some(true) => {",
        to: "Some(_) => {",
    },
    Bite {
        rule: "a key with another request is a conflict",
        file: "crates/core/src/primitive/reserve.rs",
        from: "if known.fingerprint != wish.fingerprint {",
        to: "if false {",
    },
    Bite {
        rule: "what becomes ready wakes a claim",
        file: "crates/core/src/primitive/place.rs",
        from: "list(world, &task)?;\n            world.wake(",
        to: "list(world, &task)?;\n            drop(",
    },
    Bite {
        rule: "a lane counts the leases that end",
        file: "crates/core/src/primitive/place.rs",
        from: "gate.running = gate.running.saturating_sub(1);",
        to: "",
    },
    Bite {
        rule: "a lease that has run out takes no writes",
        file: "crates/core/src/primitive/hold.rs",
        from: "if now < lease.expires_at || task.policy.accept_late",
        to: "if true",
    },
    Bite {
        rule: "a lease lasts as long as was asked",
        file: "crates/core/src/command/claim.rs",
        from: "let expires_at = now.plus_ms(self.lease_ms);",
        to: "let expires_at = now.plus_ms(self.lease_ms * 4);",
    },
    Bite {
        rule: "a renewal makes a lease longer",
        file: "crates/core/src/command/renew.rs",
        from: "lease.expires_at.max(now.plus_ms(self.lease_ms));",
        to: "lease.expires_at.max(now);",
    },
    Bite {
        rule: "who gives up is not tried again",
        file: "crates/core/src/task/policy.rs",
        from: "            Retry::GiveUp => None,",
        to: "            Retry::GiveUp => Some(now),",
    },
    Bite {
        rule: "a failure for good is not tried again",
        file: "crates/core/src/task/policy.rs",
        from: "Retry::Policy if !self.policy.retries(class) => None,",
        to: "Retry::Policy if false => None,",
    },
    Bite {
        rule: "a handler says when it is tried again",
        file: "crates/core/src/task/policy.rs",
        from: "Retry::After { ms } => Some(now.plus_ms(ms)),",
        to: "Retry::After { .. } => Some(now),",
    },
    Bite {
        rule: "the next try waits for its backoff",
        file: "crates/core/src/task/policy.rs",
        from: "Some(now.plus_ms(self.backoff_ms()))",
        to: "Some(now)",
    },
    Bite {
        rule: "an attempt has its time",
        file: "crates/core/src/primitive/begin.rs",
        from: "map(|ms| now.plus_ms(ms));",
        to: "map(|ms| now.plus_ms(ms / 10));",
    },
    Bite {
        rule: "what is urgent goes first",
        file: "crates/core/src/task/record.rs",
        from: "-i64::from(self.priority)",
        to: "0",
    },
    Bite {
        rule: "a claim gets only what its offer meets",
        file: "crates/core/src/command/claim.rs",
        from: ".filter(|route| self.offer.meets(route)).collect())",
        to: ".collect())",
    },
    Bite {
        rule: "leases run out only so often",
        file: "crates/core/src/command/sweep/task.rs",
        from: "task.reclaims > task.policy.max_reclaims",
        to: "false",
    },
    Bite {
        rule: "a task is replayed only so often",
        file: "crates/core/src/command/replay.rs",
        from: "if known.generation >= max {",
        to: "if false {",
    },
    Bite {
        rule: "an ended task stays for a while",
        file: "crates/core/src/task/record.rs",
        from: "return Some(at.plus_ms(kept_ms))",
        to: "return Some(*at)",
    },
    Bite {
        rule: "a task keeps its input",
        file: "crates/core/src/command/create.rs",
        from: "world.attach(task.payload_key(0, Slot::INPUT), payload.clone());",
        to: "",
    },
    Bite {
        rule: "another input is another request",
        file: "crates/core/src/command/create.rs",
        from: "Payload::digest(self.payload.as_ref(), digester).finish()",
        to: "digester.finish()",
    },
    Bite {
        rule: "a key stands for its request as long as was asked",
        file: "crates/core/src/primitive/reserve.rs",
        from: "expires_at: now.plus_ms(wish.window_ms),",
        to: "expires_at: now.plus_ms(wish.window_ms / 2),",
    },
    Bite {
        rule: "a worker counts its lease from before it asked",
        file: "crates/worker/src/claimer.rs",
        from: "let asked = Instant::now();",
        to: "let asked = Instant::now() + self.worker.lease_length();",
    },
    Bite {
        rule: "a handler that does not stop is dropped",
        file: "crates/worker/src/attempt.rs",
        from: "        handler.shutdown().await;\n",
        to: "        handler.detach_all();\n",
    },
    Bite {
        rule: "a waitpoint admits one message",
        file: "crates/core/src/command/signal.rs",
        from: "if matches!(waitpoint.state, WaitpointState::Used { .. }) {",
        to: "if false {",
    },
    Bite {
        rule: "a message lets its task go on as it comes",
        file: "crates/core/src/primitive/mailbox.rs",
        from: "let resumed = visible && resume_if_met(world, &task)?;",
        to: "let resumed = visible && false && resume_if_met(world, &task)?;",
    },
    Bite {
        rule: "a message that becomes visible lets its task go on",
        file: "crates/core/src/command/sweep/message.rs",
        from: "            resume_if_met(world, &task)?;",
        to: "            let _ = (&task, resume_if_met);",
    },
    Bite {
        rule: "an attempt that was paused goes on",
        file: "crates/core/src/command/claim.rs",
        from: "run: paused.map(|paused| paused.run(now)),",
        to: "run: None,",
    },
    Bite {
        rule: "a message lets an attempt go on once",
        file: "crates/core/src/task/condition.rs",
        from: "let heard = message.taken_by == Some(began_at);",
        to: "let heard = message.taken_by == Some(began_at) && began_at.micros() < 0;",
    },
    Bite {
        rule: "the last child wakes its parent",
        file: "crates/core/src/primitive/family.rs",
        from: "let was_last = children.open == 0;",
        to: "let was_last = false;",
    },
    Bite {
        rule: "a parent waits for the last child",
        file: "crates/core/src/primitive/family.rs",
        from: "let was_last = children.open == 0;",
        to: "let was_last = children.open <= 1;",
    },
    Bite {
        rule: "children are called off with their parent",
        file: "crates/core/src/primitive/family.rs",
        from: "let due_at = (called_off && known.open > 0).then(|| world.now());",
        to: "let due_at = None;",
    },
    Bite {
        rule: "a parent is kept as long as a child is open",
        file: "crates/core/src/primitive/family.rs",
        from: "Some(children) if children.open > 0 => {",
        to: "Some(children) if false => {",
    },
    Bite {
        rule: "a gate counts what runs",
        file: "crates/core/src/primitive/gate.rs",
        from: "Some(Stage::Running) => self.running += 1,",
        to: "Some(Stage::Running) => {}",
    },
    Bite {
        rule: "a start counts for the whole window",
        file: "crates/core/src/rate.rs",
        from: "Timestamp::from_micros(end).plus_ms(self.window_ms)",
        to: "Timestamp::from_micros(end).plus_ms(self.window_ms / 2)",
    },
    Bite {
        rule: "a quota counts what is claimed",
        file: "crates/core/src/primitive/meter.rs",
        from: "            gate.running += count;\n",
        to: "",
    },
    Bite {
        rule: "who was refused by a quota is woken",
        file: "crates/core/src/primitive/meter.rs",
        from: "world.wake(Wake { tenant: gate.tenant.clone(), lane, route: None });",
        to: "drop(Wake { tenant: gate.tenant.clone(), lane, route: None });",
    },
    Bite {
        rule: "a session stays with its owner for a while",
        file: "crates/core/src/gate.rs",
        from: "self.owner.as_ref().filter(|owner| runs || now < owner.until)",
        to: "self.owner.as_ref().filter(|_| runs)",
    },
    Bite {
        rule: "who owns a session and is lost loses it",
        file: "crates/core/src/primitive/gate.rs",
        from: "owner.until = if lost { now } else { now.plus_ms(owner.idle_ms) };",
        to: "owner.until = now.plus_ms(if lost { 600_000 } else { owner.idle_ms });",
    },
    Bite {
        rule: "a dead worker loses what it holds",
        file: "crates/core/src/command/sweep/worker.rs",
        from: "let lost = world.each(&held, |world, task| lose(world, task))?;",
        to: "let lost = vec![lose as *const () as usize == 0; held.len()];",
    },
    Bite {
        rule: "a worker is missed before it is taken for dead",
        file: "crates/core/src/command/sweep/worker.rs",
        from: "if self.missed_at.is_none() {",
        to: "if false {",
    },
    Bite {
        rule: "what is kept for one worker is for nobody else",
        file: "crates/core/src/command/consume.rs",
        from: "if *worker == self.worker && until",
        to: "if worker.as_str() != \"\" && until",
    },
    Bite {
        rule: "what was revoked is held by nobody",
        file: "crates/core/src/command/revoke.rs",
        from: "                task.put_off(now, now);\n",
        to: "",
    },
];

/// What a build needs.
const EXTENSIONS: &[&str] = &["rs", "toml", "lock", "sql", "md"];

/// What the simulator said.
#[derive(Debug, Default, PartialEq)]
struct Found {
    seeds: u64,
    violations: u64,
    first: Option<u64>,
    kinds: Vec<String>,
}

/// Every rule that the simulator is to miss.
pub(crate) fn all() -> Vec<&'static Bite> {
    let workflows = bite_workflows::BITES.iter().chain(bite_foreign::BITES);
    BITES.iter().chain(bite_requests::BITES).chain(workflows).collect()
}

pub(crate) fn run(bites: &[&Bite], seeds: u64) -> Result<(), String> {
    let place = Place::new();
    place.copy()?;
    let titles: [&dyn std::fmt::Display; 5] =
        [&"switched off", &"seeds", &"seeds that notice", &"first", &"by what"];
    let mut rows = vec![row(titles)];
    let untouched = place.simulate("nothing", seeds)?;
    rows.push(untouched.row("nothing"));
    let mut unnoticed = Vec::new();
    for bite in bites {
        let found = place.without(bite, || place.simulate(bite.rule, seeds))?;
        rows.push(found.row(bite.rule));
        if found.violations == 0 {
            unnoticed.push(bite.rule);
        }
    }
    print!("\n{}", table(&rows));
    if untouched.violations > 0 {
        return Err("a seed breaks a rule with nothing switched off".into());
    }
    match unnoticed[..] {
        [] => Ok(()),
        _ => Err(format!("no seed notices without: {}", unnoticed.join(", "))),
    }
}

impl Bite {
    pub(crate) fn patch(&self, text: &str) -> Result<String, String> {
        match text.matches(self.from).count() {
            1 => Ok(text.replace(self.from, self.to)),
            times => Err(format!(
                "the patch for \"{}\" does not fit: {} has {times} times {:?}",
                self.rule, self.file, self.from
            )),
        }
    }
}

/// A copy of the tree, which stays for the next time, with a target folder of its own.
pub(crate) struct Place {
    tree: PathBuf,
    target: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
        let home = tree::root().join(target).join("bite");
        Self { tree: home.join("tree"), target: home.join("target") }
    }

    /// Brings the copy up to date. What is the same stays as it is, so that it is not built again.
    pub(crate) fn copy(&self) -> Result<(), String> {
        let mut paths = Vec::new();
        for extension in EXTENSIONS {
            paths.extend(tree::files(extension)?);
        }
        for path in paths {
            let from = tree::root().join(&path);
            let bytes = std::fs::read(&from).map_err(|error| failed(&from, &error))?;
            let to = self.tree.join(&path);
            if std::fs::read(&to).is_ok_and(|known| known == bytes) {
                continue;
            }
            if let Some(folder) = to.parent() {
                std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
            }
            write(&to, bytes)?;
        }
        Ok(())
    }

    /// Does something while a rule is switched off.
    pub(crate) fn without<T>(
        &self,
        bite: &Bite,
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let path = self.tree.join(bite.file);
        let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        write(&path, bite.patch(&text)?)?;
        let done = act();
        write(&path, &text)?;
        done.map_err(|error| format!("without \"{}\": {error}", bite.rule))
    }

    /// A call of cargo in the copy. What is switched off may leave something unused.
    pub(crate) fn command(&self, call: Cargo) -> Command {
        let call = call
            .env("CARGO_TARGET_DIR", self.target.to_string_lossy())
            .env("RUSTFLAGS", "--cap-lints=allow");
        let mut command = call.command();
        command.current_dir(&self.tree);
        command
    }

    fn simulate(&self, rule: &str, seeds: u64) -> Result<Found, String> {
        println!("==> without: {rule}");
        // Fat link-time optimization would take longer than the seeds.
        let build = Cargo::new("build --release --quiet --package windlass-sim --bin windlass-sim")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        let status = self.command(build).status();
        if !status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
            return Err("the build failed".into());
        }
        let mut simulator = Command::new(self.target.join("release/windlass-sim"));
        simulator.args(["--count", "--seeds", &seeds.to_string()]);
        // A rule that is missed may well be missed with a panic.
        let output = simulator.stderr(std::process::Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot run {simulator:?}: {error}"))?;
        let found = Found::read(&String::from_utf8_lossy(&output.stdout));
        match found.seeds == seeds {
            true => Ok(found),
            false => Err(format!("{simulator:?} ended early: {}", output.status)),
        }
    }
}

impl Found {
    fn read(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let number = || rest.parse().unwrap_or(0);
            match word {
                "seeds" => found.seeds = number(),
                "violations" => found.violations = number(),
                "first" => found.first = Some(number()),
                "kind" => found.kinds.push(rest.to_owned()),
                _ => {}
            }
        }
        found
    }

    fn row(&self, rule: &str) -> Vec<String> {
        let first = self.first.map_or("-".into(), |seed| seed.to_string());
        let kinds = if self.kinds.is_empty() { "-".into() } else { self.kinds.join(", ") };
        row([&rule, &self.seeds, &self.violations, &first, &kinds])
    }
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_fits() {
        for bite in all() {
            let text = tree::read(bite.file).unwrap();
            assert_ne!(bite.patch(&text).unwrap(), text);
        }
    }

    #[test]
    fn a_patch_that_does_not_fit_says_so() {
        let bite = Bite { rule: "r", file: "f.rs", from: "a", to: "b" };
        assert_eq!(bite.patch("a c").unwrap(), "b c");
        for (text, times) in [("c", 0), ("a a", 2)] {
            let expected =
                format!("the patch for \"r\" does not fit: f.rs has {times} times \"a\"");
            assert_eq!(bite.patch(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn what_the_simulator_says_is_read() {
        let text = "seeds 9\nevents 70\nviolations 2\nfirst 3\nkind Stuck 1\nkind Key 1\n";
        let kinds = vec!["Stuck 1".into(), "Key 1".into()];
        let expected = Found { seeds: 9, violations: 2, first: Some(3), kinds };
        assert_eq!(Found::read(text), expected);
        assert_eq!(expected.row("r"), ["r", "9", "2", "3", "Stuck 1, Key 1"]);
    }
}
