//! Outcomes about messages, waitpoints and suspensions.

use windlass_core::command::{
    CompleteWaitpoint, CreateWaitpoint, CreatedWaitpoint, SentMessage, Suspend,
};
use windlass_core::{Command, Fence, Outcome, Rejection, ResumeCause, Token, WaitpointId};

use crate::model::facts::Facts;
use crate::model::mailbox::MessageFacts;
use crate::model::outcome::{Fenced, Submission};
use crate::model::state::Model;
use crate::model::suspension::suspend_content;
use crate::violation::{Breach, Kind, breach};

/// A message as it was requested.
struct Wanted<'a> {
    name: &'a str,
    source: &'a str,
    waitpoint: Option<WaitpointId>,
    /// Its idempotency key, and the window of that key.
    key: Option<(&'a str, u64)>,
}

impl Model {
    /// Records a command about waiting.
    pub(super) fn wait_submitted(&mut self, command: &Command) {
        let fenced = |fence: &Fence| (fence.task.id.clone(), fence.epoch);
        let mailboxes = &mut self.mailboxes;
        match command {
            Command::SendMessages(send) => mailboxes.sends(send),
            Command::Suspend(suspend) => {
                let requested = mailboxes.suspending.entry(fenced(&suspend.fence)).or_default();
                requested.push(suspend.clone());
            }
            Command::Resume(resume) => drop(mailboxes.resuming.insert(resume.task.id.clone())),
            Command::ConsumeMessages(take) => {
                mailboxes.consume_submitted(&fenced(&take.fence), &take.seqs);
            }
            _ => {}
        }
    }

    /// Judges the outcomes of commands about waiting; none for other commands.
    pub(super) fn check_wait_outcome(
        &mut self,
        submission: &Submission<'_>,
        outcome: &Outcome,
    ) -> Option<Result<(), Breach>> {
        Some(match (submission.command, outcome) {
            (Command::SendMessages(send), Outcome::Sent(sent)) => {
                if send.messages.len() != sent.len() {
                    return Some(breach(Kind::OtherAnswer, "wrong number of messages"));
                }
                send.messages.iter().zip(sent).try_for_each(|(message, sent_message)| {
                    let key = message.idempotency.as_ref();
                    let key = key.map(|key| (key.key.expose_secret(), key.window_ms));
                    let (name, source) = (&message.name[..], &message.source[..]);
                    if sent_message.task != message.task {
                        return breach(Kind::OtherAnswer, "the message has another task");
                    }
                    self.message_sent(
                        submission,
                        &Wanted { name, source, waitpoint: None, key },
                        sent_message,
                    )
                })
            }
            (Command::CompleteWaitpoint(signal), Outcome::Sent(sent)) => match &sent[..] {
                [sent_message] => self.check_waitpoint_completion(submission, signal, sent_message),
                _ => breach(Kind::OtherAnswer, "a waitpoint has one message"),
            },
            (Command::Suspend(suspend), Outcome::Suspended { waitpoints }) => {
                self.check_suspend_outcome(submission, suspend, waitpoints)
            }
            (Command::Suspend(suspend), Outcome::AlreadySatisfied(resumption)) => {
                let fenced = fenced(&suspend.fence);
                let seen = self.mailboxes.satisfied.get(&fenced).into_iter().flatten();
                let mut seen =
                    seen.filter(|seen| **seen == (resumption.at, resumption.messages.clone()));
                match seen.next().filter(|_| resumption.cause == ResumeCause::Signals) {
                    Some(_) => Ok(()),
                    None => breach(Kind::EffectMissing, "nothing met its condition"),
                }
            }
            (Command::CreateWaitpoint(create), Outcome::WaitpointCreated(made)) => {
                self.check_waitpoint(&create.waitpoint.id, made)
            }
            (Command::Resume(resume), Outcome::Resumed) => {
                let seen = self.happened.get(&(resume.task.id.clone(), "resumed"));
                match seen.filter(|seq| **seq > submission.seq) {
                    Some(_) => Ok(()),
                    None => breach(Kind::EffectMissing, "the task was not resumed"),
                }
            }
            (Command::ConsumeMessages(take), Outcome::Consumed { .. }) => {
                let (id, epoch) = fenced(&take.fence);
                let held = |facts: &Facts| facts.hold().is_some_and(|hold| hold.epoch == epoch);
                match self.tasks[&id].was(submission.seq, held) {
                    true => Ok(()),
                    false => breach(Kind::StaleAccepted, "not leased under this epoch"),
                }
            }
            (Command::RotateSigningKey(rotate), Outcome::SigningKeyRotated { .. }) => {
                match self.mailboxes.ring.contains_key(&rotate.id) {
                    true => Ok(()),
                    false => breach(Kind::EffectMissing, "the key does not exist"),
                }
            }
            _ => return None,
        })
    }

