//! `windlass workflow`, beside a program whose worker has the code.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::command::CommitTurn;
use windlass::workflow::WorkflowDefinition;
use windlass::workflow::testing::{Recorded, replay_check};
use windlass::{
    Context, Engine, Failure, PublicState, StepError, TaskKey, Tenant, WorkerHandle, Workflow,
};

use crate::place::{Place, Said, claim};

/// Longer than anything takes here: a wait of this length is a failure.
const EVER: Duration = Duration::from_secs(60);

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
    tokio::time::timeout(EVER, wait).await.unwrap_or_else(|_| panic!("{id} never matches"));
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
    let place = Place::empty();
    let said = place.run("workflow start order --id o --input 500 --label customer=42");
    assert_eq!((said.code, said.out.as_str()), (0, "o\n"), "{said:?}");
    assert!(said.err.contains("did not exist and has been created"), "{said:?}");
    let again = place.ok("workflow start order --id o --input 500 --label customer=42");
    assert_eq!(again, "o (duplicate: it was started before)\n");
    let other = place.run("workflow start order --id o --input 501");
    assert!(other.code == 3 && other.err.ends_with("[conflict]\n"), "{other:?}");

    let engine = place.application().await;
    let running = works(&engine);
    until_paid(&engine, "o").await;
    let shown = place.one("workflow show o");
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
    let words = place.ok("workflow show o");
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

    let history = place.ok("workflow history o");
    assert!(history.contains("suspended, waits for:\n           message approved, step 1, since "));

    let told = place.ok("workflow signal o approved --payload \"ada\" --source ops");
    assert_eq!(told, "Workflow o runs a turn with message 1.\n");
    place.ok("task wait o --timeout 1m");
    let shown = place.one("workflow show o");
    assert_eq!(shown["result"]["json"], "paid 500, approved by ada");
    assert_eq!(shown["waiting_for"], json!([]));
    running.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
    has_a_history(&place);
}

fn has_a_history(place: &Place) {
    let text = place.ok("workflow history o");
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
    let rows = place.json("workflow history o");
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["commands"][0]["activity"]["input"]["json"], 500);
    assert_eq!(place.run("workflow history o --execution 1").code, 4);
    let checked = place.ok("workflow replay-check o");
    assert_eq!(checked, "execution 0: 3 turns, well formed\n");

    // Printed histories can be checked again, and changes to them are detected.
    let text = place.ok("workflow history o --json");
    std::fs::write(place.file("o.jsonl"), &text).unwrap();
    assert!(place.ok("workflow replay-check --file o.jsonl").contains("3 turns, well formed"));
    let array = format!("[{}]", text.trim().replace('\n', ","));
    std::fs::write(place.file("o.json"), &array).unwrap();
    assert!(place.ok("workflow replay-check --file o.json").contains("3 turns, well formed"));
    let recorded = json!({ "begin": { "first_step": 0 }, "rows": rows });
    std::fs::write(place.file("recorded.json"), recorded.to_string()).unwrap();
    assert!(place.ok("workflow replay-check --file recorded.json").contains("well formed"));
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(place.file("cut.jsonl"), format!("{}\n{}", lines[0], lines[2])).unwrap();
    let found = place.one_of("workflow replay-check --file cut.jsonl", 1);
    assert_eq!(found["problems"][0]["what"], "step 2 is cancelled, but was never created");
    assert_eq!(found["problems"][0]["turn"], 1);
    std::fs::write(place.file("other.json"), "{\"a\":1}").unwrap();
    for file in ["other.json", "nowhere.json"] {
        let said = place.run(&format!("workflow replay-check --file {file}"));
        assert!(said.code == 1 && said.err.ends_with("[history_file]\n"), "{said:?}");
    }
}

