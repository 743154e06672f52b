use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::command::{Outcome, Transition};
use crate::event::{Change, Event};
use crate::gate::{Gate, GateKey, GateKind, Rate};
use crate::lane::Lane;
use crate::limits;
use crate::name::{LaneName, Tenant};
use crate::primitive::{open_gate, reopen};
use crate::rejection::Rejection;
use crate::world::{Halt, World};

/// Sets how many tasks may run at once, and how many may start per time. Without either, what was
/// set is lifted: a key and a session go on with one at a time, a lane and a tenant without limit.
///
/// Narrower limits count from the next claim on; what runs goes on. The quota of a lane or a
/// tenant counts what is claimed from then on.
#[derive(Clone, Debug)]
pub struct SetQuota {
    pub tenant: Tenant,
    pub scope: QuotaScope,
    pub limit: Option<u32>,
    pub rate: Option<Rate>,
}

/// What a quota is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaScope {
    Lane(LaneName),
    Tenant,
    Key(String),
    Session(String),
}

impl QuotaScope {
    pub const fn kind(&self) -> GateKind {
        match self {
            QuotaScope::Lane(_) => GateKind::Lane,
            QuotaScope::Tenant => GateKind::Tenant,
            QuotaScope::Key(_) => GateKind::Key,
            QuotaScope::Session(_) => GateKind::Session,
        }
    }

    /// What it is called within its kind; a tenant has one.
    pub fn name(&self) -> &str {
        match self {
            QuotaScope::Lane(name) => name.as_str(),
            QuotaScope::Tenant => "",
            QuotaScope::Key(name) | QuotaScope::Session(name) => name,
        }
    }

    fn gate_key(&self) -> Option<GateKey> {
        match self {
            QuotaScope::Key(name) => Some(GateKey::Key(name.clone())),
            QuotaScope::Session(name) => Some(GateKey::Session(name.clone())),
            QuotaScope::Lane(_) | QuotaScope::Tenant => None,
        }
    }

    fn check(&self) -> Result<(), Rejection> {
        match self {
            QuotaScope::Lane(name) => limits::LANE.check(name.as_str()),
            QuotaScope::Tenant => Ok(()),
            QuotaScope::Key(_) | QuotaScope::Session(_) => {
                self.gate_key().map_or(Ok(()), |key| key.check())
            }
        }
    }
}

impl SetQuota {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        self.check()?;
        let (kind, name) = (self.scope.kind(), self.scope.name());
        let key = Gate::key_of(&self.tenant, kind, name);
        world.prefetch(key.clone());
        let lane = self.lane(world)?;
        let known = world.get::<Gate>(&key)?;
        let fresh = || Gate::new(&self.tenant, kind, name);
        let mut gate = known.map_or_else(fresh, |known| (*known).clone());
        let (limit, rate) = (gate.limit.filter(|_| gate.configured), gate.rate);
        if (limit, rate) == (self.limit, self.rate) {
            return Ok(Outcome::QuotaSet);
        }
        gate.set(self.limit, self.rate);
        let metered = gate.configured;
        if let Some(lane) = lane.filter(|lane| lane.metered != metered) {
            world.put::<Lane>(Lane { metered, ..lane });
        }
        self.tell(world);
        match self.scope.gate_key() {
            Some(key) => {
                world.put::<Gate>(gate);
                open_gate(world, &self.tenant, &key)?;
            }
            None => reopen(world, gate)?,
        }
        Ok(Outcome::QuotaSet)
    }

    fn check(&self) -> Result<(), Rejection> {
        limits::TENANT.check(self.tenant.as_str())?;
        self.scope.check()?;
        if let Some(limit) = self.limit {
            limits::QUOTA.check(limit)?;
        }
        if let Some(rate) = self.rate {
            limits::RATE_STARTS.check(rate.starts)?;
            limits::RATE_WINDOW_MS.check(rate.window_ms)?;
        }
        Ok(())
    }

    /// The lane that it is about, which must be there.
    fn lane(&self, world: &mut World) -> Result<Option<Lane>, Halt> {
        let QuotaScope::Lane(name) = &self.scope else { return Ok(None) };
        let lane = world.get::<Lane>(&Lane::key_of(&self.tenant, name))?;
        Ok(Some((*lane.ok_or(Rejection::LaneNotFound)?).clone()))
    }

    fn tell(&self, world: &mut World) {
        let (scope, limit, rate) = (self.scope.clone(), self.limit, self.rate);
        let lane = match &scope {
            QuotaScope::Lane(name) => name.clone(),
            QuotaScope::Tenant | QuotaScope::Key(_) | QuotaScope::Session(_) => LaneName::new(""),
        };
        let (at, tenant) = (world.now(), self.tenant.clone());
        let change = Change::QuotaSet { scope, limit, rate };
        world.emit(Event { at, tenant, lane, task: None, labels: BTreeMap::new(), change });
    }
}
