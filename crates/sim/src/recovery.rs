use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::command::{LimitLane, Resume, SetLaneState};
use windlass_core::{Command, LaneState, TaskKey, Tenant};
use windlass_engine::Engine;

use crate::driver::{Driver, Unattended};
use crate::external_runtime::{ExternalRuntimeWriter, finish};
use crate::model::State;
use crate::node::Node;
use crate::requests::TERMS;
use crate::script::LANES;
use crate::violation::{Breach, Kind, breach};
use crate::watch::Watch;
use crate::workflow::{TENANT, message};

/// Longer than any wait in a script.
const ENOUGH: Duration = Duration::from_secs(240);
/// By then the children of a cancelled or expired task are cancelled, without faults.
const CASCADE_MS: u64 = 30_000;
const FIRST_STEP: Duration = Duration::from_millis(10);
const LONGEST_STEP: Duration = Duration::from_millis(500);
const OPEN_AGAIN: Duration = Duration::from_secs(1);
const TURNS: u32 = 24;
/// The number of steps in which all request records expire, and the rounds after each step.
const FORGET_STEPS: u32 = 8;
const ROUNDS_TO_SWEEP: u32 = 6;
const SLOW: Duration = Duration::from_secs(60);
/// How long an unattended lease may last beyond the next heartbeat: a slow node needs as long to
/// settle, or to have its heartbeat answered.
const UNATTENDED_MS: u64 = 15_000;
/// How many heartbeats of its worker an unattended lease may outlast.
const UNATTENDED_HEARTBEATS: u32 = 3;

impl Driver<'_> {
    /// Ends all faults, and advances the time until nothing changes: then every task must have
    /// ended, every client have its answer, and every log reader have read all events.
    pub(crate) fn recover(&mut self) {
        self.context.watch.see().recovered = true;
        for node in &mut self.nodes {
            if let Some(faults) = node.faults() {
                faults.calm();
            }
            node.disarm();
            node.resume();
            if !node.is_up() {
                node.crash(&self.context);
                node.boot(&self.context);
            }
            node.boot_finisher(&self.context);
        }
        let engine = self.nodes[0].engine().expect("the node is up").clone();
        self.nodes[0].spawn(open_lanes(engine.clone(), self.context.watch.clone()));
        self.nodes[0].spawn(resume_all(engine.clone(), self.context.watch.clone()));
        self.nodes[0].spawn(tell_workflows(engine.clone(), self.context.watch.clone()));
        if ExternalRuntimeWriter::has_any(self.script.seed) {
            self.nodes[0].spawn(finish(engine.clone(), self.context.watch.clone()));
        }
        self.settle(|driver| {
            let ended = driver.all_ended().and(driver.all_answered()).and(driver.all_stopped());
            let ended = ended.and(driver.context.watch.see().model.workflows.all_ended());
            ended.and(driver.context.watch.see().model.external_runtime.all_done())
        });
        self.forget_workflows(engine);
        self.forget();
        if !self.is_broken() {
            let mut seen = self.context.watch.see();
            let judged = seen.model.compare_all(&self.context.memory);
            seen.judge(judged);
        }
    }

    /// Judges the outcomes of workflows, and deletes them.
    fn forget_workflows(&mut self, engine: Engine) {
        if self.is_broken() || self.context.watch.see().model.workflows.is_empty() {
            return;
        }
        let judged = self.context.watch.see().model.workflows.check_outcomes();
        self.context.watch.see().judge(judged);
        self.nodes[0].spawn(delete_workflows(engine, self.context.watch.clone()));
        self.settle(|driver| {
            let workflows = &driver.context.watch.see().model.workflows;
            workflows.check_nothing_left(&driver.context.memory)
        });
    }

    /// Advances the time past the retention of requests, and lets the sweep delete them.
    fn forget(&mut self) {
        let retained = Duration::from_millis(TERMS.replay_ms + TERMS.tombstone_ms);
        for _ in 0..FORGET_STEPS {
            if self.is_broken() || self.has_forgotten().is_ok() {
                return;
            }
            self.pass(retained / 4);
            for _ in 0..ROUNDS_TO_SWEEP {
                self.round(TURNS);
                self.pass(LONGEST_STEP);
            }
        }
        // After such a jump every worker is suspect. The sweep and their heartbeats conflict
        // until all have sent one, so the last sweep needs time in small steps.
        self.settle(Self::has_forgotten);
    }

    fn has_forgotten(&self) -> Result<(), Breach> {
        self.context.watch.see().model.check_forgotten(&self.context.memory)
    }

    /// Advances the time until a condition holds; if that takes too long, it is a violation.
    fn settle(&mut self, is_settled: impl Fn(&Self) -> Result<(), Breach>) {
        let (mut step, mut spent) = (FIRST_STEP, Duration::ZERO);
        while !self.is_broken() {
            // Some nodes are so slow that their leases expire meanwhile.
            self.round(if spent < SLOW { TURNS } else { 8 * TURNS });
            let settled = is_settled(self);
            if settled.is_ok() {
                return;
            }
            if spent >= Duration::from_millis(CASCADE_MS) {
                let mut seen = self.context.watch.see();
                let judged = seen.model.check_doomed(CASCADE_MS);
                let judged = judged.and_then(|()| seen.model.check_workers());
                seen.judge(judged);
            }
            let attended = self.check_attended(spent);
            self.context.watch.see().judge(attended);
            if spent >= ENOUGH {
                self.context.watch.see().judge(settled);
            }
            self.pass(step);
            spent += step;
            step = (step * 3 / 2).min(LONGEST_STEP);
        }
    }

    fn all_ended(&self) -> Result<(), Breach> {
        let seen = self.context.watch.see();
        if let Some((id, facts)) = seen.model.present().find(|(_, facts)| !facts.ended()) {
            return breach(Kind::Stuck, format!("{id} is {facts:?}"));
        }
        let (read, logged) = (seen.shown.len(), seen.log.len());
        if read < logged {
            return breach(Kind::Reader, format!("{read} of {logged} log events were read"));
        }
        Ok(())
    }

    /// Checks that no lease of a live worker stays unattended: a worker that does not know of a
    /// lease has it ended by its next heartbeat. The duration of a settle, and the turns that an
    /// engine needs for a heartbeat, are not judged here.
    fn check_attended(&mut self, spent: Duration) -> Result<(), Breach> {
        let seen = self.context.watch.see();
        let lives = |node: &Node, worker: &str| node.employs(worker).is_some();
        let unattended = seen.model.leases_beyond(UNATTENDED_MS).filter(|(fenced, worker)| {
            !seen.running.contains(fenced) && self.nodes.iter().any(|node| lives(node, worker))
        });
        let mut still_unattended = BTreeMap::new();
        for (fenced, worker) in unattended {
            let every = self.nodes.iter().find_map(|node| node.employs(worker));
            let heartbeats = seen.model.heartbeats(worker);
            // The answer to a claim can be in flight on a slow node until it gets more turns.
            let is_slow = self.nodes.iter().any(|node| node.is_slow() && lives(node, worker));
            let since = if is_slow { spent.max(SLOW) } else { spent };
            let now = Unattended { since, heartbeats };
            let from = *self.unattended.get(&fenced).unwrap_or(&now);
            let most = every.unwrap_or_default() + Duration::from_millis(UNATTENDED_MS);
            if spent.saturating_sub(from.since) > most
                && heartbeats - from.heartbeats >= UNATTENDED_HEARTBEATS
            {
                let what = format!("{worker} holds {fenced:?} and runs no handler for it");
                return breach(Kind::Worker, what);
            }
            still_unattended.insert(fenced, from);
        }
        drop(seen);
        self.unattended = still_unattended;
        Ok(())
    }

    /// Checks that no handler runs after its task has ended.
    fn all_stopped(&self) -> Result<(), Breach> {
        match self.context.watch.see().running.first() {
            Some(fenced) => breach(Kind::Stuck, format!("the handler of {fenced:?} still runs")),
            None => Ok(()),
        }
    }

    fn all_answered(&self) -> Result<(), Breach> {
        match self.open_calls().first() {
            Some(&at) => {
                let call = &self.calls[at];
                breach(Kind::Engine, format!("call {at} has no answer: {:?}", call.request))
            }
            None => Ok(()),
        }
    }
}

