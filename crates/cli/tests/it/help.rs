//! Help, errors about arguments, completions.

use serde_json::Value;

use crate::test_store::TestStore;

const COMMANDS: &[&str] = &[
    "task create",
    "task list",
    "task show",
    "task why",
    "task cancel",
    "task replay",
    "task priority",
    "task wait",
    "task resume",
    "signal",
    "waitpoint create",
    "waitpoint list",
    "signing-key rotate",
    "signing-key list",
    "task grant",
    "task revoke",
    "worker list",
    "workflow start",
    "workflow list",
    "workflow show",
    "workflow history",
    "workflow tree",
    "workflow signal",
    "workflow cancel",
    "workflow delete",
    "workflow prune",
    "workflow check-history",
    "lane list",
    "lane pause",
    "lane resume",
    "lane drain",
    "lane disable",
    "lane limit",
    "quota list",
    "quota show",
    "quota set",
    "quota clear",
    "session list",
    "session release",
    "node list",
    "dlq list",
    "dlq replay",
    "events",
    "stats",
    "migrate",
    "doctor",
];

#[test]
fn every_command_has_help() {
    let store = TestStore::empty();
    for command in COMMANDS {
        let help = store.ok(&format!("{command} --help"));
        assert!(!help.starts_with("Usage:"), "{command} has a description: {help}");
        for part in ["Usage: windlass", "Where and how:", "--store <URL>", "--tenant", "--json"] {
            assert!(help.contains(part), "{command}: {part}: {help}");
        }
        let options = help.lines().map(str::trim).filter(|line| line.starts_with("--"));
        for option in options {
            let words = option.split("  ").filter(|words| !words.is_empty()).count();
            assert!(words > 1, "{command}: {option} has a description");
        }
    }
    for command in ["task create", "task list", "quota set", "dlq replay", "events", "signal"] {
        assert!(store.ok(&format!("{command} --help")).contains("Examples:"), "{command}");
    }
}

