//! Sessions stay with a worker, and move when it is idle or has stopped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_core::command::{Create, NewTask};
use windlass_core::{LimitKey, Tenant};
use windlass_worker::{Context, Worker};

use crate::stage::{EVER, Stage};

/// The worker that ran each task, in the order in which they ran.
type Ran = Arc<Mutex<Vec<(String, &'static str)>>>;

fn worker(stage: &Stage, name: &'static str, ran: &Ran) -> Worker {
    let ran = ran.clone();
    let worker = Worker::new(stage.engine.clone(), name).concurrency(3).sessions();
    worker.handler("k", move |context: Context, (): ()| {
        let ran = ran.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            ran.lock().unwrap().push((context.id().to_string(), name));
            Ok(())
        }
    })
}

async fn create(stage: &Stage, session: usize, number: usize) -> String {
    let id = format!("{session}-{number:02}");
    let limit_key = Some(LimitKey::Session(format!("s{session}")));
    let new = NewTask { limit_key, ..NewTask::new(id.as_str(), "k") };
    let tasks = vec![new];
    stage.other.submit(Create { tenant: Tenant::default(), tasks }).await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_session_run_at_one_worker_in_order() {
    let stage = Stage::new().await;
    let ran: Ran = Arc::default();
    let workers = ["v", "w"].map(|name| worker(&stage, name, &ran).start().unwrap());
    let mut ids = Vec::new();
    for number in 0..12 {
        for session in 0..4 {
            ids.push(create(&stage, session, number).await);
        }
    }
    for id in &ids {
        stage.until(id, "completed").await;
    }
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for (id, worker) in ran.lock().unwrap().iter() {
        let session = id.split('-').next().unwrap().to_owned();
        assert_eq!(*owners.entry(session.clone()).or_insert(worker), *worker, "{id}");
        let before = last.insert(session, id.clone());
        assert!(before.as_ref() < Some(id), "{id} after {before:?}");
    }
    assert_eq!(owners.len(), 4);
    for worker in workers {
        worker.drain(EVER).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_moves_when_its_worker_has_stopped() {
    let stage = Stage::new().await;
    let ran: Ran = Arc::default();
    let first = worker(&stage, "v", &ran).session_idle(Duration::from_secs(10)).start().unwrap();
    let id = create(&stage, 0, 0).await;
    stage.until(&id, "completed").await;
    first.drain(EVER).await;
    let second = worker(&stage, "w", &ran).start().unwrap();
    let id = create(&stage, 0, 1).await;
    stage.until(&id, "completed").await;
    let at: Vec<&str> = ran.lock().unwrap().iter().map(|(_, worker)| *worker).collect();
    assert_eq!(at, ["v", "w"]);
    second.drain(EVER).await;
}

#[tokio::test(start_paused = true)]
async fn setting_capabilities_does_not_disable_sessions() {
    let stage = Stage::new().await;
    let ran: Ran = Arc::default();
    let running = worker(&stage, "v", &ran).capabilities(["gpu"]).start().unwrap();
    let id = create(&stage, 0, 0).await;
    stage.until(&id, "completed").await;
    running.drain(EVER).await;
}
