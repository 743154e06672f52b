//! Suspension: into it, and out of it for a reason.

use windlass_core::command::Suspend;
use windlass_core::{
    Change, Condition, Distinct, Lifecycle, Matcher, OnTimeout, ResumeCause, Settled,
    SuspendReason, Task, TaskId, Timeout, Timestamp,
};

use crate::model::children::gathered;
use crate::model::facts::{Content, Facts, PausedAttempt, State, Suspension};
use crate::model::lease::held;
use crate::model::log::Step;
use crate::model::mailbox::{MessageFacts, TIMEOUT};
use crate::model::state::Model;
use crate::script::TaskSpec;
use crate::violation::{Breach, Kind, breach};

impl Model {
    /// The transitions about waiting: for messages, for children, to become ready.
    pub(super) fn wait(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        change: &Change,
        spec: &TaskSpec,
    ) -> Result<(), Breach> {
        match change {
            Change::Signalled { seq, name, source, waitpoint } => {
                self.signalled(at, facts, *seq, (name, source), waitpoint.as_ref())
            }
            Change::WaitpointCreated { id } => self.waitpoint_created(at, id),
            Change::Suspended { epoch, reason } => self.suspended(at, facts, spec, *epoch, *reason),
            Change::WaitingChildren { epoch, open } => self.gathers(at, facts, spec, *epoch, *open),
            Change::Resumed { cause: ResumeCause::Children, messages, by } => {
                gathered(at, facts, messages.is_empty() && by.is_none())
            }
            Change::Resumed { cause, messages, by } => {
                self.resumed(at, facts, spec, *cause, messages, by.is_some())
            }
            Change::Escalated => {
                self.timed_out(at, facts, OnTimeout::Escalate)?;
                if let State::Suspended(suspension) = &mut facts.state {
                    (suspension.timeout, suspension.escalated) = (None, true);
                }
                Ok(())
            }
            Change::Unblocked
            | Change::BlockedAgain
            | Change::SessionGranted { .. }
            | Change::GrantReleased { .. } => self.position_changed(at, facts, change, spec),
            Change::Granted { .. } | Change::GrantExpired { .. } | Change::Revoked { .. } => {
                self.grant_changed(at, facts, change, spec)
            }
            Change::EffectClaimed { .. } | Change::EffectSettled { .. } => {
                self.effect_logged(at, facts, spec, change)
            }
            other => breach(Kind::IllegalMove, format!("{} of a task", other.name())),
        }
    }

    fn suspended(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        spec: &TaskSpec,
        epoch: u64,
        reason: SuspendReason,
    ) -> Result<(), Breach> {
        let hold = *held(facts, epoch, at, spec)?;
        let Some(began_at) = hold.began_at else {
            return breach(Kind::IllegalMove, "its attempt has not begun");
        };
        let requested = self.mailboxes.suspending.get(&(at.id.clone(), epoch));
        if !requested.into_iter().flatten().any(|suspend| suspend.reason == reason) {
            return breach(Kind::IllegalMove, "no holder asked to suspend");
        }
        let left_ms = hold.over_at.map(|over_at| at.at.ms_until(over_at));
        self.settled(at, facts, epoch, None, Settled::Suspended);
        facts.state = State::Suspended(Suspension {
            since: at.at,
            paused: PausedAttempt { began_at, left_ms },
            condition: None,
            timeout: None,
            escalated: false,
        });
        Ok(())
    }

