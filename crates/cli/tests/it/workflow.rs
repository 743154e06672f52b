//! `windlass workflow`, beside a program whose worker has the code.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::command::CommitTurn;
use windlass::workflow::WorkflowDefinition;
use windlass::workflow::testing::{RecordedExecution, replay_check};
use windlass::{
    Context, Engine, Failure, PublicState, StepError, TaskKey, Tenant, WorkerHandle, Workflow,
};

use crate::test_store::{CommandOutput, TestStore, claim};

/// Longer than anything takes here: a wait of this length is a failure.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn charge(_: Context, cents: u64) -> Result<String, Failure> {
    if cents == 0 {
        Err(Failure::non_retryable("nothing to pay"))
    } else {
        Ok(format!("paid {cents}"))
    }
}

async fn refund(_: Context, cents: u64) -> Result<u64, Failure> {
    Ok(cents)
}

/// Charges a card, waits for approval, and refunds the money if that times out.
async fn order(ctx: Workflow, cents: u64) -> Result<String, StepError> {
    ctx.set_status("charging")?;
    let paid = ctx.activity(charge, &cents).await?;
    ctx.set_status("waiting for approval")?;
    ctx.set_value("paid", &paid)?;
    let day = Duration::from_secs(24 * 3_600);
    match ctx.wait_signal::<String>("approved").timeout(day).await {
        Ok(by) => Ok(format!("{paid}, approved by {by}")),
        Err(error) => {
            ctx.shielded().activity(refund, &cents).await?;
            Err(error)
        }
    }
}

/// Runs child orders one after the other, and continues as new after each.
async fn shop(ctx: Workflow, orders: Vec<u64>) -> Result<u32, StepError> {
    let Some((first, rest)) = orders.split_first() else { return Ok(ctx.info().execution) };
    ctx.child(order, first).id(format!("order-{first}")).await?;
    match ctx.continue_as_new(&rest.to_vec()).await? {}
}

fn works(engine: &Engine) -> WorkerHandle {
    let worker = engine.worker("worker-1").concurrency(4).activity(charge).activity(refund);
    worker.workflow(order).workflow(shop).start().unwrap()
}

fn key(id: &str) -> TaskKey {
    TaskKey::new(&Tenant::default(), &id.into())
}

