use std::time::Duration;

use windlass_core::command::{LimitLane, SetLaneState};
use windlass_core::{Command, LaneState, Tenant};
use windlass_engine::{Engine, Error};

use crate::driver::Driver;
use crate::script::LANES;
use crate::violation::{Breach, Kind, breach};

/// Longer than everything that a script can make wait.
const ENOUGH: Duration = Duration::from_secs(240);
const FIRST_STEP: Duration = Duration::from_millis(10);
const LONGEST_STEP: Duration = Duration::from_millis(500);
const TURNS: u32 = 24;

impl Driver<'_> {
    /// Ends everything that goes wrong, and lets time go by until nothing moves: then every task
    /// must have ended, every client been told, and every reader have read it all.
    pub(crate) fn heal(&mut self) {
        self.ground.watch.see().healed = true;
        for node in &mut self.nodes {
            if let Some(faults) = node.faults() {
                faults.recover();
            }
            node.resume();
            if !node.is_up() {
                node.crash(&self.ground);
                node.boot(&self.ground);
            }
            node.boot_finisher(&self.ground);
        }
        let engine = self.nodes[0].engine().expect("it is up").clone();
        let opening = self.nodes[0].spawn(open_lanes(engine));
        let (mut step, mut spent) = (FIRST_STEP, Duration::ZERO);
        while !self.is_broken() {
            self.round(TURNS);
            let open = opening.as_ref().is_some_and(|opening| !opening.is_finished());
            if !open && self.unfinished().is_ok() {
                break;
            }
            if spent >= ENOUGH {
                let found = if open { breach(Kind::Engine, "lanes") } else { self.unfinished() };
                self.ground.watch.see().judge(found);
            }
            self.pass(step);
            spent += step;
            step = (step * 3 / 2).min(LONGEST_STEP);
        }
        if !self.is_broken() {
            let mut seen = self.ground.watch.see();
            let judged = seen.model.compare_all(&self.ground.memory);
            seen.judge(judged);
        }
    }

    fn unfinished(&self) -> Result<(), Breach> {
        let seen = self.ground.watch.see();
        if let Some((id, facts)) = seen.model.present().find(|(_, facts)| !facts.ended()) {
            return breach(Kind::Stuck, format!("{id} is {facts:?}"));
        }
        let (read, logged) = (seen.shown.len(), seen.log.len());
        if read < logged {
            return breach(Kind::Reader, format!("{read} of {logged} entries were shown"));
        }
        drop(seen);
        match self.open_calls().first() {
            Some(&at) => {
                let call = &self.calls[at];
                breach(Kind::Engine, format!("call {at} has no answer: {:?}", call.question))
            }
            None => Ok(()),
        }
    }
}

/// Opens every lane, however often it takes.
async fn open_lanes(engine: Engine) {
    for name in LANES {
        let (tenant, lane, state) = (Tenant::default(), name.into(), LaneState::Active);
        let resume = SetLaneState { tenant: tenant.clone(), lane, state };
        let lift = LimitLane { tenant, lane: name.into(), limit: None };
        for command in [Command::from(resume), lift.into()] {
            while !matches!(engine.submit(command.clone()).await, Ok(_) | Err(Error::Rejected(_))) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
