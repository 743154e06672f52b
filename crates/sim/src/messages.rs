//! Messages, waitpoints and suspensions in scripts: the operations, and their commands.

use windlass_core::command::{
    CompleteWaitpoint, ConsumeMessages, CreateWaitpoint, Delay, IdempotencyWindow, NewMessage,
    NewWaitpoint, Resume, RotateSigningKey, SendMessages, Suspend, SuspendTimeout,
};
use windlass_core::{
    Command, Condition, Distinct, Fence, Matcher, OnTimeout, Secret, TaskId, TaskKey, Tenant,
    Token, WaitpointId,
};
use windlass_store_test::Random;

use crate::client::Client;
use crate::generate::Writer;
use crate::model::SPOILT;
use crate::script::{
    Behavior, CONDITIONS, MESSAGE_WINDOW_MS, NAMES, Operation, SOURCES, WAITPOINT_MS, exact,
};

/// The default timeout of a task whose condition is a timeout.
const DEFAULT_TIMEOUT_MS: u64 = 900;

/// A behaviour that suspends the task.
pub(crate) fn wait(random: &mut Random) -> Behavior {
    let condition = u8::try_from(random.below(8)).unwrap_or(0);
    Behavior::Wait { condition, timeout: random_timeout(random) }
}

fn random_timeout(random: &mut Random) -> Option<(u64, OnTimeout)> {
    use OnTimeout::{Cancel, Escalate, Expire, Fail, Resume};
    let action = *random.pick(&[Fail, Cancel, Expire, Resume, Resume, Escalate, Escalate]);
    let ms = *random.pick(&[1, 100, 700, 3_000]);
    random.percent(60).then_some((ms, action))
}

/// The suspend command of a handler that waits.
pub(crate) fn until(fence: Fence, condition: u8, timeout: Option<(u64, OnTimeout)>) -> Suspend {
    let condition = condition_of(condition, &waitpoints(&fence.task.id));
    Suspend { timeout: timeout_of(&condition, timeout), ..Suspend::new(fence, condition) }
}

fn timeout_of(condition: &Condition, timeout: Option<(u64, OnTimeout)>) -> Option<SuspendTimeout> {
    let needs_time = matches!(condition, Condition::Timeout);
    let timeout = timeout.or(needs_time.then_some((DEFAULT_TIMEOUT_MS, OnTimeout::Resume)));
    timeout.map(|(after_ms, action)| SuspendTimeout { after_ms, action })
}

impl Writer {
    pub(crate) fn waiting(&mut self) -> Operation {
        match self.random.below(100) {
            0..38 => self.send_messages(),
            38..52 => self.suspend(),
            52..62 => Operation::Signal {
                token: self.recent(),
                name: self.small(),
                key: self.random.percent(30).then_some(0),
                spoilt: self.random.percent(8),
            },
            62..72 => Operation::CreateWaitpoint {
                lease: self.recent(),
                number: self.small(),
                held: self.random.percent(60),
            },
            72..82 => Operation::Resume { task: self.small(), id: self.small() },
            82..92 => Operation::ConsumeMessages { lease: self.recent(), seq: self.small() % 6 },
            _ => Operation::RotateSigningKey { grace_ms: *self.random.pick(&[1, 500, 60_000]) },
        }
    }

    fn send_messages(&mut self) -> Operation {
        Operation::SendMessages {
            task: self.small(),
            id: self.small(),
            name: self.small(),
            source: self.small(),
            key: self.random.percent(30).then(|| self.small() % 2),
            after_ms: *self.random.pick(&[0, 0, 0, 50, 700]),
            also: self.random.percent(10).then(|| self.small()),
        }
    }

    fn suspend(&mut self) -> Operation {
        let timeout = random_timeout(&mut self.random);
        Operation::Suspend {
            lease: self.recent(),
            condition: self.small() % CONDITIONS,
            timeout,
            open: self.random.percent(40),
            nth: u32::from(self.variant()),
        }
    }

    /// Plans a suspension for the lease that a client is about to get.
    pub(crate) fn plan_wait(&mut self) {
        let operation = self.suspend();
        let suspend = match operation {
            Operation::Suspend { condition, timeout, open, nth, .. } => {
                Operation::Suspend { lease: 0, condition, timeout, open, nth }
            }
            other => other,
        };
        if self.random.percent(60) {
            self.plans.push_back(Operation::CreateWaitpoint { lease: 0, number: 0, held: true });
        }
        self.plans.push_back(suspend);
        for _ in 0..self.random.below(3) {
            let operation = self.send_messages();
            self.plans.push_back(operation);
        }
        if self.random.percent(65) {
            let (name, spoilt) = (self.small(), self.random.percent(5));
            let signal = Operation::Signal { token: 0, name, key: None, spoilt };
            self.plans.push_back(signal);
            if self.random.percent(30) {
                self.plans.push_back(signal);
            }
        }
    }
}

