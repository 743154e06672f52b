use std::sync::Arc;

use windlass_core::{EffectOwner, Fence};
use windlass_engine::{EffectCall, Engine};

use crate::workflow::EffectAccess;

/// External calls under the lease of a turn.
pub(crate) struct TurnEffects {
    engine: Engine,
    fence: Fence,
}

impl TurnEffects {
    pub(crate) fn access(engine: &Engine, fence: Fence) -> Arc<dyn EffectAccess> {
        Arc::new(Self { engine: engine.clone(), fence })
    }
}

impl EffectAccess for TurnEffects {
    fn effect(&self, provider: &str, name: &str) -> EffectCall {
        self.engine.effect(EffectOwner::Task(self.fence.clone()), provider).name(name)
    }
}
