use crate::node::Node;
use crate::world::World;

/// Forgets a node that was not heard of for too long.
pub(super) fn sweep(world: &mut World, node: &Node) {
    world.remove(&Node::key_of(&node.id));
}
