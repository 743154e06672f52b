//! Phrases that say less than a term of the vocabulary, each with its replacement.

use super::rule::Rule;
use super::split::{Word, words};
use crate::source::{Source, is_word};
use crate::tree;

/// The only file without the check: the list and its tests have to spell the phrases.
const DEFINITION: &str = "xtask/src/tidy/words.rs";

/// A phrase in lower case, and what to say instead.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "the caller, the worker, the lease holder, the operator"),
    ("nobody", "no caller, no worker, no operator"),
    ("somebody", "a caller, a worker, an operator"),
    ("is told", "receives, is notified, gets the response"),
    ("was told", "received, was notified, got the response"),
    ("are told", "receive, are notified, get the response"),
    ("goes on", "continues, keeps the lease"),
    ("go on", "continue, keep the lease"),
    ("stands", "is stored, is committed, is valid"),
    ("in hand", "held, leased, in flight"),
    ("in vain", "without effect, finds none, fails"),
    ("taken for", "treated as, declared"),
    ("by itself", "automatically, alone, without a request"),
    ("of its own", "separate, dedicated, private"),
    ("what came", "the message, the input, the response"),
    ("comes to be", "becomes, is created"),
    ("nought", "zero, none"),
    ("is another", "differs, is a different one"),
    ("hears of", "is notified of, receives"),
    ("heard of", "notified of, received"),
    ("told of", "notified of"),
    ("tells of", "names, reports"),
    ("says of", "reports, states"),
    ("of itself", "its state, its own record"),
    ("of themselves", "automatically, alone"),
    ("by themselves", "automatically, alone, without a request"),
    ("of their own", "separate, dedicated, private"),
    ("goes with", "is deleted with, is sent with"),
    ("going on", "continuing, running"),
    ("gone on", "continued, kept the lease"),
    ("went on", "continued, resumed, kept the lease"),
    ("lets go", "releases"),
    ("is asked first", "is sticky"),
    ("made ahead", "speculative"),
    ("put off", "snoozed, delayed"),
    ("puts off", "snoozes, delays"),
    ("handed", "leased, given, passed"),
    ("deed", "workflow command"),
    ("deeds", "workflow commands"),
    ("letter", "message, character; or dead letter"),
    ("letters", "messages, characters; or dead letters, ASCII letters"),
    ("parcel", "message"),
    ("parcels", "messages"),
    ("shelf", "reference tables"),
    ("shelves", "reference tables"),
    ("mishap", "fault"),
    ("mishaps", "faults"),
    ("plea", "request"),
    ("pleas", "requests"),
];

/// A term of the vocabulary that contains a listed word: the word before it, and the word.
const TERMS: &[(&str, &str)] = &[("dead", "letter"), ("dead", "letters"), ("ascii", "letters")];

/// A phrase in a text: its offset, and what to say instead.
type Hit = (usize, &'static str, &'static str);

pub(super) fn rule(sources: &[Source]) -> Result<Rule, String> {
    let others = sources.iter().filter(|source| source.path != DEFINITION);
    let mut rule = Rule::over("words to replace", others, in_source);
    for extension in ["md", "sql", "toml"] {
        for path in tree::files(extension)? {
            rule.findings.extend(in_document(&path, &tree::read(&path)?));
        }
    }
    Ok(rule)
}

/// Comments, literals and identifiers, in the order of the file.
fn in_source(source: &Source) -> Vec<String> {
    let mut found: Vec<Hit> = Vec::new();
    let mut check = |at: usize, text: &str| {
        found.extend(
            hits(text)
                .into_iter()
                .map(|(inside, phrase, replacement)| (at + inside, phrase, replacement)),
        );
    };
    source.comment_blocks().into_iter().for_each(|(at, comment)| check(at, comment));
    source.every_literal().for_each(|(at, literal)| check(at, &without_escapes(literal)));
    identifiers(source.code_and_tests()).for_each(|(at, name)| check(at, name));
    found.sort_unstable();
    let finding = |(at, phrase, replacement): Hit| {
        shown(&source.path, source.line_of(at), phrase, replacement)
    };
    found.into_iter().map(finding).collect()
}

/// A document or another file of text, with its fenced code.
fn in_document(path: &str, text: &str) -> Vec<String> {
    let line_of = |at: usize| 1 + text[..at].matches('\n').count();
    let finding = |(at, phrase, replacement): Hit| shown(path, line_of(at), phrase, replacement);
    hits(text).into_iter().map(finding).collect()
}

fn shown(path: &str, line: usize, phrase: &str, replacement: &str) -> String {
    format!("{path}:{line} \"{phrase}\": say {replacement}")
}

fn hits(text: &str) -> Vec<Hit> {
    let words = words(text);
    let mut found = Vec::new();
    for from in 0..words.len() {
        for &(phrase, replacement) in PHRASES {
            let mut at = from;
            let matches = phrase.split(' ').all(|expected| {
                let same = words.get(at).is_some_and(|w| w.text.eq_ignore_ascii_case(expected));
                let joined = at == from || same && joins(&text[words[at - 1].end()..words[at].at]);
                at += 1;
                same && joined
            });
            if matches && !ends_term(text, &words, from, phrase) {
                found.push((words[from].at, phrase, replacement));
            }
        }
    }
    found
}

