use crate::event::{Change, Event};
use crate::limits;
use crate::mailbox::Message;
use crate::new_message::NewMessage;
use crate::primitive::{
    expire, fail, mark_resuming, open, resume, resume_if_met, store_message, transition_to,
};
use crate::task::{
    FailureClass, Lifecycle, OnTimeout, ResumeCause, Retry, SuspendReason, Suspension, Task,
};
use crate::world::{Halt, World};

/// The reason recorded for a task whose suspension timed out.
const REASON: &str = "the suspension timed out";

/// Ends a suspension at its timeout with the configured action. Messages that are visible by then
/// are checked first, even if the sweep has not marked them as visible yet.
pub(super) fn time_out(
    world: &mut World,
    current: &Task,
    suspension: &Suspension,
) -> Result<(), Halt> {
    if resume_if_met(world, current)? {
        return Ok(());
    }
    let now = world.now();
    let mut task = current.clone();
    let change = match suspension.timeout.map(|timeout| timeout.action).unwrap_or_default() {
        OnTimeout::Fail => fail(&mut task, FailureClass::Timeout, REASON, Retry::Policy, now).1,
        OnTimeout::Cancel => {
            let reason = REASON.to_owned();
            task.lifecycle = Lifecycle::Cancelled { at: now, reason: reason.clone() };
            Change::Cancelled { reason }
        }
        OnTimeout::Expire => return expire(world, current),
        OnTimeout::Resume => return resume_after_timeout(world, task, suspension),
        OnTimeout::Escalate => {
            task.lifecycle = Lifecycle::Suspended(Suspension {
                reason: SuspendReason::OperatorReview,
                timeout: None,
                escalated_at: Some(now),
                ..suspension.clone()
            });
            Change::Escalated
        }
    };
    world.emit(Event::of_task(&task, now, change));
    transition_to(world, task)
}

