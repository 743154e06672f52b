use std::collections::BTreeSet;

use windlass_core::{
    ChangeSet, Index, LoadRequest, PageRow, Range, ReferenceTables, Row, RowKey, Scan, Table,
    Update, Value, Version,
};

use super::case::Verdict;
use super::context::{Context, ensure, same};
use crate::fixture::{TaskSpot, admission_row, inserts, lane_key, lane_row, queue_row, task_key};

/// Tasks of one queue in index order, by name; then others around it.
fn spots() -> Vec<TaskSpot> {
    let ready = TaskSpot::ready;
    let outside = |id, due_at| TaskSpot { ready_at: None, due_at, ..ready(id, -99, 0) };
    let in_line =
        |id, line, since| TaskSpot { rank: 0, line: Some((line, since)), ..outside(id, None) };
    vec![
        ready("urgent", -1_000_000, 50),
        ready("high-early", -5, 1),
        ready("high-late", -5, 2),
        ready("plain-before-1970", 0, -7),
        ready("plain-tie-a", 0, 7),
        ready("plain-tie-b", 0, 7),
        TaskSpot { due_at: Some(40), ..ready("plain-with-deadline", 0, 8) },
        ready("last", 1_000_000, 0),
        outside("delayed", Some(30)),
        outside("delayed-tie", Some(30)),
        outside("ended-for-good", None),
        TaskSpot { lane: "k", ..ready("of-another-lane", 0, 0) },
        TaskSpot { lane: "ll", ..ready("of-a-longer-lane", 0, 0) },
        TaskSpot { route: "gpu", ..ready("of-another-route", 0, 0) },
        TaskSpot { tenant: "acme", ..ready("plain-tie-a", 0, 0) },
        TaskSpot { tenant: "acme", ready_at: None, due_at: Some(-30), ..ready("early", 0, 0) },
        TaskSpot { rank: 3, ..in_line("line-last", "key/k", 1) },
        in_line("line-late", "key/k", 20),
        in_line("line-early", "key/k", -20),
        in_line("line-other", "key/kk", 0),
        TaskSpot { tenant: "acme", ..in_line("line-late", "key/k", 0) },
        TaskSpot { open_parent: Some("p"), ..outside("child-b", None) },
        TaskSpot { open_parent: Some("p"), due_at: Some(3_000), ..ready("child-a", 2_000_000, 0) },
        TaskSpot { open_parent: Some("pp"), ..outside("child-c", None) },
    ]
}

fn rows() -> Vec<Row> {
    // Inserted in reverse, so that insertion order does not match index order.
    let tasks = spots().into_iter().rev().map(|spot| spot.row(1));
    let queues = [("default", "m", "", 3), ("default", "l", "gpu", 2), ("default", "l", "", 9)];
    let queues = queues.into_iter().chain([("acme", "l", "@a", -1), ("acme", "l", "", 9)]);
    let admissions = [("b", 4), ("a", 4), ("c", i64::MIN), ("d", 5)];
    tasks
        .chain(queues.map(|(tenant, lane, route, due)| queue_row(tenant, lane, route, due)))
        .chain(admissions.map(|(key, due)| admission_row(key, due)))
        .chain([lane_row("l", 1)])
        .chain(others())
        .collect()
}

