use windlass_core::command::{Cancel, Create, DeleteTask, NewTask};
use windlass_core::{Command, Outcome, Payload, Row, Tenant, Timestamp, Token};

use super::live::{Live, UNREADABLE};
use super::oracle::{Expected, Oracle};
use super::run::STEPS;
use super::step::{Operation, Step};
use super::{wish, workers};
use crate::fixture::{START, TaskSpot};
use crate::random::Random;
use crate::runner::Order;

/// Number of remembered commands and tokens.
const REMEMBERED: usize = 24;

/// Generates the steps of one seed from the current records.
#[derive(Debug)]
pub(super) struct Generator {
    random: Random,
    clock: Timestamp,
    recent: Vec<Command>,
    /// The issued tokens, latest last.
    tokens: Vec<Token>,
    /// Whether the last step wrote anything.
    wrote: bool,
    /// Whether this seed has an undecodable task.
    plants: bool,
    /// Whether this seed fills a lane with routes, which makes all later snapshots large.
    crowds: bool,
    /// Whether this seed has workflows.
    flows: bool,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            clock: START,
            recent: Vec::new(),
            tokens: Vec::new(),
            wrote: false,
            plants: seed.is_multiple_of(2),
            crowds: seed % 4 == 3,
            flows: seed % 4 == 1,
        }
    }

    pub(super) fn next(&mut self, oracle: &Oracle, number: usize) -> Step {
        self.move_clock();
        let live = Live::of(&oracle.tables, oracle.now(self.clock), &self.tokens);
        let command = match number {
            0 if self.plants => Operation::Plant(unreadable(self.clock)),
            n if self.crowds && n == STEPS - 4 => single(crowd()),
            n if self.crowds && n == STEPS - 3 => single(one_too_many()),
            _ if self.random.percent(4) => self.turnover(&live),
            _ if self.random.percent(3) => self.unclaimable_grant(&live),
            _ if self.random.percent(30) => self.batch(&live),
            _ => single(self.command(&live)),
        };
        let handle = usize::from(self.random.percent(30));
        Step { at: self.clock, handle, command }
    }

    pub(super) fn learn(&mut self, expected: &Expected) {
        self.wrote = expected.wrote;
        for answer in &expected.batch.answers {
            match answer {
                Ok(Outcome::WaitpointCreated(made)) => self.tokens.push(made.token.clone()),
                Ok(Outcome::Suspended { waitpoints }) => {
                    self.tokens.extend(waitpoints.iter().map(|made| made.token.clone()));
                }
                _ => {}
            }
        }
        let old = self.tokens.len().saturating_sub(REMEMBERED);
        self.tokens.drain(..old);
    }

    /// Mostly the clock stops or advances a little. It goes back only after a commit, because only
    /// a commit's time is a lower bound in every store.
    fn move_clock(&mut self) {
        let random = &mut self.random;
        self.clock = match random.below(100) {
            0..55 => self.clock,
            55..80 => self.clock.plus_ms(1 + random.below(500)),
            80..88 => self.clock.plus_ms(1_000 + random.below(20_000)),
            88..93 => self.clock.plus_ms(60_000 + random.below(4_000_000)),
            93..95 => self.clock.plus_ms(8 * 24 * 3_600_000),
            95..97 => Timestamp::from_micros(self.clock.micros() + 1),
            _ if self.wrote => self.clock.minus_ms(random.below(30_000)),
            _ => self.clock,
        };
    }

    fn command(&mut self, live: &Live) -> Command {
        if !self.recent.is_empty() && self.random.percent(10) {
            let again = self.random.pick(&self.recent).clone();
            return wish::again(&mut self.random, live, again);
        }
        let of_workflows = self.flows && self.random.percent(50);
        let wish = if of_workflows { wish::of_workflows } else { wish::command };
        let command = wish(&mut self.random, live);
        if self.recent.len() == REMEMBERED {
            self.recent.remove(0);
        }
        self.recent.push(command.clone());
        command
    }

    fn batch(&mut self, live: &Live) -> Operation {
        let count = 2 + self.random.below(6);
        let mut commands: Vec<Command> = (0..count).map(|_| self.command(live)).collect();
        if self.random.percent(40) {
            return Operation::Batch { commands, order: Order::Free };
        }
        // Events of a batch are not in the log before its commit, so a trim inside a batch trims
        // less than a separate one.
        commands.retain(|command| !matches!(command, Command::TrimLog(_)));
        Operation::Batch { commands, order: Order::Strict }
    }

    /// Cancels a task, deletes it, and creates another one with its id, in one batch.
    fn turnover(&mut self, live: &Live) -> Operation {
        let task = live.key(&mut self.random, |_| true);
        let mut new = NewTask::new(task.id.clone(), "again");
        new.payload = self.random.percent(70).then(|| Payload::json("\"again\""));
        let create = Create { tenant: task.tenant.clone(), tasks: vec![new] };
        let commands: Vec<Command> = vec![
            Cancel { task: task.clone(), reason: "for another".into() }.into(),
            DeleteTask { task }.into(),
            create.into(),
        ];
        Operation::Batch { commands, order: Order::Strict }
    }

    /// Grants a task that the worker then cannot claim: its lane is paused, disabled or full.
    fn unclaimable_grant(&mut self, live: &Live) -> Operation {
        let Some(task) = live.task(&mut self.random, |task| task.lifecycle.readiness().is_some())
        else {
            return single(self.command(live));
        };
        let commands = workers::unclaimable_grant(&mut self.random, task);
        Operation::Batch { commands, order: Order::Strict }
    }
}

/// An undecodable task, at the head of a queue and due.
fn unreadable(now: Timestamp) -> Row {
    let spot = TaskSpot::ready(UNREADABLE, -2_000_000, START.micros());
    TaskSpot { due_at: Some(START.micros()), ..spot }.row(now.micros())
}

fn single(command: Command) -> Operation {
    Operation::Batch { commands: vec![command], order: Order::Strict }
}

/// The maximum number of routes in one lane.
fn crowd() -> Command {
    let task = |n| routed(&format!("crowd-{n}"), &format!("tag-{n}"));
    let tasks = (0..windlass_core::limits::ROUTES_PER_LANE).map(task).collect();
    Create { tenant: Tenant::default(), tasks }.into()
}

fn one_too_many() -> Command {
    Create::one(routed("one-too-many", "another-tag")).into()
}

fn routed(id: &str, tag: &str) -> NewTask {
    NewTask { lane: "crowd".into(), tag: Some(tag.to_owned()), ..NewTask::new(id, "k") }
}
