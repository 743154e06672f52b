//! The layering: core has no I/O, stores have no domain rules.

use super::rule::Rule;
use crate::source::{Kind, Source, mentions, unquoted};
use crate::tree;

const CORE: &str = "crates/core/src/";
const CORE_MANIFEST: &str = "crates/core/Cargo.toml";
const CORE_DEPENDENCIES: &[&str] =
    &["hmac", "serde", "serde_json", "serde_json_canonicalizer", "sha2", "thiserror"];

const IMPURE: &[&str] = &[
    "async",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
    "std::fs",
    "fs::",
    "std::net",
    "net::",
    "rand",
];

/// Allowed in tests of core: a random test prints how to reproduce it.
const IMPURE_OUTSIDE_TESTS: &[&str] = &["println!", "eprintln!", "print!", "eprint!"];

const STATES: &[&str] = &[
    "waiting",
    "delayed",
    "claimed",
    "active",
    "completed",
    "failed",
    "cancelled",
    "expired",
    "paused",
    "draining",
    "disabled",
];

const DOMAIN: &[&str] = &["Lifecycle", "PublicState", "LaneState", "Command::", "command::"];

pub(super) fn rules(own: &[&Source]) -> Result<Vec<Rule>, String> {
    let core = own.iter().copied().filter(|source| source.path.starts_with(CORE));
    let in_store = |path: &str| tree::is_in_store(path) && path.contains("/src/");
    let stores = own.iter().copied().filter(|source| in_store(&source.path));
    let mut domain = Rule::over("domain words in stores", stores, domain_words);
    for path in tree::files("sql")?.iter().filter(|path| tree::is_in_store(path)) {
        domain.findings.extend(states_in_sql(path, &tree::read(path)?));
    }
    let dependencies = dependency_findings(&tree::read(CORE_MANIFEST)?);
    Ok(vec![
        Rule { title: "dependencies of core", findings: dependencies },
        Rule::over("clock, chance and I/O in core", core, impurities),
        domain,
    ])
}

fn dependency_findings(manifest: &str) -> Vec<String> {
    let found = dependencies(manifest);
    let extra = found.iter().filter(|name| !CORE_DEPENDENCIES.contains(&name.as_str()));
    let extra = extra.map(|name| format!("{CORE_MANIFEST} {name} is not among its dependencies"));
    let absent = CORE_DEPENDENCIES.iter().filter(|name| !found.iter().any(|f| f == *name));
    let absent = absent.map(|name| format!("{CORE_MANIFEST} {name} is missing"));
    extra.chain(absent).collect()
}

/// The names in every section of dependencies except those of tests.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            let ours = |section: &str| section.ends_with("dependencies") && !is_for_tests(section);
            inside = ours(header);
            if let Some((section, name)) = header.rsplit_once('.')
                && ours(section)
            {
                names.push(name.to_owned());
            }
        } else if inside && line.starts_with(|c: char| c.is_alphanumeric() || c == '"') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            names.push(name.trim_matches('"').to_owned());
        }
    }
    names
}

fn is_for_tests(section: &str) -> bool {
    section.ends_with("dev-dependencies")
}

fn impurities(source: &Source) -> Vec<String> {
    let anywhere = (source.code_and_tests(), IMPURE);
    let outside_tests = (source.code(), IMPURE_OUTSIDE_TESTS);
    let found = [anywhere, outside_tests].into_iter().flat_map(|(code, words)| {
        words.iter().flat_map(move |word| mentions(code, word).map(move |at| (at, *word)))
    });
    once_per_line(source, found)
}

fn domain_words(source: &Source) -> Vec<String> {
    let words = DOMAIN.iter();
    let found = words.flat_map(|word| mentions(source.code(), word).map(move |at| (at, *word)));
    let literals = source.every(Kind::Literal).filter_map(|(at, literal)| {
        let text = unquoted(literal);
        let named = |state: &&&str| text == **state || names_in_sql(text, state);
        STATES.iter().find(named).map(|state| (at, *state))
    });
    once_per_line(source, found.chain(literals))
}