/// Rows of tables without their own case, indexed and not indexed.
fn others() -> impl Iterator<Item = Row> {
    let int = |number: i64| Value::Int(number);
    let due = |at: Option<i64>| Value::from(at);
    let (task, w, no_owner) = (|| Value::from("t"), || Value::from("w"), || Value::Null);
    let rows = [
        (Table::Message, vec!["t", "2"], vec!["name".into(), due(Some(4))]),
        (Table::Message, vec!["t", "1"], vec!["name".into(), due(None)]),
        (Table::Message, vec!["u", "0"], vec!["name".into(), due(Some(-4))]),
        (Table::Waitpoint, vec!["w"], vec![task(), "active".into(), int(9)]),
        (Table::Waitpoint, vec!["v"], vec![task(), "active".into(), Value::Null]),
        (Table::Keyring, vec![], vec![due(Some(7))]),
        (Table::Children, vec!["t"], vec![int(2), int(1), due(Some(4))]),
        (Table::Children, vec!["u"], vec![int(0), int(1), due(None)]),
        (
            Table::ConcurrencyLimit,
            vec!["key", "late"],
            vec![int(0), int(1), no_owner(), int(1), due(Some(4))],
        ),
        (
            Table::ConcurrencyLimit,
            vec!["session", "early"],
            vec![int(0), int(1), w(), int(1), due(Some(3))],
        ),
        (
            Table::ConcurrencyLimit,
            vec!["session", "busy"],
            vec![int(2), int(1), w(), int(1), due(None)],
        ),
        (
            Table::ConcurrencyLimit,
            vec!["key", "never"],
            vec![int(5), int(1), no_owner(), int(1), due(None)],
        ),
        (Table::Worker, vec!["w"], vec![int(0), due(Some(4))]),
        (Table::Worker, vec!["v"], vec![int(0), due(Some(5))]),
        (Table::SubscriptionCursor, vec!["b"], vec![int(3)]),
        (Table::Mailbox, vec!["t"], vec![int(3), int(1)]),
    ];
    rows.into_iter().map(|(table, key, columns)| {
        let own = key.into_iter().map(Value::from);
        let values = std::iter::once(Value::from("default")).chain(own).collect();
        let key = RowKey { table, values };
        Row { key, version: Version(1), columns, schema: 1, body: "{}".into() }
    })
}

fn ready_queue() -> Range {
    let prefix = vec!["default".into(), "l".into(), "".into()];
    Range { index: Index::TaskReady, prefix, until: None }
}

fn prefixed(index: Index, prefix: &[&str]) -> Range {
    Range { index, prefix: prefix.iter().map(|part| Value::from(*part)).collect(), until: None }
}

fn due(index: Index, until: Option<i64>) -> Range {
    Range { index, prefix: Vec::new(), until: until.map(Value::Int) }
}

fn ids(page: &[PageRow]) -> Vec<String> {
    let id = |row: &PageRow| match row.position.last() {
        Some(Value::Text(id)) => id.to_string(),
        other => format!("{other:?}"),
    };
    page.iter().map(id).collect()
}

pub(super) async fn a_load_finds_existing_rows(context: &Context<'_>) -> Verdict {
    context.commit(inserts(rows())).await?;
    let mut wanted = LoadRequest {
        rows: vec![
            task_key("urgent"),
            lane_key("l"),
            task_key("missing"),
            lane_key("missing"),
            queue_row("default", "m", "", 0).key,
            admission_row("a", 0).key,
        ],
        ..LoadRequest::default()
    };
    let found = context.load(wanted.clone()).await?;
    let keys: BTreeSet<_> = found.rows.iter().map(|row| row.key.clone()).collect();
    wanted.rows.retain(|key| key.values.iter().all(|value| *value != Value::from("missing")));
    same("rows", &keys, &wanted.rows.into_iter().collect())?;
    same("each once", &found.rows.len(), &keys.len())?;
    for row in &found.rows {
        let written = rows().into_iter().find(|written| written.key == row.key);
        let written = written.map(|row| (row.version, row.schema, row.body));
        let found = (row.version, row.schema, row.body.clone());
        same("a row", &Some(found), &written)?;
    }
    same("an empty load", &context.load(LoadRequest::default()).await?, &Default::default())
}

pub(super) async fn a_wide_load_is_served(context: &Context<'_>) -> Verdict {
    let names: Vec<String> = (0..3_000).map(|n| format!("lane-{n:05}")).collect();
    context.commit(inserts(names.iter().map(|name| lane_row(name, 1)))).await?;
    let lanes = names.iter().map(|name| lane_key(name));
    let tasks = names.iter().map(|name| task_key(name));
    let wanted = LoadRequest { rows: lanes.chain(tasks).collect(), ..LoadRequest::default() };
    let found = context.load(wanted).await?.rows;
    same("rows", &found.len(), &names.len())?;
    ensure(found.iter().all(|row| row.key.table == Table::Lane), || "a row of another table".into())
}

