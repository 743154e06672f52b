use windlass::{ChildCounts, FailureClass, LaneState, Lifecycle, Task, Timestamp, Why, WorkerId};

use crate::duration::{brief, distance, moment};
use crate::output::one_line;
use crate::task::note::{attempts, child_counts};
use crate::task::why::awaited::suspended;
use crate::task::why::evidence::Evidence;
use crate::task::why::limits::limited;

/// Why a task does not make progress, for people.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    pub(super) sentence: String,
    /// What could be done about it, if anything is needed.
    pub(super) help: Option<String>,
}

fn explanation(sentence: String, help: impl Into<Option<String>>) -> Explanation {
    Explanation { sentence, help: help.into() }
}

const NO_ENGINE: &str = "Engines do that in the background: is your application running?";

pub(super) fn explain(task: &Task, why: &Why, evidence: &Evidence) -> Explanation {
    let now = evidence.now;
    let (id, lane) = (&task.id, &task.lane);
    if let (Some(deadline), None) = (task.deadline, task.lifecycle.ended_at())
        && deadline <= now
    {
        let passed = distance(deadline, now);
        let sentence = format!(
            "Task {id} is past its deadline, which was {passed}; it expires with the next sweep of \
             an engine."
        );
        return explanation(sentence, NO_ENGINE.to_owned());
    }
    match why {
        Why::Queued => explanation(
            format!("Task {id} is queued in lane {lane}. {}.", others(evidence)),
            format!("More workers help, or more priority: windlass task priority {id} N."),
        ),
        Why::Ready { capabilities, tag } => ready(task, capabilities, tag.as_deref(), evidence),
        Why::LanePaused { state, .. } => closed(task, *state, evidence),
        Why::LaneFull { limit, running, .. } => full(task, *limit, *running, evidence),
        Why::NoCapableWorker { missing, tag } => explanation(
            format!(
                "Task {id} waits in lane {lane} for a worker that {}; those that claim \
                 tasks do not.",
                demands(missing, tag.as_deref())
            ),
            format!("Start a worker on lane {lane} that does."),
        ),
        Why::NoWorker { lane } => explanation(
            format!(
                "Task {id} is ready, but no worker claims from lane {lane}: {}.",
                claimed(evidence)
            ),
            format!("Start a worker on lane {lane}."),
        ),
        Why::Delayed { until, after } => delayed(task, *until, *after, evidence),
        Why::ConcurrencyLimitReached { .. } | Why::QuotaExceeded { .. } => limited(task, why, now),
        Why::Granted { worker, until } => granted(task, worker, *until, now),
        Why::Suspended(suspension) => suspended(task, suspension, evidence),
        Why::WaitingChildren { since, children } => {
            waiting_for_children(task, *since, children.as_ref(), now)
        }
        Why::Leased { worker, expires_at, attempt } => {
            held(task, worker, *expires_at, *attempt, now)
        }
        Why::Terminal { at, .. } => ended(task, *at, now),
    }
}

