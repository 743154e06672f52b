use crate::command::{Outcome, Transition};
use crate::limits;
use crate::name::NodeId;
use crate::node::Node;
use crate::world::World;

/// Deregisters a node that is about to stop. Does nothing if it is not registered.
#[derive(Clone, Debug)]
pub struct DeregisterNode {
    pub id: NodeId,
}

impl DeregisterNode {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::NODE_ID.check(self.id.as_str())?;
        let key = Node::key_of(&self.id);
        if world.get::<Node>(&key)?.is_some() {
            world.remove(&key);
        }
        Ok(Outcome::NodeDeregistered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_node;

    #[test]
    fn table() {
        check_node(
            "
            absent     |        | absent           | left      |
            registered |        | absent           | left      |
            registered | id=    | seen +0 up +2000 | ! invalid |
            registered | id=other | seen +0 up +2000 | left    |
            late       |        | absent           | left      |
            gone       |        | absent           | left      |
            left       |        | absent           | left      |
            lost       |        | absent           | left      |
            ",
            |args| DeregisterNode { id: args.text("id", "n").into() },
        );
    }
}