pub(super) async fn a_scan_follows_its_index(context: &Context<'_>) -> Verdict {
    context.commit(inserts(rows())).await?;
    let scan = |range| Scan { range, after: None, limit: 100 };
    let scans = vec![
        scan(ready_queue()),
        scan(due(Index::TaskDue, Some(30))),
        scan(due(Index::ReadyRouteDue, Some(3))),
        scan(due(Index::AdmissionDue, Some(4))),
        scan(prefixed(Index::TaskList, &["default", "key/k"])),
        scan(prefixed(Index::TaskOpenChild, &["default", "p"])),
        scan(due(Index::ConcurrencyLimitDue, Some(4))),
    ];
    let pages = context.scan(scans).await?.pages;
    same("pages", &pages.len(), &7)?;
    let mut ready: Vec<String> = spots()[..8].iter().map(|spot| spot.id.to_owned()).collect();
    ready.push("child-a".into());
    same("ready", &ids(&pages[0]), &ready)?;
    same(
        "due tasks",
        &ids(&pages[1]),
        &["early", "delayed", "delayed-tie"].map(String::from).into(),
    )?;
    same("due queues", &ids(&pages[2]), &["@a", "gpu", ""].map(String::from).into())?;
    same("due keys", &ids(&pages[3]), &["c", "a", "b"].map(String::from).into())?;
    let line = ["line-early", "line-late", "line-last"];
    same("a waiting list", &ids(&pages[4]), &line.map(String::from).into())?;
    same("open children", &ids(&pages[5]), &["child-a", "child-b"].map(String::from).into())?;
    same("due limits", &ids(&pages[6]), &["early", "late"].map(String::from).into())
}

/// Every kind of range, unlimited and with limits.
fn scans() -> Vec<Scan> {
    let text = |text: &str| Value::from(text);
    let rank = |until| Range { until: Some(Value::Int(until)), ..ready_queue() };
    let lanes_until =
        |lane| Range { until: Some(text(lane)), ..prefixed(Index::TaskReady, &["default"]) };
    let ranges = [
        ready_queue(),
        rank(-5),
        rank(-6),
        rank(i64::MAX),
        lanes_until("l"),
        prefixed(Index::TaskReady, &[]),
        prefixed(Index::TaskReady, &["default"]),
        prefixed(Index::TaskReady, &["default", "l"]),
        prefixed(Index::TaskReady, &["missing"]),
        prefixed(Index::TaskList, &["default", "key/k"]),
        prefixed(Index::TaskList, &["default"]),
        Range { until: Some(Value::Int(0)), ..prefixed(Index::TaskList, &["default", "key/k"]) },
        prefixed(Index::TaskOpenChild, &["default", "p"]),
        prefixed(Index::TaskOpenChild, &["default"]),
        prefixed(Index::MessageOfTask, &["default", "t"]),
        prefixed(Index::MessageOfTask, &["default"]),
        due(Index::MessageDue, Some(4)),
        prefixed(Index::WaitpointOfTask, &["default", "t"]),
        due(Index::KeyringDue, None),
        due(Index::ChildrenDue, Some(4)),
        due(Index::ConcurrencyLimitDue, Some(4)),
        prefixed(Index::ConcurrencyLimitOwned, &["default", "w"]),
        prefixed(Index::ConcurrencyLimitOwned, &["default"]),
        due(Index::WorkerDue, Some(4)),
        prefixed(Index::ReadyRouteByLane, &["default", "l"]),
        prefixed(Index::ReadyRouteByLane, &["acme"]),
        due(Index::TaskDue, None),
        due(Index::TaskDue, Some(29)),
        due(Index::TaskDue, Some(30)),
        due(Index::TaskDue, Some(i64::MIN)),
        due(Index::ReadyRouteDue, Some(2)),
        due(Index::ReadyRouteDue, None),
        due(Index::AdmissionDue, Some(i64::MIN)),
        due(Index::AdmissionDue, None),
    ];
    let cut = |range: Range| {
        [0, 1, 2, 3, 100].map(|limit| Scan { range: range.clone(), after: None, limit })
    };
    ranges.into_iter().flat_map(cut).collect()
}

