use std::collections::BTreeSet;

use crate::limits;
use crate::mailbox::Message;
use crate::name::WaitpointId;
use crate::rejection::{Problem, Rejection};
use crate::task::{Condition, Distinct, Matcher};
use crate::time::Timestamp;

impl Condition {
    /// One message of this name from any source.
    pub fn signal(name: impl Into<String>) -> Self {
        Condition::Signal(Matcher { name: Some(name.into()), ..Matcher::default() })
    }

    /// One message of any name through this waitpoint.
    pub fn waitpoint(id: impl Into<WaitpointId>) -> Self {
        Condition::Signal(Matcher { waitpoint: Some(id.into()), ..Matcher::default() })
    }

    pub(crate) fn check(&self) -> Result<(), Rejection> {
        limits::CONDITION_DEPTH.check(self.depth())?;
        limits::CONDITION_PARTS.check(self.parts())?;
        self.check_parts()
    }

    fn check_parts(&self) -> Result<(), Rejection> {
        match self {
            Condition::Signal(matcher) => matcher.check(),
            Condition::All(parts) | Condition::Any(parts) if parts.is_empty() => {
                Err(Rejection::Invalid { field: "condition", problem: Problem::Empty })
            }
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().try_for_each(Condition::check_parts)
            }
            Condition::Count { n, distinct, of } => {
                limits::CONDITION_COUNT.check(*n)?;
                of.check()?;
                of.check_count(*n, *distinct)
            }
            Condition::Operator | Condition::Timeout => Ok(()),
            Condition::AnyMessage => {
                Err(Rejection::Invalid { field: "condition", problem: Problem::Reserved })
            }
        }
    }

    /// The nesting depth. Counting stops beyond the limit.
    fn depth(&self) -> usize {
        let mut level = vec![self];
        let mut depth = 0;
        while !level.is_empty() && depth <= limits::CONDITION_DEPTH.max as usize {
            depth += 1;
            level = level.into_iter().flat_map(Condition::inner).collect();
        }
        depth
    }

    fn parts(&self) -> usize {
        1 + self.inner().iter().map(Condition::parts).sum::<usize>()
    }

    fn inner(&self) -> &[Condition] {
        match self {
            Condition::All(parts) | Condition::Any(parts) => parts,
            Condition::Signal(_)
            | Condition::Count { .. }
            | Condition::Operator
            | Condition::Timeout
            | Condition::AnyMessage => &[],
        }
    }

    /// Whether it can only end by a timeout.
    pub(crate) fn needs_timeout(&self) -> bool {
        match self {
            Condition::Timeout => true,
            Condition::All(parts) => parts.iter().any(Condition::needs_timeout),
            Condition::Any(parts) => parts.iter().all(Condition::needs_timeout),
            Condition::Signal(_)
            | Condition::Count { .. }
            | Condition::Operator
            | Condition::AnyMessage => false,
        }
    }

    /// The waitpoints that it names.
    pub fn waitpoints(&self) -> BTreeSet<&WaitpointId> {
        match self {
            Condition::Signal(matcher) | Condition::Count { of: matcher, .. } => {
                matcher.waitpoint.iter().collect()
            }
            Condition::All(parts) | Condition::Any(parts) => {
                parts.iter().flat_map(Condition::waitpoints).collect()
            }
            Condition::Operator | Condition::Timeout | Condition::AnyMessage => BTreeSet::new(),
        }
    }

    /// The earliest messages that meet the condition for the attempt that began at `began_at`; none
    /// if it is not met. One message may meet several parts; use `Count` to require different
    /// messages.
    pub(crate) fn met_by(
        &self,
        messages: &[&Message],
        began_at: Timestamp,
    ) -> Option<BTreeSet<u64>> {
        match self {
            Condition::Signal(matcher) => {
                let first = messages.iter().find(|message| matcher.matches(message, began_at))?;
                Some(BTreeSet::from([first.seq]))
            }
            Condition::All(parts) => {
                let met: Option<Vec<_>> =
                    parts.iter().map(|part| part.met_by(messages, began_at)).collect();
                Some(met?.into_iter().flatten().collect())
            }
            Condition::Any(parts) => parts.iter().find_map(|part| part.met_by(messages, began_at)),
            Condition::Count { n, distinct, of } => {
                let mut seen = BTreeSet::new();
                let taken = messages.iter().filter(|message| of.matches(message, began_at));
                let firsts =
                    taken.filter(|m| distinct.of(m).is_some_and(|value| seen.insert(value)));
                let met: BTreeSet<u64> = firsts.take(*n as usize).map(|m| m.seq).collect();
                (met.len() == *n as usize).then_some(met)
            }
            Condition::Operator | Condition::Timeout | Condition::AnyMessage => None,
        }
    }
}

impl Matcher {
    fn check(&self) -> Result<(), Rejection> {
        if let Some(waitpoint) = &self.waitpoint {
            limits::WAITPOINT_ID.check(waitpoint.as_str())?;
        }
        if let Some(name) = &self.name {
            limits::MESSAGE_NAME.check(name)?;
        }
        self.source.iter().try_for_each(|source| Message::check_source(source))
    }

