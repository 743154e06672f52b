use crate::admission::Admission;
use crate::world::World;

/// Forgets a key whose window is over.
pub(super) fn sweep(world: &mut World, admission: &Admission) {
    world.remove(&Admission::key_of(&admission.tenant, &admission.scope, &admission.key));
}