    fn message_sent(
        &mut self,
        submission: &Submission<'_>,
        wanted: &Wanted<'_>,
        sent_message: &SentMessage,
    ) -> Result<(), Breach> {
        let first = if sent_message.duplicate { 0 } else { submission.seq + 1 };
        let same = |message: &MessageFacts| {
            (&message.task, message.number) == (&sent_message.task, sent_message.seq)
                && (&message.name[..], &message.source[..]) == (wanted.name, wanted.source)
                && message.waitpoint == wanted.waitpoint
        };
        let mut found = self.mailboxes.sent_messages.range(first..).rev();
        let Some((seq, message)) = found.find(|(_, message)| same(message)) else {
            let kind = if sent_message.duplicate { Kind::Key } else { Kind::EffectMissing };
            return breach(kind, format!("the message does not exist: {sent_message:?}"));
        };
        if sent_message.duplicate {
            let may = wanted.key.is_some() && !sent_message.resumed;
            return if may { Ok(()) } else { breach(Kind::Key, "a duplicate without a key") };
        }
        let visible = message.visible_at.is_none_or(|visible_at| visible_at <= message.at);
        if sent_message.resumed != (visible && self.mailboxes.woke.contains(seq)) {
            return breach(Kind::OtherAnswer, format!("wrong `resumed` for {message:?}"));
        }
        let Some((key, window_ms)) = wanted.key else { return Ok(()) };
        let (seq, message) = (*seq, message.clone());
        let others =
            self.mailboxes.keyed.entry((sent_message.task.clone(), key.to_owned())).or_default();
        let duplicate = others.iter().filter(|other| **other != seq).find(|other| {
            let other = &self.mailboxes.sent_messages[*other];
            let (first, second) = (other.at.min(message.at), other.at.max(message.at));
            other.life == message.life && second < first.plus_ms(window_ms)
        });
        if let Some(other) = duplicate {
            return breach(Kind::Key, format!("{key} sent messages {other} and {seq}"));
        }
        others.insert(seq);
        Ok(())
    }

    fn check_waitpoint_completion(
        &mut self,
        submission: &Submission<'_>,
        signal: &CompleteWaitpoint,
        sent_message: &SentMessage,
    ) -> Result<(), Breach> {
        let Some(parts) = Parts::of(&signal.token) else {
            return breach(Kind::Waitpoint, "the token cannot be parsed");
        };
        let key = signal.idempotency.as_ref();
        let key = key.map(|key| (key.key.expose_secret(), key.window_ms));
        let waitpoint = Some(parts.waitpoint);
        let wanted = Wanted { name: &signal.name, source: &signal.source, waitpoint, key };
        self.message_sent(submission, &wanted, sent_message)?;
        let over = self.mailboxes.ring.get(parts.key).copied().flatten();
        if parts.tampered || over.is_some_and(|over| over <= submission.at) {
            return breach(Kind::Waitpoint, "its token is invalid");
        }
        Ok(())
    }

    fn check_suspend_outcome(
        &self,
        submission: &Submission<'_>,
        suspend: &Suspend,
        made: &[CreatedWaitpoint],
    ) -> Result<(), Breach> {
        let (fenced, content) = (fenced(&suspend.fence), suspend_content(suspend));
        self.check_settle_outcome(
            submission,
            &fenced,
            &content,
            &windlass_core::Settled::Suspended,
        )?;
        if made.len() != suspend.waitpoints.len() {
            return breach(Kind::OtherAnswer, "wrong number of waitpoints");
        }
        let mut pairs = suspend.waitpoints.iter().zip(made);
        pairs.try_for_each(|(new, made)| self.check_waitpoint(&new.id, made))
    }

    fn check_waitpoint(&self, id: &WaitpointId, made: &CreatedWaitpoint) -> Result<(), Breach> {
        match (self.mailboxes.waitpoints.get(id), Parts::of(&made.token)) {
            // It was deleted with its task before the answer arrived.
            (None, Some(_)) => Ok(()),
            (Some(_), Some(parts))
                if parts.waitpoint == *id && parts.expires_ms == made.expires_at.millis() =>
            {
                Ok(())
            }
            (known, _) => breach(Kind::Waitpoint, format!("{known:?} is not {made:?}")),
        }
    }

