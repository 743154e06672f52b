use std::time::Duration;

use windlass_core::command::{Claim, Complete};
use windlass_core::{Command, Outcome};
use windlass_engine::Engine;

use crate::external_runtime::client::{TurnPlan, receive, turn, work};
use crate::watch::Watch;

const AGAIN: Duration = Duration::from_secs(1);
const LEASE_MS: u64 = 60_000;
/// Short enough that no task waits long for the lock.
const LOCK_MS: u64 = 1_000;
const MOST: u32 = 50;

/// Consumes every message, and completes every activity.
pub(crate) async fn finish(engine: Engine, watch: Watch) {
    for round in 0_u64.. {
        let name = format!("finisher-{round}");
        let turns = claimed(&engine, &watch, receive(&name, MOST, LEASE_MS)).await;
        let plan = TurnPlan { whole: true, works: 0, to: None, next: false };
        let turns =
            turns.iter().filter_map(|flow| turn(flow, plan, &format!("{name}/{}", flow.id)));
        let works = claimed(&engine, &watch, work("finisher", MOST, LEASE_MS, LOCK_MS)).await;
        let done = works.iter().map(|task| Complete { fence: task.fence(), result: None });
        for command in turns.map(Command::from).chain(done.map(Command::from)) {
            drop(ask(&engine, &watch, command).await);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn claimed(
    engine: &Engine,
    watch: &Watch,
    claim: Claim,
) -> Vec<std::sync::Arc<windlass_core::Task>> {
    match ask(engine, watch, claim.into()).await {
        Some(Outcome::Claimed(tasks)) => tasks,
        // A failed claim is repeated in the next round.
        _ => Vec::new(),
    }
}

async fn ask(engine: &Engine, watch: &Watch, command: Command) -> Option<Outcome> {
    watch.see().model.external_runtime.submitted(&command);
    let answer = engine.submit(command.clone()).await;
    let mut seen = watch.see();
    let judged = seen.model.external_runtime.answered(&command, &answer);
    seen.judge(judged);
    answer.ok()
}
