//! Faults around the runtime of duroxide that must not affect its programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::providers::{Provider, ProviderAdmin as _};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{
    ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus,
};
use windlass_core::command::RequestCancel;
use windlass_core::{TaskKey, Tenant};
use windlass_duroxide::WindlassProvider;
use windlass_store_test::postgres::Server;

const SOON: Duration = Duration::from_secs(60);

type Outcome = Result<String, String>;

async fn open(folder: &tempfile::TempDir) -> Arc<WindlassProvider> {
    let url = format!("sqlite://{}", folder.path().join("app.db").display());
    Arc::new(WindlassProvider::open(&url).await.expect("the store is created"))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory is created")
}

async fn start(
    provider: &Arc<WindlassProvider>,
    activities: ActivityRegistry,
    orchestrations: OrchestrationRegistry,
) -> (Client, Arc<Runtime>) {
    let store: Arc<dyn Provider> = provider.clone();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    (Client::new(store), runtime)
}

async fn end(provider: &WindlassProvider, runtime: &Arc<Runtime>) {
    runtime.clone().shutdown(None).await;
    provider.engine().shutdown().await.expect("the engine stops");
}

fn echo() -> ActivityRegistry {
    let echo = |_: ActivityContext, text: String| async move { Ok(text) };
    ActivityRegistry::builder().register("echo", echo).build()
}

fn completed(status: OrchestrationStatus) -> String {
    match status {
        OrchestrationStatus::Completed { output, .. } => output,
        other => panic!("{}", format!("{other:?}").chars().take(500).collect::<String>()),
    }
}

fn failed(status: &OrchestrationStatus) -> String {
    match status {
        OrchestrationStatus::Failed { details, .. } => format!("{details:?}"),
        other => panic!("{}", format!("{other:?}").chars().take(500).collect::<String>()),
    }
}

/// The request of `windlass workflow cancel`, before the first turn and after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_cancels_an_orchestration() {
    let folder = folder();
    let provider = open(&folder).await;
    let key = |id: &str| TaskKey::new(&Tenant::new("duroxide"), &format!("i/{id}").into());
    let cancel = async |id: &str| {
        let cancel = RequestCancel { task: key(id), reason: "enough".into() };
        provider.engine().submit(cancel).await.expect("the instance exists");
    };
    let before = Client::new(provider.clone() as Arc<dyn Provider>);
    before.start_orchestration("early", "waits", "").await.expect("it starts");
    cancel("early").await;
    cancel("early").await;
    let waits =
        |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) };
    let orchestrations = OrchestrationRegistry::builder().register("waits", waits).build();
    let (client, runtime) = start(&provider, echo(), orchestrations).await;
    client.start_orchestration("late", "waits", "").await.expect("it starts");
    let runs = async {
        loop {
            let task = provider.engine().task(&key("late")).await.expect("the task is readable");
            if task.and_then(|task| task.workflow.clone()).is_some_and(|known| known.turns > 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, runs).await.expect("it runs");
    cancel("late").await;
    for id in ["early", "late"] {
        let status = client.wait_for_orchestration(id, SOON).await.expect("it ends");
        assert!(failed(&status).contains("enough"), "{id}: {status:?}");
    }
    end(&provider, &runtime).await;
}

/// More messages arrive than fit into one turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_delivered_in_parts() {
    let folder = folder();
    let provider = open(&folder).await;
    let before = Client::new(provider.clone() as Arc<dyn Provider>);
    before.start_orchestration("d", "drains", "8").await.expect("it starts");
    for _ in 0..8 {
        before.enqueue_event("d", "q", "x".repeat(2_000_000)).await.expect("it is sent");
    }
    let drains = |ctx: OrchestrationContext, count: String| async move {
        let mut bytes = 0;
        for _ in 0..count.parse::<u32>().expect("a number") {
            bytes += ctx.dequeue_event("q").await.len();
        }
        Ok(bytes.to_string())
    };
    let orchestrations = OrchestrationRegistry::builder().register("drains", drains).build();
    let (client, runtime) = start(&provider, echo(), orchestrations).await;
    let status = client.wait_for_orchestration("d", SOON).await.expect("it ends");
    assert_eq!(completed(status), "16000000");
    end(&provider, &runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_cannot_be_stored_fails_its_activity_once() {
    let folder = folder();
    let provider = open(&folder).await;
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let huge = move |_: ActivityContext, _: String| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { Ok("x".repeat(5 * 1_024 * 1_024)) }
    };
    let activities = ActivityRegistry::builder().register("huge", huge).build();
    let asks = |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("huge", "").await.map(|text| text.len().to_string())
    };
    let orchestrations = OrchestrationRegistry::builder().register("asks", asks).build();
    let (client, runtime) = start(&provider, activities, orchestrations).await;
    client.start_orchestration("h", "asks", "").await.expect("it starts");
    let status = client.wait_for_orchestration("h", SOON).await.expect("it ends");
    assert!(failed(&status).contains("its result cannot be stored"), "{status:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    end(&provider, &runtime).await;
}

/// An orchestration that exceeds a limit fails, and its parent is notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_is_notified_of_a_child_that_exceeds_a_limit() {
    let folder = folder();
    let provider = open(&folder).await;
    let huge = |_: OrchestrationContext, _: String| async move {
        Outcome::Ok("x".repeat(5 * 1_024 * 1_024))
    };
    let wide = |ctx: OrchestrationContext, _: String| async move {
        let each = (0..1_500).map(|_| ctx.schedule_activity("echo", "x"));
        Outcome::Ok(format!("{}", ctx.join(each.collect()).await.len()))
    };
    let parent = |ctx: OrchestrationContext, child: String| async move {
        ctx.schedule_sub_orchestration(child, "").await.map(|text| text.len().to_string())
    };
    let orchestrations = OrchestrationRegistry::builder().register("huge", huge);
    let orchestrations = orchestrations.register("wide", wide).register("parent", parent).build();
    let (client, runtime) = start(&provider, echo(), orchestrations).await;
    for child in ["huge", "wide"] {
        client.start_orchestration(child, "parent", child).await.expect("it starts");
        let status = client.wait_for_orchestration(child, SOON).await.expect("it ends");
        assert!(failed(&status).contains(" is outside "), "{child}: {status:?}");
    }
    end(&provider, &runtime).await;
}

