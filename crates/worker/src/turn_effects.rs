use std::sync::Arc;

use windlass_core::{EffectOwner, Fence};
use windlass_engine::{EffectCall, Engine};

use crate::workflow::Calls;

/// External calls under the lease of a turn.
pub(crate) struct TurnCalls {
    engine: Engine,
    fence: Fence,
}

impl TurnCalls {
    pub(crate) fn lend(engine: &Engine, fence: Fence) -> Arc<dyn Calls> {
        Arc::new(Self { engine: engine.clone(), fence })
    }
}

impl Calls for TurnCalls {
    fn effect(&self, provider: &str, name: &str) -> EffectCall {
        self.engine.effect(EffectOwner::Task(self.fence.clone()), provider).name(name)
    }
}