/// Opens every lane repeatedly: a client that disconnected may have asked to close one.
async fn open_lanes(engine: Engine, watch: Watch) {
    loop {
        // A limit of zero would block tasks forever; other limits must work as they are.
        let shut = watch.see().model.lift_zero_quotas();
        drop(engine.submit_many(shut).await);
        for name in LANES {
            let (tenant, lane, state) = (Tenant::default(), name.into(), LaneState::Active);
            let resume = SetLaneState { tenant: tenant.clone(), lane, state };
            let lift = LimitLane { tenant, lane: name.into(), limit: None };
            // A failed command is repeated in the next round.
            drop(engine.submit_many(vec![Command::from(resume), lift.into()]).await);
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

/// Sends every workflow all messages that it may wait for, until it has them.
async fn tell_workflows(engine: Engine, watch: Watch) {
    let specs = watch.see().model.workflows.specs().to_vec();
    loop {
        for spec in &specs {
            let waits = spec.plan.waits();
            for nth in 0..waits.len() {
                // A failed send is repeated in the next round.
                drop(engine.submit(message(spec, &waits, nth)).await);
            }
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

async fn delete_workflows(engine: Engine, watch: Watch) {
    loop {
        let roots = watch.see().model.workflows.roots();
        for id in roots {
            let key = TaskKey::new(&Tenant::new(TENANT), &id);
            // A failed delete is repeated in the next round.
            drop(engine.delete_workflow(&key, false).await);
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

/// Resumes, as an operator, tasks that wait for a message that will not arrive. Tasks with a
/// timeout must end without that.
async fn resume_all(engine: Engine, watch: Watch) {
    loop {
        let mut commands: Vec<Command> = Vec::new();
        {
            let seen = watch.see();
            for (id, facts) in seen.model.present() {
                if matches!(&facts.state, State::Suspended(stay) if stay.timeout.is_none()) {
                    let task = TaskKey::new(&Tenant::default(), id);
                    commands.push(Resume { task, by: "recovery".into() }.into());
                }
            }
        }
        if !commands.is_empty() {
            commands.iter().for_each(|command| watch.see().model.submitted(command));
            drop(engine.submit_many(commands).await);
        }
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}
