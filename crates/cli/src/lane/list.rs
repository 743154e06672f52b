use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use windlass::{Engine, Error, Lane, LaneName, PublicState, TaskFilter, Tenant};

use crate::error::CliError;
use crate::output::{say, say_json, say_table};
use crate::target::Target;
use crate::task::Pages;

const PAGE: usize = 1_000;

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    target: Target,
}

impl List {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let tenant = &self.target.tenant;
        let lanes = all(&engine, tenant).await?;
        let ready = engine.count_ready(tenant).await?;
        let running = running(&engine, tenant).await?;
        let of = |counts: &BTreeMap<LaneName, u64>, lane: &Lane| {
            counts.get(&lane.name).copied().unwrap_or(0)
        };
        let limit = |lane: &Lane| lane.concurrency.and_then(|concurrency| concurrency.limit);
        if self.target.json {
            for lane in &lanes {
                say_json(&json!({
                    "lane": lane.name,
                    "state": lane.state,
                    "ready": of(&ready, lane),
                    "running": of(&running, lane),
                    "limit": limit(lane),
                    "routes": lane.ready_routes,
                }));
            }
        } else if lanes.is_empty() {
            say("There is no lane: the first task of a lane creates it.");
        } else {
            let rows = lanes.iter().map(|lane| {
                let running = of(&running, lane);
                let running = match limit(lane) {
                    Some(limit) => format!("{running} of {limit}"),
                    None => running.to_string(),
                };
                let (name, state) = (lane.name.to_string(), lane.state.as_str().to_owned());
                [name, state, of(&ready, lane).to_string(), running, lane.ready_routes.to_string()]
            });
            say_table(["lane", "state", "ready", "running", "routes"], rows.collect());
        }
        Ok(engine.shutdown().await?)
    }
}

async fn all(engine: &Engine, tenant: &Tenant) -> Result<Vec<Arc<Lane>>, Error> {
    let mut lanes: Vec<Arc<Lane>> = Vec::new();
    loop {
        let after = lanes.last().map(|lane| &lane.name);
        let page = engine.lanes(tenant, after, PAGE).await?;
        if page.is_empty() {
            return Ok(lanes);
        }
        lanes.extend(page);
    }
}

/// Counts the leased tasks of each lane, by listing them: workers hold only so many.
async fn running(engine: &Engine, tenant: &Tenant) -> Result<BTreeMap<LaneName, u64>, Error> {
    let filter = TaskFilter { state: Some(PublicState::Active), ..TaskFilter::default() };
    let mut pages = Pages::new(engine, tenant, filter, None);
    let mut counts = BTreeMap::new();
    loop {
        let page = pages.next(PAGE).await?;
        if page.is_empty() {
            return Ok(counts);
        }
        for task in page {
            *counts.entry(task.lane.clone()).or_insert(0) += 1;
        }
    }
}