/// Arbitrary text, the maximum number and length of keys, and cleared keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_carried_over_to_the_next_execution() {
    let folder = folder();
    let provider = open(&folder).await;
    let keeps = |ctx: OrchestrationContext, round: String| async move {
        let round: u32 = round.parse().expect("a number");
        for number in 0..100 {
            ctx.set_kv_value(format!("{number:03}{}", "k".repeat(240)), "v");
        }
        match round {
            0 => {
                ctx.set_kv_value("odd", "a\0b\u{1}");
                ctx.set_kv_value("old", "old");
            }
            1 => {
                ctx.clear_kv_value("old");
                for number in 0..1_200 {
                    ctx.set_kv_value("passing", number.to_string());
                    ctx.clear_kv_value("passing");
                }
            }
            _ => {
                let (odd, old) = (ctx.get_kv_value("odd"), ctx.get_kv_value("old"));
                return Outcome::Ok(format!("{odd:?} {old:?}"));
            }
        }
        ctx.schedule_activity("echo", "on").await?;
        ctx.continue_as_new((round + 1).to_string()).await
    };
    let orchestrations = OrchestrationRegistry::builder().register("keeps", keeps).build();
    let (client, runtime) = start(&provider, echo(), orchestrations).await;
    client.start_orchestration("v", "keeps", "0").await.expect("it starts");
    let status = client.wait_for_orchestration("v", SOON).await.expect("it ends");
    assert_eq!(completed(status), r#"Some("a\0b\u{1}") None"#);
    let odd = client.get_kv_value("v", "odd").await.expect("the value is readable");
    assert_eq!(odd.as_deref(), Some("a\0b\u{1}"));
    end(&provider, &runtime).await;
}