    fn resumed(
        &mut self,
        at: &Step<'_>,
        facts: &mut Facts,
        spec: &TaskSpec,
        cause: ResumeCause,
        numbers: &[u64],
        by_operator: bool,
    ) -> Result<(), Breach> {
        let Some(messages) = self.mailboxes.numbered(at.id, numbers) else {
            return breach(Kind::Message, format!("{numbers:?} are not all there"));
        };
        let began_at = match (&mut facts.state, cause) {
            (State::Active(hold), ResumeCause::Signals) => {
                let hold = *hold;
                held(facts, hold.epoch, at, spec)?;
                let Some(began_at) = hold.began_at else {
                    return breach(Kind::IllegalMove, "its attempt has not begun");
                };
                self.check_met(at, hold.epoch, None, &messages, began_at)?;
                let seen = self.mailboxes.satisfied.entry((at.id.clone(), hold.epoch)).or_default();
                seen.push((at.at, numbers.to_vec()));
                began_at
            }
            (State::Suspended(suspension), _) => {
                let suspension = suspension.clone();
                let began_at = suspension.paused.began_at;
                let epoch = facts.epoch.unwrap_or_default();
                match cause {
                    ResumeCause::Signals => {
                        let condition = suspension.condition.as_ref();
                        self.check_met(at, epoch, condition, &messages, began_at)?;
                        self.note_waking_message(at);
                    }
                    ResumeCause::Timeout => {
                        self.timed_out(at, facts, OnTimeout::Resume)?;
                        let received =
                            messages.iter().map(|seq| &self.mailboxes.sent_messages[seq]);
                        let received =
                            received.map(|message| (&message.name[..], &message.source[..]));
                        if !received.eq([TIMEOUT]) {
                            return breach(Kind::Message, "it got no timeout message");
                        }
                    }
                    ResumeCause::Operator => {
                        let requested = self.mailboxes.resuming.contains(at.id);
                        if !requested || !by_operator || !messages.is_empty() {
                            return breach(Kind::IllegalMove, "no operator resumed it");
                        }
                    }
                    ResumeCause::Children => {
                        return breach(Kind::IllegalMove, "it does not wait for children");
                    }
                }
                let paused = Some(suspension.paused);
                facts.state = State::Waiting { lost: None, since: at.at, paused };
                began_at
            }
            _ => return breach(Kind::IllegalMove, "it does not wait"),
        };
        for seq in messages {
            let message = self.mailboxes.sent_messages.get_mut(&seq).expect("the message exists");
            message.resumed_attempt_at = Some(began_at);
        }
        Ok(())
    }

    /// Records the message whose arrival resumed the task: its log event precedes this one in the
    /// same commit. A message that became visible in the meantime may have met the condition
    /// instead.
    fn note_waking_message(&mut self, at: &Step<'_>) {
        let last = at.seq - 1;
        let message = self.mailboxes.sent_messages.get(&last);
        let received = message.filter(|message| message.task == *at.id);
        if received.is_some_and(|message| message.at == at.at) {
            self.mailboxes.woke.insert(last);
        }
    }

    /// Checks that a task resumes with messages that exist and meet its condition.
    fn check_met(
        &self,
        at: &Step<'_>,
        epoch: u64,
        known: Option<&Condition>,
        seqs: &[u64],
        began_at: Timestamp,
    ) -> Result<(), Breach> {
        let messages: Vec<&MessageFacts> =
            seqs.iter().map(|seq| &self.mailboxes.sent_messages[seq]).collect();
        let stale = |message: &&&MessageFacts| {
            let too_early = message.visible_at.is_some_and(|visible_at| at.at < visible_at);
            message.is_timeout() || message.hidden && too_early
        };
        if let Some(message) = messages.iter().find(stale) {
            return breach(Kind::Message, format!("{message:?} cannot meet a condition"));
        }
        let requested =
            self.mailboxes.suspending.get(&(at.id.clone(), epoch)).into_iter().flatten();
        let mut conditions: Vec<&Condition> = requested.map(|suspend| &suspend.condition).collect();
        if let Some(known) = known {
            conditions = vec![known];
        }
        if conditions.iter().any(|condition| holds(condition, &messages, began_at)) {
            return Ok(());
        }
        breach(Kind::Message, format!("{messages:?} does not meet {conditions:?}"))
    }

    /// Checks a suspension that times out: at its timeout, with the requested action, and only if
    /// no visible message meets its condition.
    pub(super) fn timed_out(
        &self,
        at: &Step<'_>,
        facts: &Facts,
        action: OnTimeout,
    ) -> Result<(), Breach> {
        let State::Suspended(suspension) = &facts.state else {
            return breach(Kind::IllegalMove, "it is not suspended");
        };
        match suspension.timeout {
            Some(timeout) if timeout.action == action && timeout.at <= at.at => {}
            other => return breach(Kind::Timeout, format!("its timeout is {other:?}")),
        }
        let counts = |message: &&MessageFacts| {
            !message.is_timeout()
                && message.visible_at.is_some_and(|visible_at| visible_at <= at.at)
        };
        let there: Vec<&MessageFacts> = self.mailboxes.of_task(at.id).filter(counts).collect();
        let began_at = suspension.paused.began_at;
        if suspension.condition.as_ref().is_some_and(|condition| holds(condition, &there, began_at))
        {
            return breach(Kind::Message, "its condition was met");
        }
        Ok(())
    }

