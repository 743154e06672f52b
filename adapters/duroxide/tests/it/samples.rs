//! Sample programs for the runtime of duroxide.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Provider, ProviderAdmin as _};
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, Client, Either2, OrchestrationContext, OrchestrationRegistry,
    OrchestrationStatus,
};
use windlass_duroxide::WindlassProvider;

const SOON: Duration = Duration::from_secs(30);

/// A store with a runtime on it.
struct Stage {
    provider: Arc<WindlassProvider>,
    client: Client,
    runtime: Arc<Runtime>,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn start(orchestrations: OrchestrationRegistry) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let url = format!("sqlite://{}", folder.path().join("app.db").display());
        let provider = Arc::new(WindlassProvider::open(&url).await.expect("the store is created"));
        let upper = |_: ActivityContext, text: String| async move { Ok(text.to_uppercase()) };
        let reject = |_: ActivityContext, text: String| async move { Err(format!("no {text}")) };
        let activities = ActivityRegistry::builder().register("upper", upper);
        let activities = activities.register("reject", reject).build();
        let store: Arc<dyn Provider> = provider.clone();
        let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
        Self { client: Client::new(store), provider, runtime, _folder: folder }
    }

    async fn run(&self, name: &str, input: &str) -> OrchestrationStatus {
        self.client.start_orchestration(name, name, input).await.expect("it starts");
        self.client.wait_for_orchestration(name, SOON).await.expect("it ends")
    }

    async fn end(self) {
        self.runtime.shutdown(None).await;
        self.provider.engine().shutdown().await.expect("it ends");
    }
}

fn output(status: OrchestrationStatus) -> String {
    match status {
        OrchestrationStatus::Completed { output, .. } => output,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequential_and_parallel_activities() {
    let chain = |ctx: OrchestrationContext, text: String| async move {
        let one = ctx.schedule_activity("upper", text).await?;
        ctx.schedule_activity("upper", format!("{one}!")).await
    };
    let fan = |ctx: OrchestrationContext, text: String| async move {
        let each = text.split(' ').map(|word| ctx.schedule_activity("upper", word));
        let all = ctx.join(each.collect::<Vec<_>>()).await;
        Ok(all.into_iter().collect::<Result<Vec<_>, _>>()?.join(","))
    };
    let rejected = |ctx: OrchestrationContext, text: String| async move {
        match ctx.schedule_activity("reject", text).await {
            Ok(_) => Err("it was not rejected".to_owned()),
            Err(reason) => Ok(reason),
        }
    };
    let registry = OrchestrationRegistry::builder().register("chain", chain);
    let registry = registry.register("fan", fan).register("rejected", rejected);
    let stage = Stage::start(registry.build()).await;
    assert_eq!(output(stage.run("chain", "a").await), "A!");
    assert_eq!(output(stage.run("fan", "a b c d e f g h").await), "A,B,C,D,E,F,G,H");
    assert_eq!(output(stage.run("rejected", "x").await), "no x");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_events_and_races() {
    let race = |ctx: OrchestrationContext, _: String| async move {
        let event = ctx.schedule_wait("approved");
        match ctx.select2(event, ctx.schedule_timer(Duration::from_secs(60))).await {
            Either2::First(by) => Ok(format!("approved by {by}")),
            Either2::Second(()) => Ok("too late".to_owned()),
        }
    };
    let late = |ctx: OrchestrationContext, _: String| async move {
        let never = ctx.schedule_wait("never");
        match ctx.select2(never, ctx.schedule_timer(Duration::from_millis(50))).await {
            Either2::First(_) => Ok("heard".to_owned()),
            Either2::Second(()) => Ok("too late".to_owned()),
        }
    };
    let registry = OrchestrationRegistry::builder().register("race", race).register("late", late);
    let stage = Stage::start(registry.build()).await;
    assert_eq!(output(stage.run("late", "").await), "too late");
    stage.client.start_orchestration("race", "race", "").await.unwrap();
    let subscribed = async {
        while stage.provider.read("race").await.unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, subscribed).await.expect("it waits for the event");
    stage.client.raise_event("race", "approved", "Ada").await.unwrap();
    let ended = stage.client.wait_for_orchestration("race", SOON).await.unwrap();
    assert_eq!(output(ended), "approved by Ada");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_and_successive_executions() {
    let parent = |ctx: OrchestrationContext, text: String| async move {
        ctx.schedule_sub_orchestration("child", text).await
    };
    let child = |ctx: OrchestrationContext, text: String| async move {
        ctx.schedule_activity("upper", text).await
    };
    let count = |ctx: OrchestrationContext, left: String| async move {
        let left: u32 = left.parse().map_err(|_| "not a number".to_owned())?;
        ctx.set_kv_value("left", left.to_string());
        ctx.set_custom_status(format!("{left} left"));
        match left {
            0 => Ok(format!("after {} executions", ctx.execution_id())),
            _ => ctx.continue_as_new((left - 1).to_string()).await,
        }
    };
    let registry = OrchestrationRegistry::builder().register("parent", parent);
    let registry = registry.register("child", child).register("count", count);
    let stage = Stage::start(registry.build()).await;
    assert_eq!(output(stage.run("parent", "x").await), "X");
    assert_eq!(output(stage.run("count", "3").await), "after 4 executions");
    let admin = &*stage.provider;
    assert_eq!(admin.list_executions("count").await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(admin.get_kv_value("count", "left").await.unwrap().as_deref(), Some("0"));
    let status = admin.get_custom_status("count", 3).await.unwrap();
    assert_eq!(status, Some((Some("0 left".to_owned()), 4)));
    let tree = admin.get_instance_tree("parent").await.unwrap();
    assert_eq!(tree.all_ids.len(), 2);
    assert_eq!(admin.delete_instance("parent", false).await.unwrap().instances_deleted, 2);
    assert_eq!(admin.list_instances().await.unwrap(), ["count"]);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_to_missing_instances_block_nothing() {
    let echo = |_: OrchestrationContext, text: String| async move { Ok(text) };
    let stage = Stage::start(OrchestrationRegistry::builder().register("echo", echo).build()).await;
    stage.client.raise_event("missing", "hello", "").await.unwrap();
    stage.client.cancel_instance("missing", "why not").await.unwrap();
    stage.client.enqueue_event("missing", "queue", "1").await.unwrap();
    assert_eq!(output(stage.run("echo", "here").await), "here");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_appended_outside_a_turn() {
    let echo = |_: OrchestrationContext, text: String| async move { Ok(text) };
    let stage = Stage::start(OrchestrationRegistry::builder().register("echo", echo).build()).await;
    stage.run("echo", "here").await;
    let history = stage.provider.read("echo").await.unwrap();
    let mut last = history.last().expect("it has ended").clone();
    let again = stage.provider.append_with_execution("echo", 1, vec![last.clone()]).await;
    assert!(!again.unwrap_err().is_retryable(), "an event is not written twice");
    last.event_id += 1;
    stage.provider.append_with_execution("echo", 1, vec![last]).await.unwrap();
    assert_eq!(stage.provider.read("echo").await.unwrap().len(), history.len() + 1);
    stage.end().await;
}