/// A path such as `std::fs::read` contains more than one of the words.
fn once_per_line<'a>(
    source: &Source,
    found: impl Iterator<Item = (usize, &'a str)>,
) -> Vec<String> {
    let mut lines: Vec<(usize, &str)> =
        found.map(|(at, word)| (source.line_of(at), word)).collect();
    lines.sort_by_key(|&(line, _)| line);
    lines.dedup_by_key(|&mut (line, _)| line);
    lines.iter().map(|(line, word)| format!("{}:{line} {word}", source.path)).collect()
}

fn states_in_sql(path: &str, sql: &str) -> Vec<String> {
    let lines = sql.lines().enumerate();
    let named = lines.filter_map(|(index, line)| {
        let state = STATES.iter().find(|state| names_in_sql(line, state))?;
        Some(format!("{path}:{} {state}", index + 1))
    });
    named.collect()
}

fn names_in_sql(sql: &str, state: &str) -> bool {
    sql.contains(&format!("'{state}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_has_six_dependencies() {
        let five = concat!(
            "[dependencies]\nhmac = \"1\"\nserde.workspace = true\nserde_json = \"1\"\n",
            "serde_json_canonicalizer = \"0.4\"\nsha2 = \"1\"\n"
        );
        let check = |more: &str| dependency_findings(&format!("{five}{more}")).join(", ");
        assert_eq!(check("thiserror = \"2\"\n[dev-dependencies]\nproptest = \"1\"\n"), "");
        assert_eq!(
            check("\n[features]\ntokio = []\n"),
            format!("{CORE_MANIFEST} thiserror is missing")
        );
        for extra in [
            "tokio = { version = \"1\" }\n",
            "# why\ntokio.workspace = true\n",
            "[dependencies.tokio]\nversion = \"1\"\n",
            "[target.'cfg(unix)'.dependencies]\ntokio = \"1\"\n",
            "[build-dependencies]\ntokio = \"1\"\n",
        ] {
            let expected = format!("{CORE_MANIFEST} tokio is not among its dependencies");
            assert_eq!(check(&format!("thiserror = \"2\"\n{extra}")), expected, "{extra}");
        }
    }

    #[test]
    fn core_is_pure() {
        for (text, expected) in [
            ("async fn f() {}", "a.rs:1 async"),
            ("use std::time::{Duration, Instant};", "a.rs:1 Instant"),
            ("\nstd::fs::read(x)", "a.rs:2 std::fs"),
            ("println!()", "a.rs:1 println!"),
            ("#[cfg(test)]\nmod tests {\nuse std::collections::HashSet;\n}", "a.rs:3 HashSet"),
            ("#[cfg(test)]\nmod tests {\nprintln!()\n}", ""),
            ("/// An Instant, not async.\nlet operand = \"HashMap\";", ""),
        ] {
            assert_eq!(impurities(&Source::new("a.rs", text)).join(", "), expected, "{text}");
        }
    }

    #[test]
    fn stores_name_no_domain_word() {
        for (text, expected) in [
            ("f(\"waiting\")", "a.rs:1 waiting"),
            ("f(\"select 1 where state = 'active'\")", "a.rs:1 active"),
            ("use windlass_core::Lifecycle;", "a.rs:1 Lifecycle"),
            ("Command::Claim(x)", "a.rs:1 Command::"),
            ("f(\"the connection failed\")", ""),
            ("fn active() {} // waiting", ""),
            ("#[cfg(test)]\nmod tests {\nf(\"waiting\")\n}", ""),
        ] {
            assert_eq!(domain_words(&Source::new("a.rs", text)).join(", "), expected, "{text}");
        }
        let sql = "select 1\nwhere state = 'waiting'";
        assert_eq!(states_in_sql("a.sql", sql), ["a.sql:2 waiting"]);
    }
}