/// Resumes the task with a message about the timeout. It replaces the message of the last timeout,
/// so that repeated timeouts do not fill the mailbox.
fn resume_after_timeout(
    world: &mut World,
    mut task: Task,
    suspension: &Suspension,
) -> Result<(), Halt> {
    let timeout = NewMessage::new(task.id.clone(), "timeout", Message::ENGINE);
    let (mut mailbox, paused) = (open(world, &mut task)?, suspension.suspended_attempt.clone());
    for seq in task.resumption.iter().flat_map(|last| &last.messages) {
        let key = Message::key_of(&task.tenant, &task.id, *seq);
        if let Some(earlier) = world.get::<Message>(&key)?.filter(|earlier| !earlier.is_external())
        {
            mailbox.forget(&earlier);
            world.remove(&key);
        }
    }
    let mut seqs = Vec::new();
    // In a full mailbox only the cause of the resumption names the timeout.
    if mailbox.messages < limits::MAILBOX_MESSAGES {
        seqs.push(store_message(world, &task, mailbox, &timeout, None).seq);
        mark_resuming(world, &task, &seqs, paused.began_at)?;
    }
    resume(world, &task, paused, ResumeCause::Timeout, seqs, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{
        Delay, Fail, NewTask, Outcome, Resume, SendMessages, Suspend, SuspendTimeout, Sweep,
    };
    use crate::name::Tenant;
    use crate::task::{Condition, Distinct, Matcher, PublicState};
    use crate::testing::{Stage, claim, fence, key, message, new_task};

    fn suspended(new: NewTask, action: OnTimeout) -> Stage {
        let mut stage = Stage::with_new_task("active", new);
        let timeout = Some(SuspendTimeout { after_ms: 5_000, action });
        let condition = Condition::Any(vec![Condition::signal("go"), Condition::Timeout]);
        stage.must(Suspend { timeout, ..Suspend::new(fence(1), condition) });
        stage
    }

    fn events(stage: &Stage, from: u64) -> Vec<String> {
        stage.tables.events_after(from).map(|logged| logged.name).collect()
    }

    #[test]
    fn each_timeout_action() {
        let rows: [(OnTimeout, &str, &[&str]); 5] = [
            (OnTimeout::Fail, "delayed", &["retry_scheduled"]),
            (OnTimeout::Cancel, "cancelled", &["cancelled"]),
            (OnTimeout::Expire, "expired", &["expired"]),
            (OnTimeout::Resume, "resumable", &["signalled", "resumed"]),
            (OnTimeout::Escalate, "suspended", &["escalated"]),
        ];
        for (action, state, logged) in rows {
            let mut stage = suspended(new_task("t"), action);
            stage.later(4_999);
            stage.must(Sweep::default());
            assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Suspended);
            let seen = stage.tables.last_seq();
            stage.later(1);
            stage.must(Sweep::default());
            let task = stage.task("t").unwrap();
            assert_eq!(task.lifecycle.public().as_str(), state, "{action:?}");
            assert_eq!((task.claims, task.attempts), (1, 1), "{action:?}");
            assert_eq!(events(&stage, seen), logged, "{action:?}");
            let Outcome::Swept { swept, .. } = stage.must(Sweep::default()) else { panic!() };
            assert_eq!(swept, 0, "{action:?}: it is not swept again");
        }
    }

    #[test]
    fn failing_follows_the_retry_policy() {
        let mut new = new_task("t");
        new.policy.retry = None;
        let mut stage = suspended(new, OnTimeout::Fail);
        stage.later(5_000);
        stage.must(Sweep::default());
        let Lifecycle::Failed { class, .. } = stage.task("t").unwrap().lifecycle else { panic!() };
        assert_eq!(class, FailureClass::Timeout);
    }

    #[test]
    fn resuming_on_timeout_sends_a_timeout_message() {
        let mut stage = suspended(new_task("t"), OnTimeout::Resume);
        stage.later(5_000);
        stage.must(Sweep::default());
        let resumption = stage.task("t").unwrap().resumption.unwrap();
        assert_eq!((resumption.cause, resumption.messages), (ResumeCause::Timeout, vec![1]));
        let sent = stage.message(1).unwrap();
        assert_eq!((sent.name.as_str(), sent.source.as_str()), ("timeout", "engine"));
        stage.must(claim());
        assert_eq!(stage.task("t").unwrap().attempts, 1);
    }

    #[test]
    fn a_full_mailbox_does_not_prevent_resuming_on_timeout() {
        let mut stage = suspended(new_task("t"), OnTimeout::Resume);
        stage.must(SendMessages { tenant: Tenant::default(), messages: vec![message("a"); 1_000] });
        stage.later(5_000);
        stage.must(Sweep::default());
        let resumption = stage.task("t").unwrap().resumption.unwrap();
        assert_eq!((resumption.cause, resumption.messages), (ResumeCause::Timeout, vec![]));
    }

    #[test]
    fn an_escalated_task_is_resumed_by_operator_or_signal() {
        for operator in [true, false] {
            let mut stage = suspended(new_task("t"), OnTimeout::Escalate);
            stage.later(5_000);
            stage.must(Sweep::default());
            let Lifecycle::Suspended(suspension) = stage.task("t").unwrap().lifecycle else {
                panic!()
            };
            assert_eq!(suspension.escalated_at, Some(stage.now));
            assert_eq!(suspension.reason, SuspendReason::OperatorReview);
            if operator {
                stage.must(Resume { task: key("t"), by: "ada".into() });
            } else {
                stage.must(SendMessages::one(message("go")));
            }
            assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Resumable);
        }
    }

    #[test]
    fn the_deadline_of_the_task_comes_first() {
        let new = NewTask { deadline_ms: Some(5_000), ..new_task("t") };
        let mut stage = suspended(new, OnTimeout::Resume);
        stage.later(5_000);
        stage.must(Sweep::default());
        assert_eq!(stage.task("t").unwrap().lifecycle.public(), PublicState::Expired);
    }

    #[test]
    fn a_message_visible_by_the_timeout_counts_first() {
        let mut stage = suspended(new_task("t"), OnTimeout::Cancel);
        stage.must(SendMessages::one(NewMessage {
            delay: Delay::For { ms: 5_000 },
            ..message("go")
        }));
        stage.later(6_000);
        stage.must(Sweep::default());
        let task = stage.task("t").unwrap();
        assert_eq!(task.lifecycle.public(), PublicState::Resumable);
        assert_eq!(task.resumption.unwrap().cause, ResumeCause::Signals);
        assert_eq!(stage.message(1).unwrap().due_at, None);
    }

    #[test]
    fn a_timeout_message_meets_no_condition() {
        let any = Matcher::default;
        let two = Condition::Count { n: 2, distinct: Distinct::Sources, of: any() };
        for (condition, votes) in [(Condition::Signal(any()), 0), (two, 1)] {
            let mut stage = Stage::with_task("active");
            let timeout = Some(SuspendTimeout { after_ms: 5_000, action: OnTimeout::Resume });
            let suspend =
                |epoch| Suspend { timeout, ..Suspend::new(fence(epoch), condition.clone()) };
            stage.must(suspend(1));
            for _ in 0..votes {
                stage.must(SendMessages::one(message("yes")));
            }
            stage.later(5_000);
            stage.must(Sweep::default());
            stage.must(claim());
            let (class, retry) = (FailureClass::Transient, Retry::After { ms: 0 });
            stage.must(Fail { fence: fence(2), class, reason: "late".into(), retry });
            stage.must(claim());
            let outcome = stage.must(suspend(3));
            assert_eq!(outcome, Outcome::Suspended { waitpoints: vec![] }, "{condition:?}");
        }
    }

    #[test]
    fn callers_cannot_use_the_source_of_the_engine() {
        let mut stage = suspended(new_task("t"), OnTimeout::Resume);
        let forged = NewMessage { source: "engine".into(), ..message("timeout") };
        assert_eq!(stage.run(SendMessages::one(forged)).unwrap_err().code(), "invalid");
    }

    #[test]
    fn timeouts_do_not_fill_the_mailbox() {
        let mut stage = suspended(new_task("t"), OnTimeout::Resume);
        for epoch in 2..=5 {
            stage.later(5_000);
            stage.must(Sweep::default());
            assert_eq!(stage.mailbox().unwrap().messages, 1);
            stage.must(claim());
            let timeout = Some(SuspendTimeout { after_ms: 5_000, action: OnTimeout::Resume });
            stage.must(Suspend { timeout, ..Suspend::new(fence(epoch), Condition::signal("go")) });
        }
    }
}