/// Whether the word at this position is the second one of a term.
fn ends_term(text: &str, words: &[Word<'_>], at: usize, word: &str) -> bool {
    let before = at.checked_sub(1).map(|before| words[before]);
    before.is_some_and(|before| {
        let joined = joins(&text[before.end()..words[at].at]);
        let same =
            |&(first, last): &(&str, &str)| last == word && before.text.eq_ignore_ascii_case(first);
        joined && TERMS.iter().any(same)
    })
}

/// Whether two words with this between them are in one sentence or name: spaces, `_`, `-`, and the
/// marker of the next line.
fn joins(gap: &str) -> bool {
    let marks = |c: char| c.is_whitespace() || matches!(c, '_' | '-' | '/' | '!' | '*' | '>');
    gap.chars().all(marks) && gap.matches('\n').count() <= 1
}

/// The names in code: each one's offset and its text.
fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts =
        code.char_indices().filter(|&(at, c)| is_word(c) && !code[..at].ends_with(is_word));
    starts.map(|(at, _)| {
        let rest = &code[at..];
        (at, &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())])
    })
}

/// A literal with `\n` and the like blanked: offsets stay valid.
fn without_escapes(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut escaped = false;
    for c in literal.chars() {
        let blank = c == '\\' || escaped && c.is_ascii_alphanumeric();
        text.push(if blank { ' ' } else { c });
        escaped = c == '\\' && !escaped;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[String]) -> String {
        let short = |finding: &String| finding.split(": say").next().unwrap_or_default().to_owned();
        findings.iter().map(short).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn phrases_are_found_in_comments_literals_and_names() {
        for (text, expected) in [
            ("// Whoever asks", "a.rs:1 \"whoever\""),
            ("\n/// It goes\n/// on.", "a.rs:2 \"goes on\""),
            ("/* it\n * stands */", "a.rs:2 \"stands\""),
            ("f(\"is told\\nNobody\")", "a.rs:1 \"is told\", a.rs:1 \"nobody\""),
            ("f(\"all go \\\n   on\")", "a.rs:1 \"go on\""),
            ("f(r#\"a\nin vain\"#)", "a.rs:2 \"in vain\""),
            ("fn it_goes_on_after_x() {}", "a.rs:1 \"goes on\""),
            ("struct HeardOf;", "a.rs:1 \"heard of\""),
            ("let stands = 1;", "a.rs:1 \"stands\""),
            ("#[cfg(test)]\nmod tests {\nfn by_itself() {}\n}", "a.rs:3 \"by itself\""),
        ] {
            assert_eq!(lines(&in_source(&Source::new("a.rs", text))), expected, "{text}");
        }
    }

    #[test]
    fn every_phrase_is_found() {
        for &(phrase, _) in PHRASES {
            let found = in_source(&Source::new("a.rs", &format!("// It {phrase} x")));
            assert_eq!(lines(&found), format!("a.rs:1 \"{phrase}\""));
        }
    }

    #[test]
    fn private_type_names_are_found() {
        for (text, expected) in [
            ("struct Deed;", "a.rs:1 \"deed\""),
            ("fn do_deed(deeds: &[u8]) {}", "a.rs:1 \"deed\", a.rs:1 \"deeds\""),
            ("use a::Parcel;", "a.rs:1 \"parcel\""),
            ("let on_shelf = 1;", "a.rs:1 \"shelf\""),
            ("mod letter;", "a.rs:1 \"letter\""),
            ("// A new letter, for the dead.", "a.rs:1 \"letter\""),
            ("enum Handed<T> {}", "a.rs:1 \"handed\""),
            ("struct HandedOver;", "a.rs:1 \"handed\""),
            ("// The worker is asked\n// first.", "a.rs:1 \"is asked first\""),
            ("fn a_turn_made_ahead_fails() {}", "a.rs:1 \"made ahead\""),
            ("f(\"put_off\")", "a.rs:1 \"put off\""),
        ] {
            assert_eq!(lines(&in_source(&Source::new("a.rs", text))), expected, "{text}");
        }
    }

    #[test]
    fn other_words_are_not_found() {
        for text in [
            "// It goes. On a page, understands, standstill.",
            "// It goes\n//\n// on",
            "// It is\nlet told = 1;",
            "f(go, on); f(\"go\", \"on\")",
            "f(\"\\nin\", \"hand\")",
            "fn ago_only() {}",
            "// A dead letter; dead-letter; dead_letter.\nstruct DeadLetter;",
            "// Eight ASCII letters, indeed. It put it off.",
        ] {
            assert_eq!(in_source(&Source::new("a.rs", text)), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_document_is_checked_with_its_fenced_code() {
        for (text, expected) in [
            ("a\n* It is **told**.", "a.md:2 \"is told\""),
            ("> It goes\n> on", "a.md:1 \"goes on\""),
            ("Shown by `it_goes_on`", "a.md:1 \"goes on\""),
            ("```rust\n// nobody\n```\nnobody", "a.md:2 \"nobody\", a.md:4 \"nobody\""),
            ("It goes\n\non", ""),
        ] {
            assert_eq!(lines(&in_document("a.md", text)), expected, "{text}");
        }
    }

    #[test]
    fn a_finding_names_the_replacement() {
        let found = in_document("a.md", "it goes on");
        assert_eq!(found, ["a.md:1 \"goes on\": say continues, keeps the lease"]);
    }
}
