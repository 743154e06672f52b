use std::collections::BTreeMap;

use crate::command::Command;
use crate::task::Fence;
use crate::testing::{LANE_STATES, LIMIT_STATES, NODE_STATES, Stage, TASK_STATES, fence, new_task};

/// The second column of a row: words, and words with a value.
pub(crate) struct Args(BTreeMap<String, String>);

impl Args {
    fn parse(text: &str) -> Self {
        let pair = |word: &str| match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (word.to_owned(), String::new()),
        };
        Self(text.split_whitespace().map(pair).collect())
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.0.contains_key(word)
    }

    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str, otherwise: N) -> N {
        match self.0.get(name) {
            None => otherwise,
            Some(text) => match text.parse() {
                Ok(number) => number,
                Err(_) => panic!("not a number: {text}"),
            },
        }
    }

    pub(crate) fn text(&self, name: &str, otherwise: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| otherwise.to_owned())
    }

    /// The fence a row acts under: epoch 1 by default.
    pub(crate) fn fence(&self) -> Fence {
        fence(self.number("epoch", 1))
    }
}

/// Rows of `task state | arguments | state after | outcome | events`. A `policy=` argument changes
/// the fixture: `none` for no retry policy, `late` for accepting late writes. With `waitpoint` the
/// task has one from its creation on.
#[track_caller]
pub(crate) fn check_task<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    let stage = |state: &str, args: &Args| {
        let mut new = new_task("t");
        match args.text("policy", "").as_str() {
            "none" => new.policy.retry = None,
            "accept_expired_lease" => new.policy.accept_expired_lease = true,
            _ => {}
        }
        let waitpoint = args.has("waitpoint");
        let mut stage = Stage::with_new_task_then(state, new, |stage| {
            if waitpoint {
                stage.open_waitpoint();
            }
        });
        if !waitpoint {
            stage.seed();
        }
        stage
    };
    check(table, TASK_STATES, stage, command, Stage::task_after);
}

/// Rows of `lane state | arguments | state after | outcome | events`.
#[track_caller]
pub(crate) fn check_lane<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    check(table, LANE_STATES, |state, _| Stage::with_lane(state), command, Stage::lane_after);
}

/// Rows of `node state | arguments | state after | outcome | events`.
#[track_caller]
pub(crate) fn check_node<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    check(table, NODE_STATES, |state, _| Stage::with_node(state), command, Stage::node_after);
}

/// Rows of `limit state | arguments | state after | outcome | events`.
#[track_caller]
pub(crate) fn check_limit<C: Into<Command>>(table: &str, command: impl Fn(&Args) -> C) {
    check(table, LIMIT_STATES, |state, _| Stage::with_limit(state), command, Stage::limit_after);
}

#[track_caller]
pub(crate) fn check<C: Into<Command>>(
    table: &str,
    states: &[&str],
    stage: impl Fn(&str, &Args) -> Stage,
    command: impl Fn(&Args) -> C,
    after: impl Fn(&Stage) -> String,
) {
    let mut wrong = Vec::new();
    let rows = table.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in rows.clone() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [state, args, ..] = cells[..] else { panic!("too few columns: {line}") };
        let args = Args::parse(args);
        let mut stage = stage(state, &args);
        let seen = stage.tables.events_after(0).last().map_or(0, |logged| logged.seq);
        let before = stage.tables.clone();
        let outcome = stage.run(command(&args));
        if outcome.is_err() {
            assert_eq!(before, stage.tables, "a rejection changed something: {line}");
        }
        let found = [after(&stage), stage.outcome_text(&outcome), stage.events_since(seen)]
            .map(|s| s.trim().to_owned());
        if cells[2..] != found {
            wrong.push(format!("{line}\n    found: {}", found.join(" | ")));
        }
    }
    assert!(wrong.is_empty(), "rows that differ:\n{}", wrong.join("\n"));
    for state in states {
        let named = rows.clone().any(|line| line.split('|').next().map(str::trim) == Some(*state));
        assert!(named, "no row for the state {state}");
    }
}