    /// Whether a command about waiting may be rejected with this reason; none for other commands,
    /// or if the task can be the reason.
    pub(super) fn may_reject_to_wait(
        &self,
        submission: &Submission<'_>,
        rejection: &Rejection,
    ) -> Option<bool> {
        match (submission.command, rejection) {
            (Command::SendMessages(send), Rejection::Conflict) => {
                Some(send.messages.iter().any(|message| message.idempotency.is_some()))
            }
            (Command::SendMessages(send), _) => Some(send.messages.iter().any(|message| {
                let (id, track) = (&message.task, &self.tasks[&message.task]);
                track.was(submission.seq, |facts| self.may_reject(facts, id, None, rejection))
            })),
            (Command::CompleteWaitpoint(signal), Rejection::Conflict) => {
                Some(signal.idempotency.is_some())
            }
            (Command::CompleteWaitpoint(signal), _) => {
                Some(self.may_reject_signal(submission, &signal.token, rejection))
            }
            (Command::CreateWaitpoint(create), _) => {
                Some(self.may_reject_waitpoint(submission, create, rejection))
            }
            (Command::Suspend(_), Rejection::NoSigningKey) => Some(self.may_lack_keys(submission)),
            (Command::Suspend(_), Rejection::WaitpointNotFound { id }) => {
                let known = self.mailboxes.waitpoints.get(id);
                Some(known.is_none_or(|known| known.created_seq > submission.seq))
            }
            (Command::Suspend(suspend), Rejection::AlreadySettled) => {
                let satisfied = self.mailboxes.satisfied.contains_key(&fenced(&suspend.fence));
                satisfied.then_some(true)
            }
            _ => None,
        }
    }

    fn may_lack_keys(&self, submission: &Submission<'_>) -> bool {
        self.mailboxes.seeded.is_none_or(|seeded| submission.seq <= seeded)
    }

    fn may_reject_waitpoint(
        &self,
        submission: &Submission<'_>,
        create: &CreateWaitpoint,
        rejection: &Rejection,
    ) -> bool {
        if *rejection == Rejection::NoSigningKey {
            return self.may_lack_keys(submission);
        }
        let task = create.task.clone();
        let fence = create.epoch.map(|epoch| Fence { task, epoch });
        let (id, track) = (&create.task.id, &self.tasks[&create.task.id]);
        track.was(submission.seq, |facts| self.may_reject(facts, id, fence.as_ref(), rejection))
    }

    fn may_reject_signal(
        &self,
        submission: &Submission<'_>,
        token: &Token,
        rejection: &Rejection,
    ) -> bool {
        let Some(parts) = Parts::of(token) else { return *rejection == Rejection::TokenInvalid };
        let known = self.mailboxes.waitpoints.get(&parts.waitpoint);
        let track = known.map(|known| &self.tasks[&known.task]);
        match rejection {
            Rejection::TokenInvalid => {
                let over = |over: Option<_>| over.is_some_and(|over| over <= self.latest);
                let expires = known.and_then(|known| known.expires_at);
                parts.tampered
                    || self.mailboxes.ring.get(parts.key).is_none_or(|ends_at| over(*ends_at))
                    || expires.is_none_or(|at| at.millis() != parts.expires_ms)
                    || track.is_none_or(|track| track.was(submission.seq, |facts| !facts.exists()))
            }
            Rejection::TokenExpired => parts.expires_ms <= self.latest.millis(),
            Rejection::WaitpointCompleted => known.is_none_or(|known| known.used.is_some()),
            Rejection::AlreadyTerminal { state } => track.is_none_or(|track| {
                track.was(submission.seq, |facts| facts.ended() && facts.public() == Some(*state))
            }),
            _ => false,
        }
    }
}

fn fenced(fence: &Fence) -> Fenced {
    (fence.task.id.clone(), fence.epoch)
}

/// The fields of a token.
struct Parts<'t> {
    key: &'t str,
    waitpoint: WaitpointId,
    expires_ms: i64,
    /// Scripts tamper with tokens by changing their last character.
    tampered: bool,
}

impl<'t> Parts<'t> {
    fn of(token: &'t Token) -> Option<Self> {
        let mut parts = token.expose_secret().split('.');
        parts.next()?;
        Some(Self {
            key: parts.next()?,
            waitpoint: WaitpointId::new(parts.next()?),
            expires_ms: parts.next()?.parse().ok()?,
            tampered: parts.next()?.ends_with(SPOILT),
        })
    }
}

/// The last character of a token that a script tampers with. No digit of a token equals it.
pub(crate) const SPOILT: char = 'x';