#[test]
fn whitespace_in_the_input_is_ignored() {
    let place = Place::empty();
    let start = |input: &str| {
        std::fs::write(place.file("input.json"), input).unwrap();
        place.run("workflow start order --id o --input @input.json")
    };
    assert_eq!(start("{\"a\":1, \"b\":2}\n").out, "o\n");
    let again = start("{ \"a\" : 1,\"b\":2}");
    assert_eq!(again.out, "o (duplicate: it was started before)\n", "{again:?}");
    let again = place.run(r#"workflow start order --id o --input {"a":1,"b":2}"#);
    assert_eq!(again.out, "o (duplicate: it was started before)\n", "{again:?}");
    let other = start("{\"b\":2,\"a\":1}");
    assert!(other.code == 3 && other.err.ends_with("[conflict]\n"), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_and_children() {
    let place = Place::empty();
    std::fs::write(place.file("orders.json"), "[100, 200]").unwrap();
    assert_eq!(place.one("workflow start shop --id s --input @orders.json")["duplicate"], false);
    let engine = place.application().await;
    let running = works(&engine);
    until_paid(&engine, "order-100").await;
    let tree = place.one("workflow tree s");
    assert_eq!((&tree["id"], &tree["is_workflow"]), (&json!("s"), &json!(true)));
    let child = &tree["children"][0];
    assert_eq!((&child["id"], &child["kind"]), (&json!("order-100"), &json!("order")));
    assert_eq!((&child["step"], &child["state"]), (&json!(0), &json!("suspended")));
    let drawn = place.ok("workflow tree s");
    assert!(drawn.starts_with("s  shop, workflow, suspended "), "{drawn}");
    assert!(drawn.contains("\n└─ order-100  order, workflow, suspended "), "{drawn}");

    place.ok("workflow signal order-100 approved --payload \"ada\"");
    until_paid(&engine, "order-200").await;
    place.ok("workflow signal order-200 approved --payload \"ada\"");
    place.ok("task wait s --timeout 1m");
    running.drain(Duration::from_secs(10)).await;

    let shown = place.one("workflow show s");
    assert_eq!((&shown["execution"], &shown["result"]["json"]), (&json!(2), &json!(2)));
    let first = place.ok("workflow history s --execution 0");
    assert!(first.contains("-> child order as order-100, step 0"), "{first}");
    assert!(first.contains("<- child order as order-100, step 0, completed after"), "{first}");
    assert!(first.lines().last().unwrap().starts_with("continued as execution 1"), "{first}");
    let findings = place.json("workflow replay-check s");
    let found: Vec<_> = findings.iter().map(|one| (&one["execution"], &one["problems"])).collect();
    let none = json!([]);
    assert_eq!(found, [(&json!(0), &none), (&json!(1), &none), (&json!(2), &none)]);
    let second = place.one("workflow replay-check s --execution 1");
    assert_eq!(second["execution"], 1);

    // A recording contains all that a test needs.
    let text = place.ok("workflow history s --recording");
    let recorded: Vec<Recorded> = serde_json::from_str(&text).unwrap();
    assert_eq!(recorded.len(), 3);
    for execution in &recorded {
        replay_check(shop, execution).unwrap();
    }
    std::fs::write(place.file("s.json"), &text).unwrap();
    assert_eq!(place.json("workflow replay-check --file s.json").len(), 3);

    // Earlier executions can be pruned, the oldest first.
    let said = place.run("workflow prune s");
    assert_eq!(said.code, 2, "{said:?}");
    let would = json!({ "id": "s", "pruned": 1, "dry_run": true });
    assert_eq!(place.one("workflow prune s --keep 1 --dry-run"), would);
    assert_eq!(
        place.ok("workflow prune s --older-than 1d"),
        "Deleted 0 executions of workflow s.\n"
    );
    assert_eq!(place.ok("workflow prune s --keep 1"), "Deleted 1 execution of workflow s.\n");
    assert_eq!(engine.executions(&key("s"), None, 10).await.unwrap().len(), 1);

    // The executions and the children are deleted with the workflow.
    let said = place.run("workflow delete s");
    assert!(said.code == 2 && said.err.ends_with("[not_confirmed]\n"), "{said:?}");
    assert_eq!(
        place.one("workflow delete s --yes"),
        json!({ "id": "s", "deleted": true, "tasks": 3 })
    );
    for id in ["s", "order-100", "order-200"] {
        assert_eq!(place.run(&format!("workflow show {id}")).code, 4, "{id}");
    }
    assert!(engine.executions(&key("s"), None, 10).await.unwrap().is_empty());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_only_workflows() {
    let place = Place::empty();
    for n in 0..60 {
        place.ok(&format!("task create plain --id a{n:02}"));
    }
    for (id, kind) in [("b1", "order"), ("b2", "order"), ("b3", "shop")] {
        place.ok(&format!("workflow start {kind} --id {id} --lane orders"));
    }
    place.ok("workflow cancel b2 --force");
    let listed = |line: &str| {
        let rows = place.json(line);
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("workflow list"), ["b1", "b2", "b3"]);
    assert_eq!(listed("workflow list --all"), ["b1", "b2", "b3"]);
    assert_eq!(listed("workflow list --kind order --state waiting"), ["b1"]);
    assert_eq!(listed("workflow list --limit 2"), ["b1", "b2"]);
    assert_eq!(listed("workflow list --limit 2 --after b2"), ["b3"]);
    let page = place.ok("workflow list --limit 2");
    assert!(page.contains("add --after b2"), "{page}");
    let row = page.lines().find(|line| line.trim_start().starts_with("b2")).unwrap();
    assert!(row.contains("cancelled from the command line"), "{row}");
    assert!(!place.ok("workflow list").contains("--after"));
    assert_eq!(place.ok("workflow list --lane elsewhere"), "There is no such workflow.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_is_cancelled_politely_or_by_force() {
    let place = Place::empty();
    let engine = place.application().await;
    let running = works(&engine);
    for id in ["polite", "forced", "left"] {
        place.ok(&format!("workflow start order --id {id} --input 700"));
        until_paid(&engine, id).await;
    }
    let said = place.run("workflow delete polite --yes");
    assert!(said.code == 3 && said.err.ends_with("[not_terminal]\n"), "{said:?}");
    assert!(said.err.contains("windlass workflow cancel polite"), "{said:?}");
    place.ok("workflow cancel polite --reason enough");
    until(&engine, "polite", |task| task.lifecycle.ended_at().is_some()).await;
    let shown = place.one("workflow show polite");
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("cancelled"), &json!("enough")));
    let history = place.ok("workflow history polite");
    assert!(history.contains("<- cancellation requested: enough"), "{history}");
    assert!(history.contains("-> activity refund, step 3: 700"), "{history}");

    let forced = place.one("workflow cancel forced --force");
    assert_eq!(forced, json!({ "id": "forced", "state": "cancelled", "cancel_requested": false }));
    assert!(!place.ok("workflow history forced").contains("refund"));
    assert_eq!(place.ok("workflow replay-check forced"), "execution 0: 2 turns, well formed\n");
    let late = place.run("workflow signal forced approved");
    assert!(late.code == 3 && late.err.ends_with("[already_terminal]\n"), "{late:?}");
    running.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();

    // No worker has its code.
    let said = place.ok("workflow cancel left");
    assert!(said.starts_with("Cancellation of workflow left is requested"), "{said}");
    let shown = place.ok("workflow show left");
    assert!(shown.contains("cancel reason  cancelled from the command line"), "{shown}");
    // A workflow that has not run yet is cancelled at once: it has nothing to clean up.
    place.ok("workflow start order --id alone --input 1");
    assert_eq!(place.ok("workflow cancel alone"), "Workflow alone is cancelled.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_history_is_reported() {
    let place = Place::empty();
    place.ok("workflow start order --id o --lane orders");
    let engine = place.application().await;
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
            taken: vec![],
            commands: vec![],
            next_step: 3,
            then: if last {
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
    let found = place.one_of("workflow replay-check o", 1);
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
    let said = place.run("workflow replay-check o");
    assert!(said.out.starts_with("execution 0, turn 0: "), "{said:?}");
    assert!(said.err.ends_with("4 problems found [unhealthy]\n"), "{said:?}");

    let sqlite = rusqlite::Connection::open(place.file("app.db")).unwrap();
    let spoilt = sqlite
        .execute("UPDATE payload SET bytes = x'7b' WHERE task = 'o' AND slot LIKE 'turn/%1'", []);
    assert_eq!(spoilt.unwrap(), 1);
    let found = place.one_of("workflow replay-check o", 1);
    assert!(found["problems"][0]["what"].as_str().unwrap().contains("EOF"), "{found}");

    // Everything except the damaged row is shown.
    let shown = place.run("workflow show o");
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("suspended since"), "{shown:?}");
    assert!(shown.out.contains("row 1 of the history cannot be read: EOF"), "{shown:?}");
    assert!(!shown.out.contains("waits for"), "{shown:?}");
    let shown = place.one_of("workflow show o", 0);
    assert!(
        shown["history_error"].as_str().unwrap().starts_with("row 1 of the history"),
        "{shown}"
    );
    let told = place.run("workflow history o");
    assert_ne!(told.code, 0, "{told:?}");
    assert!(told.out.contains(", execution 0, 1 turn\nturn    0 "), "{told:?}");
    assert!(told.err.contains("row 1 of the history cannot be read: EOF"), "{told:?}");
    assert!(told.err.ends_with("[bad_history]\n"), "{told:?}");
    let told = place.run("workflow history o --json");
    assert_eq!((told.code == 0, told.out.lines().count()), (false, 1), "{told:?}");
    engine.shutdown().await.unwrap();
}

#[test]
fn a_task_that_is_not_a_workflow_is_reported() {
    let place = Place::empty();
    place.ok("task create email --id t");
    for verb in ["show t", "history t", "tree t", "signal t go", "cancel t", "delete t --yes"] {
        let Said { code, err, .. } = place.run(&format!("workflow {verb}"));
        assert!(code == 3 && err.ends_with("[not_a_workflow]\n"), "{verb}: {err}");
        let missing = verb.replace(" t", " missing");
        let Said { code, err, .. } = place.run(&format!("workflow {missing}"));
        assert!(code == 4 && err.ends_with("[task_not_found]\n"), "{missing}: {err}");
    }
}

/// If the code does not match the history, the workflow waits for matching code and shows why.
#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_cannot_continue_shows_why() {
    async fn changed(ctx: Workflow, cents: u64) -> Result<u64, StepError> {
        ctx.activity(refund, &cents).await
    }
    let place = Place::empty();
    let engine = place.application().await;
    let running = works(&engine);
    place.ok("workflow start order --id o --input 500");
    until_paid(&engine, "o").await;
    running.drain(Duration::from_secs(10)).await;
    let worker = engine.worker("worker-1").activity(refund);
    let running =
        worker.workflow_definition(WorkflowDefinition::named("order", changed)).start().unwrap();
    place.ok("workflow signal o approved --payload \"ada\"");
    until(&engine, "o", |task| task.progress.is_some()).await;
    for line in ["workflow show o", "workflow list"] {
        let said = place.ok(line);
        let why = "the history has activity `charge` (step 0), the code makes activity `refund`";
        assert!(said.contains(why), "{line}: {said}");
    }
    running.drain(Duration::from_secs(10)).await;
    assert_eq!(place.ok("workflow replay-check o"), "execution 0: 2 turns, well formed\n");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_workflow_is_a_dead_letter_and_cannot_be_replayed() {
    let place = Place::empty();
    let engine = place.application().await;
    let running = works(&engine);
    place.ok("workflow start order --id o --input 0");
    until(&engine, "o", |task| task.lifecycle.ended_at().is_some()).await;
    running.drain(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
    assert!(place.ok("workflow show o").contains("nothing to pay"));
    let history = place.ok("workflow history o");
    let told = history.lines().find(|line| line.contains("<- activity charge")).unwrap();
    assert!(told.contains("failed after ") && told.ends_with(": permanent: nothing to pay"));
    assert!(history.lines().last().unwrap().starts_with("failed after "), "{history}");
    assert_eq!(place.one("dlq list")["id"], "o");
    let said = place.run("task replay o");
    assert!(said.code == 3 && said.err.ends_with("[workflow_not_replayable]\n"), "{said:?}");
    assert_eq!(place.run("dlq replay --all").code, 3);
    assert_eq!(place.ok("workflow delete o --yes"), "Workflow o is deleted.\n");
    let sqlite = rusqlite::Connection::open(place.file("app.db")).unwrap();
    let left = "SELECT count(*) FROM payload";
    assert_eq!(sqlite.query_row(left, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_may_arrive_before_the_start() {
    let place = Place::empty();
    let engine = place.application().await;
    let said = place.run("workflow signal o approved --payload \"ada\"");
    assert_eq!(said.code, 4, "{said:?}");
    let said = place.run("workflow signal o approved --payload \"ada\" --before-start 1h");
    let told = "There is no workflow o yet. Message 1 waits for it.\n";
    assert_eq!((said.code, said.out.as_str()), (0, told), "{said:?}");
    let said = place.run("workflow signal o approved --before-start --json");
    let kept: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&kept["buffered"], &kept["seq"]), (&json!(true), &json!(2)));
    let said = place.run("workflow signal o approved --before-start 99d");
    assert_eq!(said.code, 2, "{said:?}");
    let running = works(&engine);
    place.run("workflow start order --id o --input 500");
    let done = engine.workflow(key("o")).returning::<String>().result().await.unwrap();
    assert_eq!(done, "paid 500, approved by ada");
    running.drain(EVER).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_may_start_its_workflow() {
    let place = Place::empty();
    let engine = place.application().await;
    let running = works(&engine);
    let said = place.run("workflow signal o approved --payload \"ada\" --start order --input 500");
    assert_eq!(said.code, 0, "{said:?}");
    let done = engine.workflow(key("o")).returning::<String>().result().await.unwrap();
    assert_eq!(done, "paid 500, approved by ada");
    for wrong in [
        "workflow signal p approved --input 500",
        "workflow signal p approved --lane slow",
        "workflow signal p approved --start order --before-start 1h",
        "workflow signal p approved --start order --input {",
    ] {
        assert_eq!(place.run(wrong).code, 2, "{wrong}");
    }
    assert_eq!(place.run("workflow show p").code, 4, "a rejected start leaves nothing");
    running.drain(EVER).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_are_deleted_by_a_filter() {
    let place = Place::empty();
    let engine = place.application().await;
    for n in 0..5 {
        place.ok(&format!("workflow start order --id o{n} --input 500"));
    }
    for n in 0..3 {
        place.ok(&format!("workflow cancel o{n} --force"));
    }
    assert_eq!(place.run("workflow delete --yes").code, 2, "a filter is required");
    assert_eq!(place.run("workflow delete o1 --kind order --yes").code, 2);
    let said = place.run("workflow delete --kind order");
    assert!(said.code == 2 && said.err.ends_with("[not_confirmed]\n"), "{said:?}");
    let would = place.json("workflow delete --kind order --dry-run");
    assert_eq!(would.len(), 3, "running workflows are skipped: {would:?}");
    assert_eq!(would[0], json!({ "id": "o0", "deleted": false, "dry_run": true }));
    let told = place.ok("workflow delete --status cancelled --name order --older-than 1d --yes");
    assert_eq!(told, "Deleted 0 workflows, 0 tasks in all.\n");
    let told = place.ok("workflow delete --state cancelled --kind order --limit 2 --yes");
    assert_eq!(told, "Deleted 2 workflows, 2 tasks in all.\n");
    let gone = place.json("workflow delete --kind order --force --yes");
    assert_eq!(gone.len(), 3, "{gone:?}");
    assert_eq!(place.json("workflow list").len(), 0);
    engine.shutdown().await.unwrap();
}