fn granted(
    task: &Task,
    worker: &WorkerId,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Explanation {
    let until = until.map_or_else(String::new, |until| format!(" until {}", moment(until, now)));
    explanation(
        format!("Task {} is granted to worker {worker}{until}.", task.id),
        "Any worker may claim it when the grant expires.".to_owned(),
    )
}

fn waiting_for_children(
    task: &Task,
    since: Timestamp,
    counts: Option<&ChildCounts>,
    now: Timestamp,
) -> Explanation {
    let (id, since) = (&task.id, moment(since, now));
    let counts = counts.map_or_else(String::new, |counts| format!(": {}", child_counts(counts)));
    explanation(
        format!("Task {id} waits until the last of its children has ended, since {since}{counts}."),
        format!("See what they do: windlass task list --parent {id}."),
    )
}

/// The number of other ready tasks in the lane.
fn others(evidence: &Evidence) -> String {
    match evidence.ready.saturating_sub(1) {
        0 => "It is the only one that is ready there".to_owned(),
        1 => "Another task is ready there".to_owned(),
        others => format!("{others} other tasks are ready there"),
    }
}

/// The last claim from the lane.
fn claimed(evidence: &Evidence) -> String {
    match &evidence.last_claim {
        Some(claim) => {
            format!(
                "the last claim from this lane was {}, by {}",
                distance(claim.at, evidence.now),
                claim.worker
            )
        }
        None => "the log has no recent claim from this lane".to_owned(),
    }
}

/// What a worker needs to claim a task: `offers gpu and takes tag eu`.
fn demands(capabilities: &[String], tag: Option<&str>) -> String {
    let offers = (!capabilities.is_empty()).then(|| format!("offers {}", capabilities.join(", ")));
    let takes = tag.map(|tag| format!("takes tag {tag}"));
    offers.into_iter().chain(takes).collect::<Vec<_>>().join(" and ")
}

fn ready(
    task: &Task,
    capabilities: &[String],
    tag: Option<&str>,
    evidence: &Evidence,
) -> Explanation {
    let (id, lane) = (&task.id, &task.lane);
    let sentence = format!(
        "Task {id} is ready, and neither the task nor lane {lane} is blocked. {}, and {}.",
        others(evidence),
        claimed(evidence)
    );
    let demands = demands(capabilities, tag);
    let help = match (demands.is_empty(), &evidence.last_claim) {
        (false, _) => format!("Only a worker on lane {lane} that {demands} can take it."),
        (true, Some(_)) => {
            "If this persists, its workers are busy or dead: check where they run.".to_owned()
        }
        (true, None) => {
            format!("Start a worker on lane {lane}, or check where it should be running.")
        }
    };
    explanation(sentence, help)
}

fn closed(task: &Task, state: LaneState, evidence: &Evidence) -> Explanation {
    let (id, lane) = (&task.id, &task.lane);
    let since = evidence.lane_since.map(|at| format!(" (set {})", distance(at, evidence.now)));
    let since = since.unwrap_or_default();
    explanation(
        format!("Task {id} waits because its lane {lane} is {}{since}.", state.as_str()),
        format!("windlass lane resume {lane} leases tasks again."),
    )
}

fn full(task: &Task, limit: u32, running: u32, evidence: &Evidence) -> Explanation {
    let (id, lane) = (&task.id, &task.lane);
    let names: Vec<&str> = evidence.holders.iter().map(WorkerId::as_str).collect();
    let holders = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    explanation(
        format!(
            "Task {id} waits because lane {lane} runs {running} of the {limit} tasks it may run at \
             once{holders}."
        ),
        format!("It can start when one of them ends; windlass lane limit {lane} N allows more."),
    )
}

fn delayed(
    task: &Task,
    until: Timestamp,
    after: Option<FailureClass>,
    evidence: &Evidence,
) -> Explanation {
    let (id, now) = (&task.id, evidence.now);
    let cause = match (after, &evidence.failure) {
        (Some(class), Some((_, reason))) => {
            let reason = one_line(reason);
            format!("attempt {} failed ({}: {reason})", attempts(task), class.as_str())
        }
        (Some(class), None) => format!("attempt {} failed ({})", attempts(task), class.as_str()),
        (None, _) if task.claims > 0 => "a worker snoozed it".to_owned(),
        (None, _) => "it was created to start later".to_owned(),
    };
    if until <= now {
        let due = distance(until, now);
        return explanation(
            format!("Task {id} was due {due} ({cause}), and waits for the sweep of an engine."),
            NO_ENGINE.to_owned(),
        );
    }
    let wait = brief(now.ms_until(until));
    let help = (task.claims > 0 && after.is_none()).then(|| {
        format!(
            "Workers snooze tasks without a handler: does one exist for {} on lane {}?",
            task.kind, task.lane
        )
    });
    explanation(format!("Task {id} starts in {wait}, at {until}: {cause}."), help)
}

fn held(
    task: &Task,
    worker: &WorkerId,
    until: Timestamp,
    attempt: Option<u32>,
    now: Timestamp,
) -> Explanation {
    let id = &task.id;
    if until <= now {
        let ago = distance(until, now);
        let sentence = format!(
            "Task {id} was held by {worker}, whose lease expired {ago}; it becomes ready with the \
             next sweep of an engine."
        );
        return explanation(sentence, NO_ENGINE.to_owned());
    }
    let began_at = match &task.lifecycle {
        Lifecycle::Active(lease) => lease.attempt.as_ref().map(|attempt| attempt.began_at),
        _ => None,
    };
    let run = match (attempt, began_at) {
        (Some(_), Some(began_at)) => {
            format!("attempt {} began {}", attempts(task), distance(began_at, now))
        }
        _ => "its attempt has not begun".to_owned(),
    };
    let progress =
        task.progress.as_ref().filter(|report| began_at.is_some_and(|at| at <= report.at));
    let progress = progress.map(|report| {
        let message = one_line(&report.message);
        let at = distance(report.at, now);
        format!(", progress {at}: {}% {message}", report.percent).trim_end().to_owned()
    });
    let (progress, wait) = (progress.unwrap_or_default(), brief(now.ms_until(until)));
    explanation(
        format!("{worker} runs task {id}: {run}{progress}."),
        format!(
            "Its lease expires in {wait} unless it is renewed. If the worker is dead, the task \
             becomes ready again then."
        ),
    )
}

fn ended(task: &Task, at: Timestamp, now: Timestamp) -> Explanation {
    let (id, when) = (&task.id, distance(at, now));
    let again = format!("windlass task replay {id} starts it over.");
    match &task.lifecycle {
        Lifecycle::Failed { class, reason, .. } => explanation(
            format!(
                "Task {id} failed {when}, in attempt {}. {}: {}",
                attempts(task),
                cause(*class, task),
                one_line(reason)
            ),
            format!("Once the cause is fixed, windlass dlq replay {id} runs it again."),
        ),
        Lifecycle::Cancelled { reason, .. } => {
            let reason = one_line(reason);
            explanation(format!("Task {id} was cancelled {when}: {reason}"), again)
        }
        Lifecycle::Expired { .. } => {
            let had = task.deadline.map(|deadline| brief(task.started_at.ms_until(deadline)));
            let had = had.map(|had| format!(" of {had}")).unwrap_or_default();
            explanation(format!("Task {id} expired {when}: its deadline{had} had passed."), again)
        }
        _ => explanation(
            format!("Task {id} is done: it was completed {when}."),
            format!("windlass task show {id} has its result."),
        ),
    }
}

/// What a failure class means.
fn cause(class: FailureClass, task: &Task) -> String {
    match class {
        FailureClass::Transient if task.policy.retry.is_none() => {
            "It has no retry policy, so the failure was final (transient)".to_owned()
        }
        FailureClass::Transient => "Its attempts are used up (transient)".to_owned(),
        FailureClass::Permanent => {
            "Its handler reported a permanent failure (permanent)".to_owned()
        }
        FailureClass::Crash => "It lost its lease as often as its policy allows (crash)".to_owned(),
        FailureClass::Timeout => "Its attempts took too long (timeout)".to_owned(),
        FailureClass::Cancelled => "Its worker stopped it (cancelled)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass::command::{Claim, Create, NewTask};
    use windlass::{Outcome, PublicState};
    use windlass_core::ReferenceTables;

    use super::*;
    use crate::task::why::evidence;

    const CLAIMED_AT: Timestamp = Timestamp::from_millis(1_000_000);

    /// A task under a lease of 30 seconds.
    fn held_task() -> Arc<Task> {
        let mut tables = ReferenceTables::default();
        let create = Create::one(NewTask { lane: "mail".into(), ..NewTask::new("t", "k") });
        tables.execute(CLAIMED_AT, &create.into()).unwrap();
        let claim = Claim { lanes: vec!["mail".into()], ..Claim::new("w") };
        match tables.execute(CLAIMED_AT, &claim.into()).unwrap() {
            Outcome::Claimed(mut tasks) => tasks.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn evidence(ready: u64, claimed: bool) -> Evidence {
        let now = CLAIMED_AT.plus_ms(10_000);
        let last_claim = claimed.then(|| evidence::Claim { worker: "w".into(), at: CLAIMED_AT });
        Evidence { ready, last_claim, ..Evidence::none(now) }
    }

    #[test]
    fn explanations_of_waiting_for_a_worker() {
        let demanding = || vec!["gpu".to_owned(), "ssd".to_owned()];
        for (why, evidence, sentence, help) in [
            (
                Why::Queued,
                evidence(1, true),
                "Task t is queued in lane mail. It is the only one that is ready there.",
                "More workers help, or more priority: windlass task priority t N.",
            ),
            (
                Why::Queued,
                evidence(4, true),
                "Task t is queued in lane mail. 3 other tasks are ready there.",
                "More workers help, or more priority: windlass task priority t N.",
            ),
            (
                Why::NoWorker { lane: "mail".into() },
                evidence(1, true),
                "Task t is ready, but no worker claims from lane mail: the last claim from this \
                 lane was 10s ago, by w.",
                "Start a worker on lane mail.",
            ),
            (
                Why::NoCapableWorker { missing: demanding(), tag: None },
                evidence(1, true),
                "Task t waits in lane mail for a worker that offers gpu, ssd; those that claim \
                 tasks do not.",
                "Start a worker on lane mail that does.",
            ),
            (
                Why::Ready { capabilities: Vec::new(), tag: Some("eu".into()) },
                evidence(2, false),
                "Task t is ready, and neither the task nor lane mail is blocked. Another \
                 task is ready there, and the log has no recent claim from this lane.",
                "Only a worker on lane mail that takes tag eu can take it.",
            ),
        ] {
            let found = explain(&held_task(), &why, &evidence);
            assert_eq!((found.sentence.as_str(), found.help.as_deref()), (sentence, Some(help)));
        }
    }

    #[test]
    fn explanations_depend_on_time() {
        let until = CLAIMED_AT.plus_ms(30_000);
        let held = Why::Leased { worker: "w".into(), expires_at: until, attempt: Some(1) };
        let delay = Why::Delayed { until, after: None };
        let ended = Why::Terminal { state: PublicState::Completed, at: CLAIMED_AT };
        for (why, ms, expected) in [
            (&held, 10_000, "w runs task t: attempt 1 began 10s ago."),
            (
                &held,
                90_000,
                "Task t was held by w, whose lease expired 1m ago; it becomes ready with the next \
                 sweep of an engine.",
            ),
            (
                &delay,
                10_000,
                "Task t starts in 20s, at 1970-01-01T00:17:10.000Z: a worker snoozed it.",
            ),
            (
                &delay,
                32_000,
                "Task t was due 2s ago (a worker snoozed it), and waits for the sweep of an \
                 engine.",
            ),
            (&ended, 5_000, "Task t is done: it was completed 5s ago."),
        ] {
            let evidence = Evidence::none(CLAIMED_AT.plus_ms(ms));
            assert_eq!(explain(&held_task(), why, &evidence).sentence, expected);
        }
    }
}
