use crate::command::{Outcome, Transition};
use crate::limits;
use crate::name::NodeId;
use crate::node::Node;
use crate::world::World;

/// More nodes than any deployment has: the scan of all nodes ends here.
const MAX_NODES: usize = 1_000;

/// Registers a node or renews its registration (heartbeat).
///
/// The response has the number of registered nodes and the highest format that all of them support.
/// It is a hint: it comes from a scan, so another node may join before the commit, and unregistered
/// nodes are not counted. No invariant may depend on it.
#[derive(Clone, Debug)]
pub struct HeartbeatNode {
    pub id: NodeId,
    pub name: String,
    pub pid: u32,
    pub version: String,
    pub format: i64,
    /// How long it has been running, as it reports.
    pub up_ms: u64,
    /// The heartbeat interval.
    pub heartbeat_interval_ms: u64,
}

impl HeartbeatNode {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::NODE_ID.check(self.id.as_str())?;
        limits::NODE_NAME.check(&self.name)?;
        limits::NODE_VERSION.check(&self.version)?;
        limits::HEARTBEAT_MS.check(self.heartbeat_interval_ms)?;
        let key = Node::key_of(&self.id);
        world.prefetch_scan(&Node::all(), MAX_NODES);
        let node = world.get::<Node>(&key)?;
        let nodes = world.scan::<Node>(&Node::all(), MAX_NODES)?;
        let others = nodes.iter().filter(|node| node.id != self.id);
        let (count, format) = others
            .fold((1, self.format), |(count, format), node| (count + 1, format.min(node.format)));
        let now = world.now();
        world.put::<Node>(Node {
            id: self.id.clone(),
            name: self.name.clone(),
            pid: self.pid,
            version: self.version.clone(),
            format: self.format,
            started_at: node.as_ref().map_or(now.minus_ms(self.up_ms), |node| node.started_at),
            seen_at: now,
            heartbeat_interval_ms: self.heartbeat_interval_ms,
            // 3.5 intervals: the third heartbeat may be in flight when it is due.
            due_at: now.plus_ms(self.heartbeat_interval_ms.saturating_mul(7) / 2),
        });
        Ok(Outcome::NodeRegistered { joined: node.is_none(), nodes: count, format })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{DeregisterNode, Sweep};
    use crate::testing::{Stage, beat, check_node};

    #[test]
    fn table() {
        check_node(
            "
            absent     |             | seen +0 up +2000  | joined 1 nodes format 2 |
            absent     | name=       | absent            | ! invalid               |
            absent     | name=tab    | absent            | ! invalid               |
            absent     | name=long   | absent            | ! invalid               |
            absent     | version=    | absent            | ! invalid               |
            absent     | id=         | absent            | ! invalid               |
            absent     | every=9     | absent            | ! invalid               |
            registered |             | seen +0 up +2000  | 1 nodes format 2        |
            registered | name=       | seen +0 up +2000  | ! invalid               |
            late       |             | seen +0 up +19499 | 1 nodes format 2        |
            gone       |             | seen +0 up +19500 | 1 nodes format 2        |
            left       |             | seen +0 up +2000  | joined 1 nodes format 2 |
            lost       |             | seen +0 up +2000  | joined 1 nodes format 2 |
            ",
            |args| {
                let mut beat = beat();
                beat.name = match args.text("name", "host").as_str() {
                    "tab" => "a\tb".into(),
                    "long" => "x".repeat(256),
                    name => name.into(),
                };
                beat.version = args.text("version", "1.0.0");
                beat.id = args.text("id", "n").into();
                beat.heartbeat_interval_ms = args.number("every", 5_000);
                beat
            },
        );
    }

    #[test]
    fn the_response_covers_all_nodes() {
        let mut stage = Stage::new();
        let node = |id: &str, format| HeartbeatNode { id: id.into(), format, ..beat() };
        let registered = |joined, nodes, format| Outcome::NodeRegistered { joined, nodes, format };
        assert_eq!(stage.must(node("a", 3)), registered(true, 1, 3));
        assert_eq!(stage.must(node("b", 2)), registered(true, 2, 2));
        assert_eq!(stage.must(node("a", 3)), registered(false, 2, 2));
        stage.must(DeregisterNode { id: "b".into() });
        assert_eq!(stage.must(node("a", 3)), registered(false, 1, 3));
    }

    #[test]
    fn a_node_is_deleted_after_three_missed_heartbeats() {
        let mut stage = Stage::new();
        stage.must(beat());
        stage.must(HeartbeatNode { id: "quiet".into(), ..beat() });
        let rows = |stage: &Stage| stage.tables.rows().count();
        for _ in 0..3 {
            stage.later(5_000);
            stage.must(beat());
            stage.must(Sweep::default());
        }
        stage.later(2_499);
        stage.must(Sweep::default());
        assert_eq!(rows(&stage), 2, "the third heartbeat may be in flight");
        stage.later(1);
        let next_due = Some(stage.now.plus_ms(15_000));
        assert_eq!(stage.must(Sweep::default()), Outcome::Swept { swept: 1, next_due });
        assert_eq!(rows(&stage), 1);
        let back = stage.must(HeartbeatNode { id: "quiet".into(), ..beat() });
        assert_eq!(back, Outcome::NodeRegistered { joined: true, nodes: 2, format: 2 });
    }
}