/// Unserved tags do not block other activities, however many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unserved_tags_do_not_block_other_activities() {
    let folder = folder();
    let provider = open(&folder).await;
    let tagged = |ctx: OrchestrationContext, count: String| async move {
        let count: u32 = count.parse().expect("a number");
        let each = |number| ctx.schedule_activity("echo", "x").with_tag(format!("user-{number}"));
        let ended = ctx.join((0..count).map(each).collect()).await;
        Outcome::Ok(format!("{}", ended.len()))
    };
    let plain = |ctx: OrchestrationContext, text: String| async move {
        ctx.schedule_activity("echo", text).await
    };
    let orchestrations = OrchestrationRegistry::builder().register("tagged", tagged);
    let orchestrations = orchestrations.register("plain", plain).build();
    let (client, runtime) = start(&provider, echo(), orchestrations).await;
    client.start_orchestration("t", "tagged", "1000").await.expect("it starts");
    let wait = async {
        while provider.get_queue_depths().await.expect("readable").worker_queue < 1_000 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, wait).await.expect("all of them wait");
    client.start_orchestration("p", "plain", "goes").await.expect("it starts");
    let status = client.wait_for_orchestration("p", SOON).await.expect("it ends");
    assert_eq!(completed(status), "goes");
    end(&provider, &runtime).await;
}

/// A short outage of the store fails no orchestration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_orchestrations_complete_despite_server_restarts() {
    const COUNT: u32 = 40;
    let server = Server::start();
    let provider = WindlassProvider::open(&server.url()).await.expect("the server answers");
    let provider = Arc::new(provider);
    let steps = |ctx: OrchestrationContext, text: String| async move {
        for _ in 0..20 {
            ctx.schedule_activity("echo", text.clone()).await?;
        }
        Outcome::Ok(text)
    };
    let orchestrations = OrchestrationRegistry::builder().register("steps", steps).build();
    let options = RuntimeOptions {
        orchestration_concurrency: 16,
        worker_concurrency: 16,
        ..RuntimeOptions::default()
    };
    let store: Arc<dyn Provider> = provider.clone();
    let runtime = Runtime::start_with_options(store.clone(), echo(), orchestrations, options).await;
    let client = Client::new(store);
    for number in 0..COUNT {
        let started = client.start_orchestration(format!("s{number}"), "steps", "x").await;
        started.expect("it starts");
    }
    for _ in 0..2 {
        tokio::task::block_in_place(|| server.control("restart"));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    for number in 0..COUNT {
        let status = client.wait_for_orchestration(&format!("s{number}"), 2 * SOON).await;
        assert_eq!(completed(status.expect("it ends")), "x");
    }
    end(&provider, &runtime).await;
}

/// How long after `cancel_instance` a running activity is notified, with this lock timeout.
async fn heard_after(worker_lock_timeout: Duration) -> Duration {
    let folder = folder();
    let provider = open(&folder).await;
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let (hears, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let waits = move |ctx: ActivityContext, _: String| {
        let (begins, hears) = (begins.clone(), hears.clone());
        async move {
            begins.send(()).expect("the test waits for it");
            ctx.cancelled().await;
            hears.send(()).expect("the test waits for it");
            Ok(String::new())
        }
    };
    let activities = ActivityRegistry::builder().register("waits", waits).build();
    let runs = |ctx: OrchestrationContext, _: String| async move {
        ctx.schedule_activity("waits", "").await
    };
    let orchestrations = OrchestrationRegistry::builder().register("runs", runs).build();
    let store: Arc<dyn Provider> = provider.clone();
    let options = RuntimeOptions { worker_lock_timeout, ..RuntimeOptions::default() };
    let runtime =
        Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Client::new(store);
    client.start_orchestration("r", "runs", "").await.expect("it starts");
    tokio::time::timeout(SOON, begun.recv()).await.expect("it begins");
    let asked = std::time::Instant::now();
    client.cancel_instance("r", "enough").await.expect("the cancellation is accepted");
    tokio::time::timeout(SOON, heard.recv()).await.expect("the activity is notified");
    let after = asked.elapsed();
    end(&provider, &runtime).await;
    after
}

/// duroxide checks at each lock renewal; a provider cannot notify it earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_activity_is_notified_of_a_cancel_at_the_next_renewal() {
    let after = heard_after(Duration::from_secs(2)).await;
    println!("notified after {after:?}");
    assert!(after < Duration::from_secs(10), "{after:?}");
}