#[test]
fn lists_of_commands_describe_each_of_them() {
    let store = TestStore::empty();
    for (line, names) in [
        (
            "--help",
            &["task", "lane", "node", "dlq", "events", "stats", "migrate", "doctor", "bench"][..],
        ),
        (
            "task --help",
            &["create", "list", "show", "why", "cancel", "replay", "priority", "grant", "revoke"],
        ),
        (
            "workflow --help",
            &["start", "list", "show", "history", "tree", "signal", "cancel", "delete"],
        ),
        ("lane --help", &["list", "pause", "resume", "drain", "disable", "limit"]),
        ("quota --help", &["list", "show", "set", "clear"]),
        ("session --help", &["list", "release"]),
        ("node --help", &["list"]),
        ("worker --help", &["exec", "list"]),
        ("dlq --help", &["list", "replay"]),
    ] {
        let help = store.ok(line);
        for name in names {
            let is_listed = help.lines().map(str::trim).any(|line| {
                line.strip_prefix(name).is_some_and(|rest| rest.trim_start().len() > 10)
            });
            assert!(is_listed, "{line}: {name}: {help}");
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let store = TestStore::empty();
    for (line, expected) in [
        ("task create", "<KIND>"),
        ("task create email --delay soon", "a duration is a number and ms, s, m, h or d"),
        ("task create email --backoff 1s", "--attempts <N>"),
        ("task create email --attempts 3 --backoff 1s-2s", "a duration is"),
        ("task create email --payload {broken", "this is not JSON"),
        ("task create email --payload 1 --payload-file x", "cannot be used with"),
        ("task create email --label customer", "a label is NAME=VALUE"),
        ("task list --state dead", "waiting_children, completed, failed"),
        ("task create email --attempts 3 --backoff 1h..1s", "1s..1h"),
        ("task create email --delay -5m", "invalid value '-5m' for '--delay'"),
        ("task create email --attempts -1", "invalid value '-1' for '--attempts <N>'"),
        ("lane limit mail -1", "invalid value '-1' for '<N|none>'"),
        ("task list --limit -1", "invalid value '-1' for '--limit"),
        ("task list --limit 0", "0 is not in 1.."),
        ("task list --all --limit 5", "cannot be used with"),
        ("task priority t high", "invalid digit"),
        ("task wait t --timeout 5", "a duration is"),
        ("task grant t", "<WORKER>"),
        ("task grant t w --ttl 5", "a duration is"),
        ("events --label customer", "a label is NAME=VALUE"),
        ("task explode t", "unrecognized subcommand"),
        ("task list --stat x", "'--stat' found; a similar argument exists: '--state'"),
        ("workflow start", "<KIND>"),
        ("workflow start k --input {broken", "this is not JSON"),
        ("workflow start k --label x", "a label is NAME=VALUE"),
        ("workflow list --state dead", "waiting_children, completed, failed"),
        ("workflow history o --execution -1", "invalid value '-1' for '--execution"),
        ("workflow tree o --limit 0", "0 is not in 1..=1000"),
        ("workflow signal o", "<NAME>"),
        ("workflow check-history", "<ID|--file <PATH>>"),
        ("workflow check-history o --file x", "cannot be used with"),
        ("signal", "<NAME>"),
        ("signal go", "--token <TOKEN>"),
        ("signal go --task t --token x", "cannot be used with"),
        ("signal go --task t --delay soon", "a duration is"),
        ("signal go --task t --payload {broken", "this is not JSON"),
        ("waitpoint create t", "<ID>"),
        ("waitpoint list --limit 0", "0 is not in 1..=1000"),
        ("signing-key rotate --grace soon", "a duration is"),
        ("lane limit mail 0", "a limit is a number from 1 on, or none"),
        ("dlq replay", "--all"),
        ("dlq replay t --all", "cannot be used with"),
        ("events --after 17", "a cursor is INCARNATION:NUMBER"),
        ("events --category tasks", "task, lease, completion, lane, signal"),
        ("stats --store /tmp/x.db", "a store is sqlite://PATH"),
        ("stats --store postgres://app:hidden@h/d?nonsense=1", "'postgres://app@h/d?nonsense=1'"),
        ("stats --store postgress://app:hidden@h/d", "'postgress://app@h/d'"),
        ("stats --store memory:", "ends with this command"),
        ("task create email --store memory:", "ends with this command"),
        ("worker exec --kind k --store memory: -- true", "ends with this command"),
    ] {
        let output = store.run(line);
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{line}: {output:?}");
        assert!(output.err.contains(expected), "{line}: {}", output.err);
        assert!(output.err.starts_with("windlass: "), "{line}: {}", output.err);
        let words = line.split_once(" --").map_or(line, |(words, _)| words);
        let path = COMMANDS.iter().find(|path| words.starts_with(**path));
        let path = path
            .map_or_else(|| words.split(' ').next().unwrap().to_owned(), |path| (*path).to_owned());
        let path = if path == "worker" { "worker exec".to_owned() } else { path };
        assert!(
            output.err.ends_with(&format!(" (see windlass {path} --help) [usage]\n")),
            "{line}: {}",
            output.err
        );
        assert_eq!(output.err.lines().count(), 1, "{line}: {}", output.err);
        assert!(!output.err.contains("tip: to pass"), "{line}: {}", output.err);
        assert!(!output.err.contains("hidden"), "{line}: {}", output.err);

        let line = match line.split_once(" -- ") {
            Some((ours, theirs)) => format!("{ours} --json -- {theirs}"),
            None => format!("{line} --json"),
        };
        let output = store.run(&line);
        let error: Value = serde_json::from_str(&output.err).unwrap();
        assert_eq!(error["error"]["code"], "usage", "{line}");
        assert!(error["error"]["message"].as_str().unwrap().contains(expected), "{error}");
        assert!(!store.file("app.db").exists(), "{line}");
    }
}

#[test]
fn errors_are_json_for_programs() {
    let store = TestStore::empty();
    store.ok("task create email --id t");
    for (line, code, exit) in [
        ("task show nope", "task_not_found", 4),
        ("task why nope", "task_not_found", 4),
        ("task cancel nope", "task_not_found", 4),
        ("task replay nope", "task_not_found", 4),
        ("task priority nope 1", "task_not_found", 4),
        ("task wait nope", "task_not_found", 4),
        ("task resume nope", "task_not_found", 4),
        ("task resume t", "not_suspended", 3),
        ("signal go --task nope", "task_not_found", 4),
        ("signal go --token nope", "token_invalid", 3),
        ("waitpoint create nope p", "task_not_found", 4),
        ("waitpoint create t not.so", "invalid", 2),
        ("task grant nope w", "task_not_found", 4),
        ("task grant t w --ttl 1ms", "invalid", 2),
        ("task revoke nope", "task_not_found", 4),
        ("task revoke t", "not_leased", 3),
        ("workflow show nope", "task_not_found", 4),
        ("workflow show t", "not_a_workflow", 3),
        ("workflow start k --input @nowhere.json", "payload_file", 1),
        ("lane pause nope", "lane_not_found", 4),
        ("lane limit nope 1", "lane_not_found", 4),
        ("task replay t", "not_terminal", 3),
        ("task wait t --timeout 1ms", "timed_out", 1),
        ("events --after elsewhere:1", "cursor_expired", 1),
        ("dlq replay t", "not_replayed", 3),
        ("dlq replay nope", "not_replayed", 4),
        ("stats --store sqlite:///nowhere/x.db", "no_database", 4),
    ] {
        let output = store.run(&format!("{line} --json"));
        assert_eq!(output.code, exit, "{line}: {output:?}");
        let error: Value = serde_json::from_str(&output.err).unwrap();
        assert_eq!(error["error"]["code"], code, "{line}: {error}");
        assert!(error["error"]["message"].is_string(), "{line}");

        let output = store.run(line);
        assert_eq!(output.code, exit, "{line}: {output:?}");
        assert!(output.err.starts_with("windlass: "), "{line}: {output:?}");
        assert!(output.err.ends_with(&format!("[{code}]\n")), "{line}: {output:?}");
        assert_eq!(output.err.lines().count(), 1, "{line}: {output:?}");
    }
}

#[test]
fn completions_contain_the_commands() {
    let store = TestStore::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = store.ok(&format!("completions {shell}"));
        for word in ["windlass", "priority", "idempotency-key", "drain"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let output = store.run("completions tcsh");
    assert_eq!(output.code, 2);
    assert!(output.err.contains("bash, elvish, fish, powershell, zsh"), "{output:?}");
}