    /// Rejects a count that cannot be reached. A waitpoint has only one message.
    fn check_count(&self, n: u32, distinct: Distinct) -> Result<(), Rejection> {
        let is_fixed = match distinct {
            Distinct::Waitpoints => false,
            Distinct::Names => self.name.is_some(),
            Distinct::Sources => self.source.is_some(),
        };
        if n > 1 && (is_fixed || self.waitpoint.is_some()) {
            let problem = Problem::OutOfRange { min: 1, max: 1 };
            return Err(Rejection::Invalid { field: limits::CONDITION_COUNT.field, problem });
        }
        Ok(())
    }

    /// Skips messages that the attempt has consumed. The exception is a match by waitpoint: a
    /// waitpoint has one message, and every wait for it by id finds it.
    fn matches(&self, message: &Message, began_at: Timestamp) -> bool {
        let has_resumed = message.resumed_attempt_at == Some(began_at);
        if has_resumed && self.waitpoint.is_none() {
            return false;
        }
        let waitpoint = self.waitpoint.is_none() || self.waitpoint == message.waitpoint;
        let name = self.name.as_ref().is_none_or(|name| *name == message.name);
        let source = self.source.as_ref().is_none_or(|source| *source == message.source);
        waitpoint && name && source
    }
}

impl Distinct {
    /// The value in which messages must differ; none if the message has no such value.
    fn of(self, message: &Message) -> Option<&str> {
        match self {
            Distinct::Waitpoints => message.waitpoint.as_ref().map(WaitpointId::as_str),
            Distinct::Names => Some(&message.name),
            Distinct::Sources => Some(&message.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the attempt of these tests began.
    const BEGAN_AT: Timestamp = Timestamp::from_millis(1_000);

    /// Messages of `name/source/waitpoint`, numbered from one.
    fn messages(words: &str) -> Vec<Message> {
        let message = |(at, word): (usize, &str)| {
            let mut parts = word.split('/');
            Message {
                tenant: "default".into(),
                task: "t".into(),
                seq: at as u64 + 1,
                name: parts.next().unwrap().into(),
                source: parts.next().unwrap_or("s").into(),
                waitpoint: parts.next().map(WaitpointId::from),
                sent_at: Timestamp::default(),
                visible_at: Timestamp::default(),
                bytes: None,
                resumed_attempt_at: None,
                delivery_count: 0,
                completion: None,
                buffered_until: None,
                buffered_key: None,
                due_at: None,
            }
        };
        words.split_whitespace().enumerate().map(message).collect()
    }

    fn of(waitpoint: Option<&str>, name: Option<&str>, source: Option<&str>) -> Matcher {
        Matcher {
            waitpoint: waitpoint.map(WaitpointId::from),
            name: name.map(String::from),
            source: source.map(String::from),
        }
    }

    fn count(n: u32, distinct: Distinct, of: Matcher) -> Condition {
        Condition::Count { n, distinct, of }
    }

    fn signal(name: &str) -> Condition {
        Condition::signal(name)
    }

    #[track_caller]
    fn check(condition: &Condition, rows: &[(&str, Option<&[u64]>)]) {
        condition.check().expect("the condition is within its limits");
        for (words, expected) in rows {
            let messages = messages(words);
            let found = condition.met_by(&messages.iter().collect::<Vec<_>>(), BEGAN_AT);
            let found = found.map(|seqs| seqs.into_iter().collect::<Vec<_>>());
            assert_eq!(found.as_deref(), *expected, "{condition:?} over {words:?}");
        }
    }

    #[test]
    fn one_signal() {
        check(&signal("go"), &[("", None), ("stop", None), ("stop go go", Some(&[2]))]);
        let any = Condition::Signal(Matcher::default());
        check(&any, &[("", None), ("whatever go", Some(&[1]))]);
        let through = Condition::waitpoint("p");
        check(&through, &[("go go/s/q", None), ("go go/s/q go/s/p", Some(&[3]))]);
        let narrow = Condition::Signal(of(Some("p"), Some("go"), Some("ada")));
        let rows: &[(&str, Option<&[u64]>)] =
            &[("go/ada go/bob/p no/ada/p go/ada/q", None), ("go/ada/p", Some(&[1]))];
        check(&narrow, rows);
    }

    #[test]
    fn all_and_any() {
        let all = Condition::All(vec![signal("a"), signal("b")]);
        check(&all, &[("a a", None), ("b", None), ("b x a", Some(&[1, 3]))]);
        let same = Condition::All(vec![signal("a"), Condition::Signal(Matcher::default())]);
        check(&same, &[("b", None), ("a", Some(&[1]))]);
        let any = Condition::Any(vec![signal("a"), signal("b")]);
        check(&any, &[("c", None), ("b", Some(&[1])), ("b a", Some(&[2]))]);
    }

    #[test]
    fn counts() {
        let names = count(2, Distinct::Names, Matcher::default());
        check(&names, &[("a a a", None), ("a a b c", Some(&[1, 3]))]);
        let sources = count(3, Distinct::Sources, of(None, Some("vote"), None));
        let rows: &[(&str, Option<&[u64]>)] = &[
            ("vote/a vote/b vote/a no/c", None),
            ("vote/a no/c vote/b vote/a vote/c vote/d", Some(&[1, 3, 5])),
        ];
        check(&sources, rows);
        let waitpoints = count(2, Distinct::Waitpoints, Matcher::default());
        check(&waitpoints, &[("a b/s/p c/s/p d", None), ("b/s/p c/s/q", Some(&[1, 2]))]);
        check(&count(1, Distinct::Names, of(None, None, Some("z"))), &[("a b/z", Some(&[2]))]);
    }

    #[test]
    fn a_consumed_message_matches_only_by_its_waitpoint() {
        let mut has_resumed = messages("go/ada/p");
        has_resumed[0].resumed_attempt_at = Some(BEGAN_AT);
        let by = |waitpoint, name| of(waitpoint, name, None);
        for (condition, met) in [
            (signal("go"), false),
            (Condition::Signal(Matcher::default()), false),
            (count(1, Distinct::Waitpoints, Matcher::default()), false),
            (Condition::waitpoint("p"), true),
            (Condition::Signal(by(Some("p"), Some("go"))), true),
            (Condition::Signal(by(Some("p"), Some("no"))), false),
            (count(1, Distinct::Sources, by(Some("p"), None)), true),
        ] {
            let found = condition.met_by(&[&has_resumed[0]], BEGAN_AT);
            assert_eq!(found.is_some(), met, "{condition:?}");
        }
    }

    #[test]
    fn nested() {
        let votes = count(2, Distinct::Sources, of(None, Some("yes"), None));
        let both = Condition::All(vec![votes, Condition::Any(vec![signal("a"), signal("b")])]);
        let either = Condition::Any(vec![signal("force"), both]);
        let rows: &[(&str, Option<&[u64]>)] = &[
            ("yes/x yes/x b", None),
            ("yes/x yes/y", None),
            ("yes/x b yes/y", Some(&[1, 2, 3])),
            ("yes/x b yes/y force", Some(&[4])),
        ];
        check(&either, rows);
    }

    #[test]
    fn no_message_meets_an_operator_or_timeout_condition() {
        for condition in [Condition::Operator, Condition::Timeout] {
            check(&condition, &[("", None), ("go timeout resume", None)]);
            let all = Condition::All(vec![signal("go"), condition.clone()]);
            check(&all, &[("go", None)]);
            let any = Condition::Any(vec![condition, signal("go")]);
            check(&any, &[("", None), ("go", Some(&[1]))]);
        }
    }

    #[test]
    fn a_condition_that_only_time_meets_needs_a_timeout() {
        let any = |parts: &[Condition]| Condition::Any(parts.to_vec());
        let all = |parts: &[Condition]| Condition::All(parts.to_vec());
        let (timeout, go) = (Condition::Timeout, signal("go"));
        for (condition, expected) in [
            (timeout.clone(), true),
            (go.clone(), false),
            (Condition::Operator, false),
            (any(&[timeout.clone(), go.clone()]), false),
            (any(&[timeout.clone(), timeout.clone()]), true),
            (all(&[timeout, go]), true),
        ] {
            assert_eq!(condition.needs_timeout(), expected, "{condition:?}");
        }
    }

    #[test]
    fn limits_of_a_condition() {
        let deep = |levels| (1..levels).fold(signal("a"), |c, _| Condition::All(vec![c]));
        let wide = |parts: usize| Condition::Any(vec![signal("a"); parts - 1]);
        let long = "x".repeat(256);
        let rows = [
            (deep(8), None),
            (deep(9), Some("condition_depth")),
            (deep(1_000), Some("condition_depth")),
            (wide(64), None),
            (wide(65), Some("condition_parts")),
            (Condition::All(vec![]), Some("condition")),
            (Condition::Any(vec![Condition::Any(vec![])]), Some("condition")),
            (count(0, Distinct::Names, Matcher::default()), Some("n")),
            (count(1_001, Distinct::Names, Matcher::default()), Some("n")),
            (count(2, Distinct::Names, of(None, Some("a"), None)), Some("n")),
            (count(2, Distinct::Sources, of(None, None, Some("a"))), Some("n")),
            (count(2, Distinct::Waitpoints, of(Some("p"), None, None)), Some("n")),
            (count(1, Distinct::Names, of(None, Some("a"), None)), None),
            (count(2, Distinct::Names, of(Some("p"), None, None)), Some("n")),
            (signal(""), Some("name")),
            (signal(&long), Some("name")),
            (Condition::waitpoint(""), Some("waitpoint")),
            (Condition::Signal(of(None, None, Some("a\0"))), Some("source")),
            (Condition::Signal(of(None, None, Some("engine"))), Some("source")),
        ];
        for (condition, expected) in rows {
            let found = match condition.check() {
                Ok(()) => None,
                Err(Rejection::Invalid { field, .. }) => Some(field),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found, expected, "{condition:?}");
        }
    }
}