/// Polls until a workflow matches.
async fn until(engine: &Engine, id: &str, is_so: impl Fn(&windlass::Task) -> bool) {
    let wait = async {
        while !engine.task(&key(id)).await.unwrap().is_some_and(|task| is_so(&task)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("{id} never matches"));
}

/// Waits until an order has been paid and waits for approval.
async fn until_paid(engine: &Engine, id: &str) {
    until(engine, id, |task| {
        let turns = task.workflow.as_ref().map_or(0, |workflow| workflow.turns);
        turns == 2 && task.lifecycle.public() == PublicState::Suspended
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_start_to_end() {
    let store = TestStore::empty();
    let output = store.run("workflow start order --id o --input 500 --label customer=42");
    assert_eq!((output.code, output.out.as_str()), (0, "o\n"), "{output:?}");
    assert!(output.err.contains("did not exist and has been created"), "{output:?}");
    let again = store.ok("workflow start order --id o --input 500 --label customer=42");
    assert_eq!(again, "o (duplicate: it was started before)\n");
    let other = store.run("workflow start order --id o --input 501");
    assert!(other.code == 3 && other.err.ends_with("[conflict]\n"), "{other:?}");

    let engine = store.application().await;
    let running = works(&engine);
    until_paid(&engine, "o").await;
    let shown = store.one("workflow show o");
    assert_eq!(shown["state"], "suspended");
    assert_eq!((&shown["execution"], &shown["turns"]), (&json!(0), &json!(2)));
    assert_eq!((&shown["first_step"], &shown["next_step"]), (&json!(0), &json!(3)));
    assert_eq!(shown["status"], "waiting for approval");
    assert_eq!(shown["values"], json!({ "paid": "paid 500" }));
    assert_eq!(shown["input"]["json"], 500);
    assert_eq!(shown["waiting_for"][0]["what"], "message approved");
    let waits = shown["waiting_for"].as_array().unwrap();
    let steps: Vec<&Value> = waits.iter().map(|open| &open["step"]).collect();
    assert_eq!(steps, [1, 2]);
    let words = store.ok("workflow show o");
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "workflow o kind order",
        "execution 0: 2 turns, 3 steps",
        "status waiting for approval",
        "values paid = \"paid 500\"",
        "waiting for message approved, step 1, since just now timer until 20",
        "labels customer=42",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }

    let history = store.ok("workflow history o");
    assert!(history.contains("suspended, waits for:\n           message approved, step 1, since "));

    let printed = store.ok("workflow signal o approved --payload \"ada\" --source ops");
    assert_eq!(printed, "Workflow o runs a turn with message 1.\n");
    store.ok("task wait o --timeout 1m");
    let shown = store.one("workflow show o");
    assert_eq!(shown["result"]["json"], "paid 500, approved by ada");
    assert_eq!(shown["waiting_for"], json!([]));
    running.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
    has_a_history(&store);
}

fn has_a_history(store: &TestStore) {
    let text = store.ok("workflow history o");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "workflow o (order), execution 0, 3 turns");
    for (line, parts) in [
        (1, &["turn    0  20", "Z      +0ms"][..]),
        (2, &["-> activity charge, step 0: 500"]),
        (3, &["turn    1  20", "  after "]),
        (4, &["<- activity charge, step 0, completed after ", ": \"paid 500\""]),
        (5, &["-> wait for message approved, step 1"]),
        (6, &["-> timer until 20", ", step 2"]),
        (8, &["<- message approved from ops: \"ada\""]),
        (9, &["-> cancels timer until 20", ", step 2"]),
        (10, &["completed after "]),
    ] {
        for part in parts {
            assert!(lines[line].contains(part), "line {line}, {part}: {text}");
        }
    }
    let rows = store.json("workflow history o");
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["commands"][0]["activity"]["input"]["json"], 500);
    assert_eq!(store.run("workflow history o --execution 1").code, 4);
    let checked = store.ok("workflow check-history o");
    assert_eq!(checked, "execution 0: 3 turns, well formed\n");

    // Printed histories can be checked again, and changes to them are detected.
    let text = store.ok("workflow history o --json");
    std::fs::write(store.file("o.jsonl"), &text).unwrap();
    assert!(store.ok("workflow check-history --file o.jsonl").contains("3 turns, well formed"));
    let array = format!("[{}]", text.trim().replace('\n', ","));
    std::fs::write(store.file("o.json"), &array).unwrap();
    assert!(store.ok("workflow check-history --file o.json").contains("3 turns, well formed"));
    let recorded = json!({ "begin": { "first_step": 0 }, "rows": rows });
    std::fs::write(store.file("recorded.json"), recorded.to_string()).unwrap();
    assert!(store.ok("workflow check-history --file recorded.json").contains("well formed"));
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(store.file("cut.jsonl"), format!("{}\n{}", lines[0], lines[2])).unwrap();
    let found = store.one_of("workflow check-history --file cut.jsonl", 1);
    assert_eq!(found["problems"][0]["what"], "step 2 is cancelled, but was never created");
    assert_eq!(found["problems"][0]["turn"], 1);
    std::fs::write(store.file("other.json"), "{\"a\":1}").unwrap();
    for file in ["other.json", "nowhere.json"] {
        let output = store.run(&format!("workflow check-history --file {file}"));
        assert!(output.code == 1 && output.err.ends_with("[history_file]\n"), "{output:?}");
    }
}

#[test]
fn whitespace_in_the_input_is_ignored() {
    let store = TestStore::empty();
    let start = |input: &str| {
        std::fs::write(store.file("input.json"), input).unwrap();
        store.run("workflow start order --id o --input @input.json")
    };
    assert_eq!(start("{\"a\":1, \"b\":2}\n").out, "o\n");
    let again = start("{ \"a\" : 1,\"b\":2}");
    assert_eq!(again.out, "o (duplicate: it was started before)\n", "{again:?}");
    let again = store.run(r#"workflow start order --id o --input {"a":1,"b":2}"#);
    assert_eq!(again.out, "o (duplicate: it was started before)\n", "{again:?}");
    let other = start("{\"b\":2,\"a\":1}");
    assert!(other.code == 3 && other.err.ends_with("[conflict]\n"), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_and_children() {
    let store = TestStore::empty();
    std::fs::write(store.file("orders.json"), "[100, 200]").unwrap();
    assert_eq!(store.one("workflow start shop --id s --input @orders.json")["duplicate"], false);
    let engine = store.application().await;
    let running = works(&engine);
    until_paid(&engine, "order-100").await;
    let tree = store.one("workflow tree s");
    assert_eq!((&tree["id"], &tree["is_workflow"]), (&json!("s"), &json!(true)));
    let child = &tree["children"][0];
    assert_eq!((&child["id"], &child["kind"]), (&json!("order-100"), &json!("order")));
    assert_eq!((&child["step"], &child["state"]), (&json!(0), &json!("suspended")));
    let drawn = store.ok("workflow tree s");
    assert!(drawn.starts_with("s  shop, workflow, suspended "), "{drawn}");
    assert!(drawn.contains("\n└─ order-100  order, workflow, suspended "), "{drawn}");

    store.ok("workflow signal order-100 approved --payload \"ada\"");
    until_paid(&engine, "order-200").await;
    store.ok("workflow signal order-200 approved --payload \"ada\"");
    store.ok("task wait s --timeout 1m");
    running.drain(Duration::from_secs(10)).await;

    let shown = store.one("workflow show s");
    assert_eq!((&shown["execution"], &shown["result"]["json"]), (&json!(2), &json!(2)));
    let first = store.ok("workflow history s --execution 0");
    assert!(first.contains("-> child order as order-100, step 0"), "{first}");
    assert!(first.contains("<- child order as order-100, step 0, completed after"), "{first}");
    assert!(first.lines().last().unwrap().starts_with("continued as execution 1"), "{first}");
    let findings = store.json("workflow check-history s");
    let found: Vec<_> = findings.iter().map(|one| (&one["execution"], &one["problems"])).collect();
    let none = json!([]);
    assert_eq!(found, [(&json!(0), &none), (&json!(1), &none), (&json!(2), &none)]);
    let second = store.one("workflow check-history s --execution 1");
    assert_eq!(second["execution"], 1);

    // A recording contains all that a test needs.
    let text = store.ok("workflow history s --recording");
    let recorded: Vec<RecordedExecution> = serde_json::from_str(&text).unwrap();
    assert_eq!(recorded.len(), 3);
    for execution in &recorded {
        replay_check(shop, execution).unwrap();
    }
    std::fs::write(store.file("s.json"), &text).unwrap();
    assert_eq!(store.json("workflow check-history --file s.json").len(), 3);

    // Earlier executions can be pruned, the oldest first.
    let output = store.run("workflow prune s");
    assert_eq!(output.code, 2, "{output:?}");
    let would = json!({ "id": "s", "pruned": 1, "dry_run": true });
    assert_eq!(store.one("workflow prune s --keep 1 --dry-run"), would);
    assert_eq!(
        store.ok("workflow prune s --older-than 1d"),
        "Deleted 0 executions of workflow s.\n"
    );
    assert_eq!(store.ok("workflow prune s --keep 1"), "Deleted 1 execution of workflow s.\n");
    assert_eq!(engine.executions(&key("s"), None, 10).await.unwrap().len(), 1);

    // The executions and the children are deleted with the workflow.
    let output = store.run("workflow delete s");
    assert!(output.code == 2 && output.err.ends_with("[not_confirmed]\n"), "{output:?}");
    assert_eq!(
        store.one("workflow delete s --yes"),
        json!({ "id": "s", "deleted": true, "tasks": 3 })
    );
    for id in ["s", "order-100", "order-200"] {
        assert_eq!(store.run(&format!("workflow show {id}")).code, 4, "{id}");
    }
    assert!(engine.executions(&key("s"), None, 10).await.unwrap().is_empty());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_only_workflows() {
    let store = TestStore::empty();
    for n in 0..60 {
        store.ok(&format!("task create plain --id a{n:02}"));
    }
    for (id, kind) in [("b1", "order"), ("b2", "order"), ("b3", "shop")] {
        store.ok(&format!("workflow start {kind} --id {id} --lane orders"));
    }
    store.ok("workflow cancel b2 --force");
    let listed = |line: &str| {
        let rows = store.json(line);
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("workflow list"), ["b1", "b2", "b3"]);
    assert_eq!(listed("workflow list --all"), ["b1", "b2", "b3"]);
    assert_eq!(listed("workflow list --kind order --state waiting"), ["b1"]);
    assert_eq!(listed("workflow list --limit 2"), ["b1", "b2"]);
    assert_eq!(listed("workflow list --limit 2 --after b2"), ["b3"]);
    let page = store.ok("workflow list --limit 2");
    assert!(page.contains("add --after b2"), "{page}");
    let row = page.lines().find(|line| line.trim_start().starts_with("b2")).unwrap();
    assert!(row.contains("cancelled from the command line"), "{row}");
    assert!(!store.ok("workflow list").contains("--after"));
    assert_eq!(store.ok("workflow list --lane elsewhere"), "There is no such workflow.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_is_cancelled_politely_or_by_force() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let running = works(&engine);
    for id in ["polite", "forced", "left"] {
        store.ok(&format!("workflow start order --id {id} --input 700"));
        until_paid(&engine, id).await;
    }
    let output = store.run("workflow delete polite --yes");
    assert!(output.code == 3 && output.err.ends_with("[not_terminal]\n"), "{output:?}");
    assert!(output.err.contains("windlass workflow cancel polite"), "{output:?}");
    store.ok("workflow cancel polite --reason enough");
    until(&engine, "polite", |task| task.lifecycle.ended_at().is_some()).await;
    let shown = store.one("workflow show polite");
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("cancelled"), &json!("enough")));
    let history = store.ok("workflow history polite");
    assert!(history.contains("<- cancellation requested: enough"), "{history}");
    assert!(history.contains("-> activity refund, step 3: 700"), "{history}");

    let forced = store.one("workflow cancel forced --force");
    assert_eq!(forced, json!({ "id": "forced", "state": "cancelled", "cancel_requested": false }));
    assert!(!store.ok("workflow history forced").contains("refund"));
    assert_eq!(store.ok("workflow check-history forced"), "execution 0: 2 turns, well formed\n");
    let late = store.run("workflow signal forced approved");
    assert!(late.code == 3 && late.err.ends_with("[already_terminal]\n"), "{late:?}");
    running.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();

    // No worker has its code.
    let output = store.ok("workflow cancel left");
    assert!(output.starts_with("Cancellation of workflow left is requested"), "{output}");
    let shown = store.ok("workflow show left");
    assert!(shown.contains("cancel reason  cancelled from the command line"), "{shown}");
    // A workflow that has not run yet is cancelled at once: it has nothing to clean up.
    store.ok("workflow start order --id alone --input 1");
    assert_eq!(store.ok("workflow cancel alone"), "Workflow alone is cancelled.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_history_is_reported() {
    let store = TestStore::empty();
    store.ok("workflow start order --id o --lane orders");
    let engine = store.application().await;
    let task = claim(&engine, "w", "orders").await;
    for (turn, row) in [
        "{\"at\":5,\"commands\":[{\"activity\":{\"step\":1,\"name\":\"charge\"}}]}",
        "{\"at\":4,\"inputs\":[{\"step_completion\":{\"step\":9,\"outcome\":\"expired\"}}]}",
    ]
    .into_iter()
    .enumerate()
    {
        let last = turn == 1;
        let commit = CommitTurn {
            fence: task.fence(),
            turn: u32::try_from(turn).unwrap(),
            row: Some(windlass::Payload::json(row)),
            consumed: vec![],
            commands: vec![],
            next_step: 3,
            end: if last {
                windlass::command::TurnEnd::AwaitMessages
            } else {
                windlass::command::TurnEnd::MoreParts
            },
            sticky_ms: None,
            eager: None,
            metadata: None,
        };
        engine.submit(commit).await.unwrap();
    }
    let found = store.one_of("workflow check-history o", 1);
    let problems = found["problems"].as_array().unwrap();
    let problems: Vec<_> =
        problems.iter().map(|problem| problem["what"].as_str().unwrap()).collect();
    assert_eq!(problems.len(), 4, "{problems:?}");
    for (problem, part) in problems.iter().zip([
        "activity charge is step 1, but step 0 is next",
        "is before that of the previous turn",
        "step 9 has ended, but was never created",
        "the store says that the next step is 3, the history 2",
    ]) {
        assert!(problem.contains(part), "{problem}: {part}");
    }
    let output = store.run("workflow check-history o");
    assert!(output.out.starts_with("execution 0, turn 0: "), "{output:?}");
    assert!(output.err.ends_with("4 problems found [unhealthy]\n"), "{output:?}");

    let sqlite = rusqlite::Connection::open(store.file("app.db")).unwrap();
    let spoilt = sqlite
        .execute("UPDATE payload SET bytes = x'7b' WHERE task = 'o' AND slot LIKE 'turn/%1'", []);
    assert_eq!(spoilt.unwrap(), 1);
    let found = store.one_of("workflow check-history o", 1);
    assert!(found["problems"][0]["what"].as_str().unwrap().contains("EOF"), "{found}");

    // Everything except the damaged row is shown.
    let shown = store.run("workflow show o");
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("suspended since"), "{shown:?}");
    assert!(shown.out.contains("row 1 of the history cannot be read: EOF"), "{shown:?}");
    assert!(!shown.out.contains("waits for"), "{shown:?}");
    let shown = store.one_of("workflow show o", 0);
    assert!(
        shown["history_error"].as_str().unwrap().starts_with("row 1 of the history"),
        "{shown}"
    );
    let printed = store.run("workflow history o");
    assert_ne!(printed.code, 0, "{printed:?}");
    assert!(printed.out.contains(", execution 0, 1 turn\nturn    0 "), "{printed:?}");
    assert!(printed.err.contains("row 1 of the history cannot be read: EOF"), "{printed:?}");
    assert!(printed.err.ends_with("[history_unreadable]\n"), "{printed:?}");
    let printed = store.run("workflow history o --json");
    assert_eq!((printed.code == 0, printed.out.lines().count()), (false, 1), "{printed:?}");
    engine.shutdown().await.unwrap();
}

#[test]
fn a_task_that_is_not_a_workflow_is_reported() {
    let store = TestStore::empty();
    store.ok("task create email --id t");
    for verb in ["show t", "history t", "tree t", "signal t go", "cancel t", "delete t --yes"] {
        let CommandOutput { code, err, .. } = store.run(&format!("workflow {verb}"));
        assert!(code == 3 && err.ends_with("[not_a_workflow]\n"), "{verb}: {err}");
        let missing = verb.replace(" t", " missing");
        let CommandOutput { code, err, .. } = store.run(&format!("workflow {missing}"));
        assert!(code == 4 && err.ends_with("[task_not_found]\n"), "{missing}: {err}");
    }
}

/// If the code does not match the history, the workflow waits for matching code and shows why.
#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_cannot_continue_shows_why() {
    async fn changed(ctx: Workflow, cents: u64) -> Result<u64, StepError> {
        ctx.activity(refund, &cents).await
    }
    let store = TestStore::empty();
    let engine = store.application().await;
    let running = works(&engine);
    store.ok("workflow start order --id o --input 500");
    until_paid(&engine, "o").await;
    running.drain(Duration::from_secs(10)).await;
    let worker = engine.worker("worker-1").activity(refund);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("order", changed)).start().unwrap();
    store.ok("workflow signal o approved --payload \"ada\"");
    until(&engine, "o", |task| task.progress.is_some()).await;
    for line in ["workflow show o", "workflow list"] {
        let output = store.ok(line);
        let why = "the history has activity `charge` (step 0), the code makes activity `refund`";
        assert!(output.contains(why), "{line}: {output}");
    }
    running.drain(Duration::from_secs(10)).await;
    assert_eq!(store.ok("workflow check-history o"), "execution 0: 2 turns, well formed\n");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_workflow_is_a_dead_letter_and_cannot_be_replayed() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let running = works(&engine);
    store.ok("workflow start order --id o --input 0");
    until(&engine, "o", |task| task.lifecycle.ended_at().is_some()).await;
    running.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
    assert!(store.ok("workflow show o").contains("nothing to pay"));
    let history = store.ok("workflow history o");
    let printed = history.lines().find(|line| line.contains("<- activity charge")).unwrap();
    assert!(printed.contains("failed after ") && printed.ends_with(": permanent: nothing to pay"));
    assert!(history.lines().last().unwrap().starts_with("failed after "), "{history}");
    assert_eq!(store.one("dlq list")["id"], "o");
    let output = store.run("task replay o");
    assert!(output.code == 3 && output.err.ends_with("[workflow_not_replayable]\n"), "{output:?}");
    assert_eq!(store.run("dlq replay --all").code, 3);
    assert_eq!(store.ok("workflow delete o --yes"), "Workflow o is deleted.\n");
    let sqlite = rusqlite::Connection::open(store.file("app.db")).unwrap();
    let count_payloads = "SELECT count(*) FROM payload";
    assert_eq!(sqlite.query_row(count_payloads, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_may_arrive_before_the_start() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let output = store.run("workflow signal o approved --payload \"ada\"");
    assert_eq!(output.code, 4, "{output:?}");
    let output = store.run("workflow signal o approved --payload \"ada\" --buffer-for 1h");
    let printed = "There is no workflow o yet. Message 1 waits for it.\n";
    assert_eq!((output.code, output.out.as_str()), (0, printed), "{output:?}");
    let output = store.run("workflow signal o approved --buffer-for --json");
    let sent: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&sent["buffered"], &sent["seq"]), (&json!(true), &json!(2)));
    let output = store.run("workflow signal o approved --buffer-for 99d");
    assert_eq!(output.code, 2, "{output:?}");
    let running = works(&engine);
    store.run("workflow start order --id o --input 500");
    let done = engine.workflow(key("o")).returning::<String>().result().await.unwrap();
    assert_eq!(done, "paid 500, approved by ada");
    running.drain(TIMEOUT).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_may_start_its_workflow() {
    let store = TestStore::empty();
    let engine = store.application().await;
    let running = works(&engine);
    let output =
        store.run("workflow signal o approved --payload \"ada\" --start order --input 500");
    assert_eq!(output.code, 0, "{output:?}");
    let done = engine.workflow(key("o")).returning::<String>().result().await.unwrap();
    assert_eq!(done, "paid 500, approved by ada");
    for wrong in [
        "workflow signal p approved --input 500",
        "workflow signal p approved --lane slow",
        "workflow signal p approved --start order --buffer-for 1h",
        "workflow signal p approved --start order --input {",
    ] {
        assert_eq!(store.run(wrong).code, 2, "{wrong}");
    }
    assert_eq!(store.run("workflow show p").code, 4, "a rejected start leaves nothing");
    running.drain(TIMEOUT).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_are_deleted_by_a_filter() {
    let store = TestStore::empty();
    let engine = store.application().await;
    for n in 0..5 {
        store.ok(&format!("workflow start order --id o{n} --input 500"));
    }
    for n in 0..3 {
        store.ok(&format!("workflow cancel o{n} --force"));
    }
    assert_eq!(store.run("workflow delete --yes").code, 2, "a filter is required");
    assert_eq!(store.run("workflow delete o1 --kind order --yes").code, 2);
    let output = store.run("workflow delete --kind order");
    assert!(output.code == 2 && output.err.ends_with("[not_confirmed]\n"), "{output:?}");
    let would = store.json("workflow delete --kind order --dry-run");
    assert_eq!(would.len(), 3, "running workflows are skipped: {would:?}");
    assert_eq!(would[0], json!({ "id": "o0", "deleted": false, "dry_run": true }));
    let printed = store.ok("workflow delete --status cancelled --name order --older-than 1d --yes");
    assert_eq!(printed, "Deleted 0 workflows, 0 tasks in all.\n");
    let printed = store.ok("workflow delete --state cancelled --kind order --limit 2 --yes");
    assert_eq!(printed, "Deleted 2 workflows, 2 tasks in all.\n");
    let deleted = store.json("workflow delete --kind order --force --yes");
    assert_eq!(deleted.len(), 3, "{deleted:?}");
    assert_eq!(store.json("workflow list").len(), 0);
    engine.shutdown().await.unwrap();
}