pub(super) async fn scans_keep_to_their_ranges(context: &Context<'_>) -> Verdict {
    let mut tables = ReferenceTables::default();
    tables.commit(&inserts(rows())).expect("the reference tables are empty");
    context.commit(inserts(rows())).await?;
    for scan in scans() {
        let wanted = LoadRequest { scans: vec![scan.clone()], ..LoadRequest::default() };
        let (found, expected) = (context.load(wanted.clone()).await?, tables.load(&wanted));
        same(&format!("{scan:?}"), &found, &expected)?;
    }
    let together = context.scan(scans()).await?;
    let expected = tables.load(&LoadRequest { scans: scans(), ..LoadRequest::default() });
    same("all of them in one load", &together, &expected)
}

pub(super) async fn pages_join_without_a_seam(context: &Context<'_>) -> Verdict {
    context.commit(inserts(rows())).await?;
    for whole in scans().into_iter().filter(|scan| scan.limit == 100) {
        let expected = context.scan(vec![whole.clone()]).await?.pages;
        for limit in [1, 2, 3, 7] {
            let mut joined: Vec<PageRow> = Vec::new();
            loop {
                let after = joined.last().map(|row| row.position.clone());
                let scan = Scan { after, limit, ..whole.clone() };
                let page = context.scan(vec![scan]).await?.pages.remove(0);
                let last = page.len() < limit;
                joined.extend(page);
                if last || joined.len() > expected[0].len() {
                    break;
                }
            }
            same(&format!("{whole:?} by {limit}"), &vec![joined], &expected)?;
        }
    }
    Ok(())
}

pub(super) async fn an_update_moves_a_row_in_its_indexes(context: &Context<'_>) -> Verdict {
    let spot = TaskSpot::ready("moved", 0, 10);
    context.commit(inserts([spot.row(1), TaskSpot::ready("fixed", 0, 20).row(1)])).await?;
    let steps = [
        (TaskSpot { rank: 1, ..spot }, "fixed moved", ""),
        (TaskSpot { ready_at: None, due_at: Some(5), ..spot }, "fixed", "moved"),
        (TaskSpot { ready_at: Some(30), due_at: Some(6), ..spot }, "fixed moved", "moved"),
        (TaskSpot { lane: "k", ..spot }, "fixed", ""),
        (TaskSpot { ready_at: Some(-1), ..spot }, "moved fixed", ""),
    ];
    for (version, (spot, ready, due_ids)) in (1..).zip(steps) {
        let update = Update { row: spot.row(version + 1), expected: Version(version) };
        context.commit(ChangeSet { updates: vec![update], ..ChangeSet::default() }).await?;
        let scan = |range| Scan { range, after: None, limit: 9 };
        let scans = vec![scan(ready_queue()), scan(due(Index::TaskDue, None))];
        let pages = context.scan(scans).await?.pages;
        let found: Vec<String> = pages.iter().map(|page| ids(page).join(" ")).collect();
        same(&format!("{spot:?}"), &found, &vec![ready.into(), due_ids.into()])?;
    }
    let deletes = vec![(task_key("moved"), Version(6))];
    context.commit(ChangeSet { deletes, ..ChangeSet::default() }).await?;
    let scan = Scan { range: ready_queue(), after: None, limit: 9 };
    let pages = context.scan(vec![scan]).await?.pages;
    same("after the delete", &ids(&pages[0]), &vec!["fixed".to_owned()])
}
