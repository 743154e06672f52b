//! Whether a comment describes history or plans instead of reasons.

use crate::source::is_word;

/// Found at the start of a word.
const STEMS: &[&str] = &["todo", "fixme", "xxx", "hack", "legacy", "milestone"];

/// Found as whole words.
const PHRASES: &[&str] =
    &["no longer", "previously", "formerly", "for now", "newly", "instead of the old"];

pub(super) fn tells_history(comment: &str) -> bool {
    let text = comment.to_lowercase();
    let starts = text.char_indices().filter(|&(at, c)| {
        let after_word = text[..at].ends_with(is_word);
        c == '#' || is_word(c) && !after_word
    });
    starts.map(|(at, _)| &text[at..]).any(begins_with_history)
}

fn begins_with_history(text: &str) -> bool {
    STEMS.iter().any(|stem| text.starts_with(stem))
        || PHRASES.iter().any(|phrase| begins_with_phrase(text, phrase))
        || begins_with_step(text)
        || begins_with_issue_number(text)
        || begins_with_version(text)
}

fn begins_with_phrase(text: &str, phrase: &str) -> bool {
    let Some(rest) = text.strip_prefix(phrase) else { return false };
    // About a length, it compares.
    let compares = phrase == "no longer" && rest.starts_with(" than");
    !compares && !rest.starts_with(is_word)
}

fn begins_with_step(text: &str) -> bool {
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let lettered = |rest: &str| {
        let after = rest.strip_prefix(|c| ('a'..='e').contains(&c));
        after.is_some_and(|rest| !rest.starts_with(is_word))
    };
    text.strip_prefix("phase ").is_some_and(numbered)
        || text.strip_prefix("stage ").is_some_and(|rest| numbered(rest) || lettered(rest))
}

fn begins_with_issue_number(text: &str) -> bool {
    if let Some(number) = text.strip_prefix('#') {
        let (digits, rest) = digits(number);
        return (2..=4).contains(&digits) && !rest.starts_with(is_word);
    }
    let named = text.strip_prefix("issue ").or_else(|| text.strip_prefix("pr "));
    named.is_some_and(|rest| digits(rest.strip_prefix('#').unwrap_or(rest)).0 > 0)
}

fn begins_with_version(text: &str) -> bool {
    let Some(mut rest) = text.strip_prefix('v') else { return false };
    for group in 0..3 {
        if group > 0 {
            let Some(after) = rest.strip_prefix('.') else { return false };
            rest = after;
        }
        let (count, after) = digits(rest);
        if count == 0 {
            return false;
        }
        rest = after;
    }
    true
}

/// The number of leading digits, and the rest.
fn digits(text: &str) -> (usize, &str) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (text.len() - rest.len(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_found() {
        for comment in [
            "// TODO: more",
            "// Fixme",
            "// XXX",
            "// a hack",
            "// the legacy format",
            "// until the next milestone",
            "// stage 1a",
            "// Stage 12 brings it",
            "// stage b",
            "// phase 3",
            "// issue 12",
            "// see issue #7",
            "// PR 9",
            "// since PR #9",
            "// (#123)",
            "// since v1.2.3",
            "// it is no longer read",
            "// Previously a map",
            "// formerly",
            "// good enough for now.",
            "// newly added",
            "// instead of the old one",
        ] {
            assert!(tells_history(comment), "{comment}");
        }
    }

    #[test]
    fn reasons_are_not_history() {
        for comment in [
            "// A name is no longer than 255 bytes.",
            "// The stage and the phase of a task.",
            "// The stage each row begins on.",
            "// A shackle; the whole.",
            "// Item #1 of the list, #[cfg], #12345.",
            "// The issue is fairness.",
            "// HTTP/1.1, TLS v1.3, v7 ids",
            "// for nowhere, renewly",
            "// The pr number",
        ] {
            assert!(!tells_history(comment), "{comment}");
        }
    }
}
