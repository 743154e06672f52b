//! The rules of payments: the bank was called once for each, and all callers received the same
//! answer.

use std::collections::{BTreeMap, BTreeSet};

use super::line::Line;
use crate::bank::Entry;

/// The answers for every key.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    answers: BTreeMap<String, BTreeSet<String>>,
    rejected: Vec<String>,
}

impl Judge {
    pub(crate) fn hear(&mut self, lines: &[Line]) {
        for line in lines {
            match line {
                Line::Responded { key, answer, .. } => {
                    self.answers.entry(key.clone()).or_default().insert(answer.clone());
                }
                Line::Rejected { .. } => self.rejected.push(format!("{line:?}")),
                Line::Ready | Line::Begun { .. } => {}
            }
        }
    }

    pub(crate) fn knows(&self, key: &str) -> bool {
        self.answers.contains_key(key)
    }

    /// All violations of these payments.
    pub(crate) fn broken(&self, keys: &[String], books: &[Entry]) -> Vec<String> {
        let mut broken = self.rejected.clone();
        let known: BTreeSet<&String> = keys.iter().collect();
        let strays = books.iter().filter(|entry| !known.contains(&entry.order));
        broken.extend(strays.map(|entry| format!("no caller requested {entry:?}")));
        for key in keys {
            let calls: Vec<&Entry> = books.iter().filter(|entry| entry.order == *key).collect();
            let answers: Vec<&String> = self.answers.get(key).into_iter().flatten().collect();
            match (&calls[..], &answers[..]) {
                ([call], [answer]) if answer.starts_with(&format!("{},", call.receipt)) => {}
                _ => broken.push(format!("{key}: the bank has {calls:?}, answers {answers:?}")),
            }
        }
        broken
    }
}

/// Every key that was not answered exactly once with a replay.
pub(crate) fn not_replayed(keys: &[String], lines: &[Line]) -> Vec<String> {
    let is_replay = |line: &&Line, of: &String| matches!(line, Line::Responded { key, replayed: true, .. } if key == of);
    let replays = |key: &&String| lines.iter().filter(|line| is_replay(line, key)).count();
    keys.iter().filter(|key| replays(key) != 1).cloned().collect()
}

#[test]
fn payments_not_made_exactly_once_are_found() {
    let entry = |order: &str, nth| Entry { order: order.into(), receipt: format!("receipt {nth}") };
    let responded = |answer: &str| {
        let (key, answer) = ("a".to_owned(), format!("{answer}, by me"));
        Line::Responded { key, answer, replayed: true }
    };
    let rejected = Line::Rejected { key: "a".into(), code: "no".into() };
    let cases: &[(&[Entry], &[Line], usize)] = &[
        (&[entry("a", 1)], &[responded("receipt 1"), responded("receipt 1")], 0),
        (&[entry("a", 1), entry("a", 2)], &[responded("receipt 1")], 1),
        (&[entry("a", 1)], &[responded("receipt 1"), responded("receipt 2")], 1),
        (&[entry("a", 1)], &[responded("receipt 2")], 1),
        (&[entry("a", 1)], &[responded("receipt 1"), rejected], 1),
        (&[entry("a", 1), entry("b", 2)], &[responded("receipt 1")], 1),
        (&[], &[responded("receipt 1")], 1),
        (&[entry("a", 1)], &[], 1),
    ];
    for (books, lines, count) in cases {
        let mut judge = Judge::default();
        judge.hear(lines);
        let broken = judge.broken(&["a".to_owned()], books);
        assert_eq!(broken.len(), *count, "{books:?} {lines:?}: {broken:?}");
    }
    assert_eq!(not_replayed(&["a".into(), "b".into()], &[responded("receipt 1")]), ["b"]);
}
