//! Rules on counts: length, names, words.

use std::collections::BTreeMap;

use super::comment::tells_history;
use super::function::functions;
use super::rule::Rule;
use crate::source::{Kind, Source, mentions};
use crate::tree;

const FUNCTION_MAX: usize = 70;
const FILE_MAX: usize = 500;
const LINE_MAX: usize = 100;
const STORE_MAX: usize = 1_500;

const VAGUE: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "misc", "types", "stuff"];

/// In two parts, so that no search for the text finds it here.
const UNWRAP: &str = concat!(".unwrap", "()");

pub(super) fn rules(own: &[&Source]) -> Vec<Rule> {
    let each = || own.iter().copied();
    vec![
        Rule::over("functions over 70 lines", each(), long_functions),
        Rule::over("files over 500 lines", each(), long_file),
        Rule::over("lines over 100", each(), long_lines),
        Rule::over("comments that tell history", each(), history),
        Rule::over("vague file names", each(), vague_name),
        Rule::over("unwrap outside tests", each(), unwraps),
        Rule { title: "stores over 1,500 lines", findings: long_stores(own) },
    ]
}

fn long_functions(source: &Source) -> Vec<String> {
    let long = functions(source.code()).into_iter().filter(|found| found.lines > FUNCTION_MAX);
    long.map(|found| format!("{} {} {}", found.lines, source.location(found.at), found.name))
        .collect()
}

fn long_file(source: &Source) -> Vec<String> {
    let lines = source.lines().count();
    if lines > FILE_MAX { vec![format!("{lines} {}", source.path)] } else { Vec::new() }
}

fn long_lines(source: &Source) -> Vec<String> {
    // A URL cannot be wrapped.
    let long = |line: &str| line.chars().count() > LINE_MAX && !line.contains("http");
    let lines = source.lines().enumerate().filter(|(_, line)| long(line));
    lines.map(|(index, _)| format!("{}:{}", source.path, index + 1)).collect()
}

fn history(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (at, comment) in source.every(Kind::Comment) {
        for (index, line) in comment.lines().enumerate() {
            if tells_history(line) {
                let excerpt: String = line.trim_start_matches(['/', '!', '*', ' ']).into();
                let excerpt: String = excerpt.chars().take(70).collect();
                found.push(format!("{}:{} {excerpt}", source.path, source.line_of(at) + index));
            }
        }
    }
    found
}

fn vague_name(source: &Source) -> Vec<String> {
    let vague = |part: &str| VAGUE.contains(&part.strip_suffix(".rs").unwrap_or(part));
    if source.path.split('/').any(vague) { vec![source.path.clone()] } else { Vec::new() }
}

fn unwraps(source: &Source) -> Vec<String> {
    mentions(source.code(), UNWRAP).map(|at| source.location(at)).collect()
}

pub(super) fn lines_by_crate<'a>(own: &[&'a Source]) -> BTreeMap<&'a str, usize> {
    let mut lines = BTreeMap::new();
    for source in own {
        *lines.entry(tree::crate_of(&source.path)).or_default() += source.lines().count();
    }
    lines
}

fn long_stores(own: &[&Source]) -> Vec<String> {
    let stores: Vec<&Source> =
        own.iter().copied().filter(|source| tree::is_in_store(&source.path)).collect();
    let long = lines_by_crate(&stores).into_iter().filter(|&(_, lines)| lines > STORE_MAX);
    long.map(|(folder, lines)| format!("{lines} {folder}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let source = Source::new(path, text);
        let rules = rules(&[&source]).into_iter().filter(|rule| !rule.findings.is_empty());
        rules.map(|rule| format!("{}: {}", rule.title, rule.findings.join(", "))).collect()
    }

    #[test]
    fn a_limit_is_reached_and_passed() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    x;\n".repeat(lines - 2));
        assert_eq!(found("src/a.rs", &function(70)), [""; 0]);
        assert_eq!(found("src/a.rs", &function(71)), ["functions over 70 lines: 71 src/a.rs:1 f"]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "x;\n".repeat(600));
        assert_eq!(found("src/a.rs", &("x;\n".repeat(500) + &tests)), [""; 0]);
        assert_eq!(found("src/a.rs", &"x;\n".repeat(501)), ["files over 500 lines: 501 src/a.rs"]);
        assert_eq!(found("src/a.rs", &"é".repeat(100)), [""; 0]);
        assert_eq!(found("src/a.rs", &"é".repeat(101)), ["lines over 100: src/a.rs:1"]);
        assert_eq!(found("src/a.rs", &format!("// http{}", "x".repeat(100))), [""; 0]);
        let store = Source::new("crates/store-x/src/a.rs", &"x;\n".repeat(1_501));
        assert_eq!(long_stores(&[&store]), ["1501 crates/store-x"]);
        let suites = Source::new("crates/store-test/src/a.rs", &"x;\n".repeat(1_501));
        assert_eq!(long_stores(&[&suites]), [""; 0]);
    }

    #[test]
    fn words_are_found_outside_literals_and_tests() {
        for (text, expected) in [
            ("x.unwrap();", "unwrap outside tests: src/a.rs:1"),
            ("\nx(); // a hack", "comments that tell history: src/a.rs:2 a hack"),
            ("/* a\n   TODO */", "comments that tell history: src/a.rs:2 TODO */"),
        ] {
            assert_eq!(found("src/a.rs", text), [expected], "{text}");
        }
        for text in [
            "//! x.unwrap();",
            "f(\".unwrap()\", \"// TODO\")",
            "x.unwrap_or(1);",
            "#[cfg(test)]\nmod tests {\n// TODO\nx.unwrap();\n}",
        ] {
            assert_eq!(found("src/a.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn vague_file_names_are_found() {
        for path in ["src/util.rs", "src/helpers/lease.rs", "crates/common/src/lib.rs"] {
            assert_eq!(found(path, ""), [format!("vague file names: {path}")]);
        }
        assert_eq!(found("src/task_types.rs", ""), [""; 0]);
    }
}