    /// Learns the condition of a task from its record: a holder must have asked for it.
    pub(super) fn learn_suspension(&mut self, id: &TaskId, task: &Task) -> Result<(), Breach> {
        let Lifecycle::Suspended(stored) = &task.lifecycle else { return Ok(()) };
        let State::Suspended(suspension) = &self.facts(id).state else { return Ok(()) };
        if suspension.condition.is_some() {
            return Ok(());
        }
        let asks_this = |suspend: &&Suspend| {
            let at = |ms| suspension.since.plus_ms(ms);
            let timeout = suspend.timeout;
            let timeout = timeout
                .map(|operation| Timeout { at: at(operation.after_ms), action: operation.action });
            suspend.condition == stored.condition && timeout == stored.timeout
        };
        let fenced = (id.clone(), task.epoch);
        let requested =
            self.mailboxes.suspending.get(&fenced).into_iter().flatten().filter(asks_this);
        let mut contents: Vec<Content> = requested.map(suspend_content).collect();
        contents.dedup();
        if contents.is_empty() {
            return breach(
                Kind::RecordDiffers,
                format!("no holder suspended {id} with {stored:?}"),
            );
        }
        if let (Some(seen), [content]) = (self.settles.get_mut(&fenced), &contents[..]) {
            seen.content = Some(content.clone());
        }
        let (condition, timeout) = (Some(stored.condition.clone()), stored.timeout);
        self.track(id).amend(|facts| {
            if let State::Suspended(suspension) = &mut facts.state {
                (suspension.condition, suspension.timeout) = (condition, timeout);
            }
        });
        Ok(())
    }

    /// Checks that no task waits for a condition that is met.
    pub(super) fn check_waits(&self) -> Result<(), Breach> {
        for (id, facts) in self.present() {
            if matches!(facts.state, State::Gathering { .. }) && facts.open.is_empty() {
                return breach(Kind::Family, format!("{id} waits, but its last child has ended"));
            }
            let State::Suspended(suspension) = &facts.state else { continue };
            let counts = |message: &&MessageFacts| !message.hidden && !message.is_timeout();
            let there: Vec<&MessageFacts> = self.mailboxes.of_task(id).filter(counts).collect();
            let began_at = suspension.paused.began_at;
            if suspension.condition.as_ref().is_some_and(|it| holds(it, &there, began_at)) {
                return breach(Kind::MessageLost, format!("{id} waits despite {there:?}"));
            }
        }
        Ok(())
    }
}

/// The content of a suspend request.
pub(super) fn suspend_content(suspend: &Suspend) -> Content {
    let Suspend { condition, reason, timeout, waitpoints, nth, .. } = suspend;
    Content::Suspend(format!("{condition:?} {reason:?} {timeout:?} {waitpoints:?} {nth}"))
}

/// Whether messages meet a condition of the attempt that began then. A message that resumed this
/// attempt before meets only a condition on its waitpoint.
fn holds(condition: &Condition, messages: &[&MessageFacts], began_at: Timestamp) -> bool {
    let fits = |matcher: &Matcher, message: &MessageFacts| {
        let Matcher { waitpoint, name, source } = matcher;
        (waitpoint.is_some() || message.resumed_attempt_at != Some(began_at))
            && (waitpoint.is_none() || *waitpoint == message.waitpoint)
            && name.iter().all(|name| *name == message.name)
            && source.iter().all(|source| *source == message.source)
    };
    match condition {
        Condition::Signal(matcher) => messages.iter().any(|message| fits(matcher, message)),
        Condition::All(parts) => parts.iter().all(|part| holds(part, messages, began_at)),
        Condition::Any(parts) => parts.iter().any(|part| holds(part, messages, began_at)),
        Condition::Count { n, distinct, of } => {
            let mut words: Vec<&str> = Vec::new();
            for message in messages.iter().filter(|message| fits(of, message)) {
                words.extend(match distinct {
                    Distinct::Waitpoints => message.waitpoint.as_ref().map(|id| id.as_str()),
                    Distinct::Names => Some(message.name.as_str()),
                    Distinct::Sources => Some(message.source.as_str()),
                });
            }
            words.sort_unstable();
            words.dedup();
            words.len() >= *n as usize
        }
        Condition::Operator | Condition::Timeout | Condition::AnyMessage => false,
    }
}
