//! The spans of log lines.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use windlass_worker::workflow::{StepError, Workflow, WorkflowDefinition};
use windlass_worker::{Context, Failure};

use crate::stage::{EVER, Stage};

type Fields = BTreeMap<String, String>;

/// Collects log lines of this file and warnings of the workflow code, each with its spans, the
/// innermost last.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    spans: Vec<(&'static str, Fields)>,
    entered: Vec<u64>,
    lines: Vec<(String, Vec<(&'static str, Fields)>)>,
}

struct Reader<'f>(&'f mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Book {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_warning = *metadata.level() == Level::WARN;
        let target = metadata.target();
        metadata.is_span()
            || target.contains("workflow_spans")
            || is_warning && target.starts_with("windlass_worker::workflow")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        let mut pages = self.0.lock().unwrap();
        pages.spans.push((attributes.metadata().name(), fields));
        Id::from_u64(pages.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let mut pages = self.0.lock().unwrap();
        let named = |id: &u64| pages.spans[usize::try_from(*id).unwrap() - 1].clone();
        let inside = pages.entered.iter().map(named).collect();
        pages.lines.push((fields["message"].clone(), inside));
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let mut pages = self.0.lock().unwrap();
        let place = pages.entered.iter().rposition(|id| *id == span.into_u64()).unwrap();
        pages.entered.remove(place);
    }
}

async fn pay(_: Context, n: u32) -> Result<u32, Failure> {
    tracing::info!("paying");
    Ok(n)
}

async fn invoice(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    tracing::info!("invoicing");
    ctx.activity(pay, &n).await
}

async fn order(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    tracing::info!("ordering");
    let paid = ctx.child(invoice, &n).await?;
    tracing::info!("ordered");
    Ok(paid)
}

/// Nothing is cached, so that every turn replays the whole history.
#[tokio::test(start_paused = true)]
async fn a_log_line_names_its_workflow_and_is_not_repeated() {
    let book = Book::default();
    let guard = tracing::subscriber::set_default(book.clone());
    let stage = Stage::new().await;
    let worker = stage.worker().concurrency(4).workflow_cache_size(0).activity(pay);
    let worker =
        worker.workflow_definition(WorkflowDefinition::named("order", order)).workflow(invoice);
    let running = worker.start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("order", &3).id("o").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 3);
    running.drain(EVER).await;
    drop(guard);
    let pages = book.0.lock().unwrap();
    let logged = pages.lines.iter().map(|(line, inside)| {
        let (span, fields) = inside.last().expect("it is inside a span");
        let field = |name: &str| fields.get(name).map_or("-", String::as_str);
        let (id, parent) = match *span {
            "workflow" => (field("id"), field("parent")),
            _ => (field("task"), field("workflow")),
        };
        format!("{line}: {span} {id} of {parent}")
    });
    let expected = [
        "ordering: workflow o of -",
        "invoicing: workflow o/0 of o",
        "paying: attempt o/0/0 of o/0",
        "ordered: workflow o of -",
    ];
    assert_eq!(logged.collect::<Vec<_>>(), expected);
}

async fn sender(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    ctx.signal("missing", "go", &())?;
    ctx.start_detached(order, &n).await?;
    ctx.sleep(Duration::from_secs(1)).await?;
    ctx.sleep(Duration::from_secs(1)).await?;
    Ok(n)
}

/// However often the workflow is replayed.
#[tokio::test(start_paused = true)]
async fn a_rejected_signal_is_logged_once() {
    let book = Book::default();
    let guard = tracing::subscriber::set_default(book.clone());
    let stage = Stage::new().await;
    let worker = stage
        .worker()
        .workflow_cache_size(0)
        .workflow_definition(WorkflowDefinition::named("sender", sender));
    let running = worker.start().unwrap();
    let handle = stage.other.start_workflow_named::<u32>("sender", &3).id("s").await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 3);
    running.drain(EVER).await;
    drop(guard);
    let pages = book.0.lock().unwrap();
    let logged: Vec<_> = pages.lines.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(logged, ["signal or detached start rejected"]);
}