impl Client<'_> {
    /// A task by its number; mostly one that was leased, which usually exists.
    fn target(&self, task: u8, id: u8) -> TaskKey {
        let back = task.checked_sub(3).filter(|_| exact(task).is_none());
        let leased = back.and_then(|back| self.fence(back / 3));
        leased.map_or_else(|| self.key(task, id), |fence| fence.task)
    }

    pub(crate) fn waiting(&self, operation: &Operation) -> Option<Command> {
        let tenant = Tenant::default();
        Some(match *operation {
            Operation::SendMessages { task, id, name, source, key, after_ms, also } => {
                let (task, tasks) = (self.target(task, id), also.map(|also| self.key(also, 0)));
                let mut messages = Vec::new();
                for task in std::iter::once(task).chain(tasks) {
                    let mut message =
                        NewMessage::new(task.id, NAMES.pick(name), SOURCES.pick(source));
                    message.idempotency = key.map(message_key);
                    message.delay = Delay::For { ms: after_ms };
                    messages.push(message);
                }
                SendMessages { tenant, messages }.into()
            }
            Operation::Suspend { lease, condition, timeout, open, nth } => {
                let fence = self.fence(lease)?;
                let open = open || condition == 9;
                let ids = waitpoints(&fence.task.id);
                let count = usize::from(open) + usize::from(condition == 9);
                let made = ids.iter().zip(WAITPOINT_MS).take(count);
                let waitpoints = made.map(|(id, ttl_ms)| NewWaitpoint { id: id.clone(), ttl_ms });
                let waitpoints = waitpoints.collect();
                let condition = condition_of(condition, &ids);
                let timeout = timeout_of(&condition, timeout);
                Suspend { timeout, waitpoints, nth, ..Suspend::new(fence, condition) }.into()
            }
            Operation::Resume { task, id } => {
                Resume { task: self.target(task, id), by: crate::model::OPERATOR.into() }.into()
            }
            Operation::CreateWaitpoint { lease, number, held } => {
                let fence = self.fence(lease)?;
                let number = usize::from(number) % WAITPOINT_MS.len();
                let id = waitpoints(&fence.task.id)[number].clone();
                let waitpoint = NewWaitpoint { id, ttl_ms: WAITPOINT_MS[number] };
                let epoch = held.then_some(fence.epoch);
                CreateWaitpoint { task: fence.task, epoch, waitpoint }.into()
            }
            Operation::Signal { token, name, key, spoilt } => {
                let mut token = self.token(token)?.clone();
                if spoilt {
                    let mut text = token.expose_secret().to_owned();
                    text.pop();
                    text.push(SPOILT);
                    token = Token::new(text);
                }
                let (name, source) = (NAMES.pick(name).to_owned(), SOURCES[0].to_owned());
                let idempotency = key.map(message_key);
                CompleteWaitpoint { tenant, token, name, source, idempotency, payload: None }.into()
            }
            Operation::ConsumeMessages { lease, seq } => {
                ConsumeMessages { fence: self.fence(lease)?, seqs: vec![1 + u64::from(seq)] }.into()
            }
            Operation::RotateSigningKey { grace_ms } => {
                let (id, secret) = (self.name.clone(), Secret::new("5a".repeat(32)));
                RotateSigningKey { tenant, id, secret, grace_ms, if_absent: false }.into()
            }
            _ => return None,
        })
    }
}

/// Picks a word by a number modulo the number of choices.
trait Pick {
    fn pick(&self, number: u8) -> &'static str;
}

impl<const N: usize> Pick for [&'static str; N] {
    fn pick(&self, number: u8) -> &'static str {
        self[usize::from(number) % N]
    }
}

fn message_key(number: u8) -> IdempotencyWindow {
    IdempotencyWindow { key: format!("message-{number}").into(), window_ms: MESSAGE_WINDOW_MS }
}

/// The waitpoints that a task can have.
fn waitpoints(id: &TaskId) -> [WaitpointId; 2] {
    let task = TaskKey { tenant: Tenant::default(), id: id.clone() };
    ["first", "second"].map(|name| WaitpointId::of_task(&task, 0, name))
}

fn condition_of(number: u8, waitpoints: &[WaitpointId; 2]) -> Condition {
    let named = |name: usize| Condition::signal(NAMES[name]);
    let from = |source: usize| {
        let source = Some(SOURCES[source].to_owned());
        Condition::Signal(Matcher { source, ..Matcher::default() })
    };
    let count = |distinct| Condition::Count { n: 2, distinct, of: Matcher::default() };
    match number {
        0 | 1 => named(0),
        2 => Condition::All(vec![named(0), named(1)]),
        3 => Condition::Any(vec![named(0), Condition::All(vec![named(1), from(1)])]),
        4 => count(Distinct::Sources),
        5 => count(Distinct::Names),
        6 => Condition::Operator,
        7 => Condition::Timeout,
        8 => Condition::Any(vec![Condition::waitpoint(waitpoints[0].clone()), named(2)]),
        _ => count(Distinct::Waitpoints),
    }
}
