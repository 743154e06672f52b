//! Parents and children on several nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::command::{Claim, Complete, Create, NewTask, WaitChildren};
use windlass_core::{Fence, LaneName, Outcome, PublicState, Settled, Tenant};
use windlass_engine::{Config, Engine};
use windlass_store::{Store, StoreError};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_test::postgres::Server;

use crate::stage::{engine, key, must, open, prepare};

const ROUNDS: usize = 1_000;

/// A leased parent and its two leased children.
struct Family {
    parent: Fence,
    children: [Fence; 2],
}

fn child(id: String, parent: &str) -> NewTask {
    NewTask { parent: Some(parent.into()), lane: "children".into(), ..NewTask::new(id, "k") }
}

async fn hold(engine: &Engine, lane: &str) -> BTreeMap<String, Fence> {
    let lanes = vec![LaneName::new(lane)];
    let mut held = BTreeMap::new();
    loop {
        let claim =
            Claim { lanes: lanes.clone(), limit: 500, lease_ms: 600_000, ..Claim::new("w") };
        let claimed = engine.claim(claim, Duration::ZERO).await.unwrap();
        if claimed.is_empty() {
            return held;
        }
        let fences = claimed.iter().map(|claimed| claimed.task.fence());
        held.extend(fences.map(|fence| (fence.task.id.to_string(), fence)));
    }
}

async fn families(engine: &Engine, count: usize) -> Vec<Family> {
    let names: Vec<String> = (0..count).map(|n| format!("p{n:04}")).collect();
    for page in names.chunks(300) {
        let family = |name: &String| {
            let parent = NewTask { lane: "parents".into(), ..NewTask::new(name.as_str(), "k") };
            [parent, child(format!("{name}/a"), name), child(format!("{name}/b"), name)]
        };
        let tasks = page.iter().flat_map(family).collect();
        engine.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    }
    let (mut parents, mut children) =
        (hold(engine, "parents").await, hold(engine, "children").await);
    let take = |held: &mut BTreeMap<String, Fence>, id: String| held.remove(&id).unwrap();
    let family = |name: String| Family {
        children: ["a", "b"].map(|child| take(&mut children, format!("{name}/{child}"))),
        parent: take(&mut parents, name),
    };
    names.into_iter().map(family).collect()
}

async fn complete(engine: &Engine, fence: Fence) {
    let settled = engine.submit(Complete { fence, result: None }).await.unwrap();
    assert_eq!(settled, Outcome::Settled(Settled::Completed));
}

/// Whether the parent had to wait.
async fn wait(engine: &Engine, fence: Fence) -> bool {
    match engine.submit(WaitChildren { fence }).await.unwrap() {
        Outcome::Settled(Settled::WaitingChildren) => true,
        Outcome::ChildrenDone(_) => false,
        other => panic!("{other:?}"),
    }
}

/// How often each task was resumed.
async fn resumed(store: &dyn Store) -> BTreeMap<String, usize> {
    let (mut seq, mut counts) = (0, BTreeMap::new());
    loop {
        let page = store.events(seq, 1_000).await.unwrap();
        let Some(last) = page.last() else { return counts };
        seq = last.seq;
        for event in page.iter().filter(|event| event.name == "resumed") {
            *counts.entry(event.task.as_ref().unwrap().to_string()).or_default() += 1;
        }
    }
}

/// A store without locks on contended records, which relies on the optimistic checks.
async fn open_optimistic(server: &Server) -> PostgresStore {
    let options = Options { optimistic: true, ..Options::default() };
    PostgresStore::open_with(server.url().parse().unwrap(), options).await.unwrap()
}

/// Two nodes concurrently complete the last two children of a parent, which waits or is about to:
/// it is always woken exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_two_children_wake_their_parent_once() {
    let server = Server::start();
    let (one, two) = (engine(&server).await, engine(&server).await);
    wake_each_once(&server, one, two, ROUNDS).await;
}

