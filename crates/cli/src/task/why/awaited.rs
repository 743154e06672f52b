//! Describes what a suspended task waits for.

use windlass::{Condition, Distinct, Matcher, OnTimeout, Suspension, Task};

use crate::duration::{distance, moment};
use crate::output::one_line;
use crate::task::why::evidence::Evidence;
use crate::task::why::explain::Explanation;

pub(super) fn suspended(task: &Task, suspension: &Suspension, evidence: &Evidence) -> Explanation {
    let now = evidence.now;
    let (id, reason) = (&task.id, suspension.reason.as_str().replace('_', " "));
    let (since, awaited) = (moment(suspension.since, now), awaited(&suspension.condition));
    let escalated = suspension.escalated_at.map_or_else(String::new, |at| {
        format!(" Its timeout passed: it was escalated to an operator {}.", distance(at, now))
    });
    let timeout = suspension.timeout.map_or_else(String::new, |timeout| {
        format!(
            " If that has not arrived by {}, {}.",
            moment(timeout.at, now),
            then(timeout.action)
        )
    });
    let expired: String = evidence
        .expired
        .iter()
        .map(|waitpoint| format!(" Waitpoint {waitpoint} has expired."))
        .collect();
    let afresh = evidence.expired.first().map_or_else(String::new, |waitpoint| {
        format!("Create it again: windlass waitpoint create {id} {waitpoint}. ")
    });
    let suspended = format!("Task {id} is suspended for {reason} since {since}");
    Explanation {
        sentence: format!("{suspended}: it waits for {awaited}.{timeout}{escalated}{expired}"),
        help: Some(format!(
            "{afresh}Signal it: windlass signal NAME {}. Or resume it without: \
             windlass task resume {id}.",
            if needs_token(&suspension.condition) {
                "--token -, with the token of its waitpoint".to_owned()
            } else {
                format!("--task {id}")
            }
        )),
    }
}

/// Whether no signal by task id can resume the task.
fn needs_token(condition: &Condition) -> bool {
    match condition {
        Condition::Signal(of) => of.waitpoint.is_some(),
        Condition::Count { distinct, of, .. } => {
            of.waitpoint.is_some() || *distinct == Distinct::Waitpoints
        }
        Condition::All(parts) => parts.iter().any(needs_token),
        Condition::Any(parts) => parts.iter().all(needs_token),
        Condition::Operator | Condition::Timeout | Condition::AnyMessage => false,
    }
}

fn then(then: OnTimeout) -> &'static str {
    match then {
        OnTimeout::Fail => "its attempt fails",
        OnTimeout::Cancel => "it is cancelled",
        OnTimeout::Expire => "it expires",
        OnTimeout::Resume => "it resumes without",
        OnTimeout::Escalate => "it waits for an operator as well",
    }
}

fn awaited(condition: &Condition) -> String {
    let listed = |parts: &[Condition], conjunction: &str| {
        let parts: Vec<String> = parts.iter().map(nested).collect();
        parts.join(&format!(" {conjunction} "))
    };
    match condition {
        Condition::Signal(matcher) => format!("a message{}", fitting(matcher)),
        Condition::All(parts) => listed(parts, "and"),
        Condition::Any(parts) => listed(parts, "or"),
        Condition::Count { n, distinct, of } => {
            let each = match distinct {
                Distinct::Waitpoints => "through a different waitpoint",
                Distinct::Names => "with a different name",
                Distinct::Sources => "from a different source",
            };
            format!("{n} messages{}, each {each}", fitting(of))
        }
        Condition::Operator => "an operator".to_owned(),
        Condition::Timeout => "its timeout only".to_owned(),
        Condition::AnyMessage => "any message".to_owned(),
    }
}

fn nested(part: &Condition) -> String {
    match part {
        Condition::All(_) | Condition::Any(_) => format!("({})", awaited(part)),
        _ => awaited(part),
    }
}

fn fitting(matcher: &Matcher) -> String {
    let name = matcher.name.as_ref().map(|name| format!(" named {}", one_line(name)));
    let source = matcher.source.as_ref().map(|source| format!(" from {}", one_line(source)));
    let through = matcher.waitpoint.as_ref().map(|id| format!(" through waitpoint {id}"));
    [name, source, through].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_that_need_a_token() {
        let (go, through) = (Condition::signal("go"), Condition::waitpoint("p"));
        let count = |distinct| Condition::Count { n: 2, distinct, of: Matcher::default() };
        for (condition, needs) in [
            (go.clone(), false),
            (through.clone(), true),
            (count(Distinct::Waitpoints), true),
            (count(Distinct::Sources), false),
            (Condition::Any(vec![go.clone(), through.clone()]), false),
            (Condition::All(vec![go, through]), true),
        ] {
            assert_eq!(needs_token(&condition), needs, "{condition:?}");
        }
    }

    #[test]
    fn conditions() {
        let go = || Condition::signal("go");
        let narrow = Matcher {
            waitpoint: Some("p".into()),
            name: Some("yes".into()),
            source: Some("ada".into()),
        };
        let voted = Matcher { name: Some("vote".into()), ..Matcher::default() };
        let votes = Condition::Count { n: 3, distinct: Distinct::Sources, of: voted };
        let both = Condition::All(vec![votes.clone(), Condition::Operator]);
        for (condition, expected) in [
            (go(), "a message named go"),
            (Condition::Signal(Matcher::default()), "a message"),
            (Condition::Signal(narrow), "a message named yes from ada through waitpoint p"),
            (votes, "3 messages named vote, each from a different source"),
            (Condition::Timeout, "its timeout only"),
            (
                Condition::Any(vec![go(), both]),
                "a message named go or (3 messages named vote, each from a different source and an \
                 operator)",
            ),
        ] {
            assert_eq!(awaited(&condition), expected);
        }
    }
}