/// The same without locks, with only the checks at the commit.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_two_children_wake_their_parent_once_without_locks() {
    let server = Server::start();
    let start =
        async || Engine::with_store(open_optimistic(&server).await, Config::default()).await;
    let (one, two) = (start().await.unwrap(), start().await.unwrap());
    wake_each_once(&server, one, two, ROUNDS / 4).await;
}

/// A batch that completes the last child read the parent as active; at its commit the parent waits.
#[tokio::test]
async fn a_parent_that_starts_to_wait_concurrently_is_not_missed() {
    let server = Server::start();
    let (one, two) = (open_optimistic(&server).await, open_optimistic(&server).await);
    let tasks = vec![NewTask::new("p", "k"), child("c".into(), "p")];
    must(&one, Create { tenant: Tenant::default(), tasks }).await;
    let lanes = vec!["default".into(), "children".into()];
    let claimed = must(&one, Claim { lanes, limit: 2, ..Claim::new("w") }).await;
    let Outcome::Claimed(tasks) = claimed else { panic!("{claimed:?}") };
    let fence = |id: &str| tasks.iter().find(|task| task.id.as_str() == id).unwrap().fence();
    let complete = Complete { fence: fence("c"), result: None };
    let last = prepare(&one, complete.clone()).await;
    assert!(last.outcome.is_ok());
    let waits = must(&two, WaitChildren { fence: fence("p") }).await;
    assert_eq!(waits, Outcome::Settled(Settled::WaitingChildren));
    assert!(matches!(last.commit().await, Err(StoreError::Conflict)));
    must(&one, complete).await;
    assert_eq!(server.sql("SELECT state FROM windlass.task WHERE id = 'p'"), "resumable");
}

async fn wake_each_once(server: &Server, one: Engine, two: Engine, rounds: usize) {
    let mut waited = 0;
    let mut expected = BTreeMap::new();
    for (round, Family { parent, children }) in families(&one, rounds).await.into_iter().enumerate()
    {
        let name = parent.task.id.to_string();
        let [first, second] = children;
        let (node, other) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let parked = if round % 4 < 2 {
            let parked = wait(node, parent).await;
            tokio::join!(complete(&one, first), complete(&two, second));
            parked
        } else {
            let all = (wait(node, parent), complete(other, first), complete(node, second));
            tokio::join!(all.0, all.1, all.2).0
        };
        let task = one.task(&key(&name)).await.unwrap().unwrap();
        let state = if parked { PublicState::Resumable } else { PublicState::Active };
        assert_eq!(task.lifecycle.public(), state, "{name} in round {round}");
        if parked {
            waited += 1;
            expected.insert(name, 1);
        }
    }
    assert!(waited >= rounds / 2, "{waited} waited");
    assert_eq!(resumed(&open(server).await).await, expected);
    eprintln!("{waited} of {rounds} parents waited, and each was woken once");
}

/// One node creates the first child of a task while another completes the task: no child is created
/// under an ended parent, and no child is missing from its parent's counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_ends_while_a_child_is_created_counts_it() {
    let server = Server::start();
    let (one, two) = (engine(&server).await, engine(&server).await);
    let mut made = 0;
    for n in 0..200 {
        let name = format!("p{n}");
        let new = NewTask { lane: "parents".into(), ..NewTask::new(name.as_str(), "k") };
        one.submit(Create::one(new)).await.unwrap();
        let fence = hold(&one, "parents").await.remove(&name).unwrap();
        let late = two.submit(Create::one(child(format!("{name}/a"), &name)));
        let (late, ()) = tokio::join!(late, complete(&one, fence));
        let counts = two.child_counts(&key(&name)).await.unwrap();
        match late {
            Ok(_) => {
                made += 1;
                assert_eq!(counts.open, 1, "{name}");
            }
            Err(rejected) => {
                assert_eq!(rejected.code(), "parent_terminal", "{name}");
                assert_eq!(counts.total(), 0, "{name}");
            }
        }
    }
    eprintln!("{made} of 200 children were created in time");
}
