use windlass_core::{Row, RowKey, StoredRow, Table, Value};
use windlass_store::{Count, Query};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};
use crate::fixture::{TaskSpot, inserts, lane_key, lane_row, queue_row, task_key};

/// Tasks in key order.
fn spots() -> Vec<TaskSpot> {
    let ready = TaskSpot::ready;
    vec![
        TaskSpot { tenant: "acme", ..ready("a", 0, 1) },
        TaskSpot { tenant: "acme", lane: "k", ..ready("d", 0, 1) },
        ready("a", 0, 5),
        ready("b", 3, 4),
        TaskSpot { lane: "k", ready_at: None, due_at: Some(9), ..ready("c", 0, 0) },
        TaskSpot { ready_at: None, due_at: Some(8), ..ready("d", 0, 0) },
        TaskSpot { route: "gpu", ..ready("e", 3, 2) },
    ]
}

async fn plant(context: &Context<'_>) -> Verdict {
    let others: [Row; 3] = [lane_row("a", 1), lane_row("b", 1), queue_row("default", "a", "b", 1)];
    context.commit(inserts(spots().into_iter().rev().map(|spot| spot.row(4)))).await?;
    context.commit(inserts(others)).await?;
    Ok(())
}

fn names(rows: &[StoredRow]) -> String {
    rows.iter().map(|row| joined(&row.key.values)).collect::<Vec<_>>().join(" ")
}

fn joined(values: &[Value]) -> String {
    let text = |value: &Value| match value {
        Value::Text(text) => text.to_string(),
        other => format!("{other:?}"),
    };
    values.iter().map(text).collect::<Vec<_>>().join("/")
}

async fn check(context: &Context<'_>, query: Query, expected: &str) -> Result<(), Wrong> {
    let found = context.store.query(&query).await?;
    same(&format!("{query:?}"), &names(&found), &expected.to_owned())
}

pub(super) async fn a_query_finds_one_key(context: &Context<'_>) -> Verdict {
    plant(context).await?;
    let spot = spots()[3];
    let Row { key, version, schema, body, .. } = spot.row(4);
    let found = context.store.query(&Query::one(key.clone())).await?;
    same("a row", &found, &vec![StoredRow { key, version, schema, body }])?;
    check(context, Query::one(task_key("missing")), "").await?;
    check(context, Query::one(lane_key("b")), "default/b").await?;
    let elsewhere = RowKey { table: Table::Task, values: vec!["missing".into(), "a".into()] };
    check(context, Query::one(elsewhere), "").await
}

pub(super) async fn a_query_follows_the_keys(context: &Context<'_>) -> Verdict {
    plant(context).await?;
    let all = |limit| Query::all(Table::Task, limit);
    let after = |tenant: &str, id: &str| Some(vec![tenant.into(), id.into()]);
    let own = Query { prefix: vec!["default".into()], ..all(9) };
    for (query, expected) in [
        (all(9), "acme/a acme/d default/a default/b default/c default/d default/e"),
        (all(3), "acme/a acme/d default/a"),
        (all(0), ""),
        (own.clone(), "default/a default/b default/c default/d default/e"),
        (Query { limit: 2, ..own.clone() }, "default/a default/b"),
        (Query { after: after("acme", "d"), ..all(2) }, "default/a default/b"),
        (Query { after: after("acme", "b"), ..all(1) }, "acme/d"),
        (Query { after: after("default", "c"), ..own.clone() }, "default/d default/e"),
        (Query { after: after("default", "e"), ..own }, ""),
        (Query { prefix: vec!["missing".into()], ..all(9) }, ""),
        (Query::all(Table::Lane, 9), "default/a default/b"),
        (Query::all(Table::ReadyRoute, 9), "default/a/b"),
        (Query::all(Table::Admission, 9), ""),
    ] {
        check(context, query, expected).await?;
    }
    Ok(())
}

pub(super) async fn a_query_keeps_to_its_filter(context: &Context<'_>) -> Verdict {
    plant(context).await?;
    let text = |text: &str| Value::from(text);
    type Filter = Vec<(&'static str, Value)>;
    let filters: Vec<(Filter, &str)> = vec![
        (vec![("lane", text("k"))], "acme/d default/c"),
        (vec![("lane", text("k")), ("tenant", text("acme"))], "acme/d"),
        (vec![("id", text("a"))], "acme/a default/a"),
        (vec![("rank", Value::Int(3))], "default/b default/e"),
        (vec![("state", text("delayed"))], "default/c default/d"),
        (vec![("ready_at", Value::Null)], "default/c default/d"),
        (vec![("ready_at", Value::Null), ("due_at", Value::Int(8))], "default/d"),
        (vec![("route", text(""))], "acme/a acme/d default/a default/b default/c default/d"),
        (vec![("lane", text("K"))], ""),
        (vec![("lane", text("k' OR '1'='1"))], ""),
    ];
    for (filter, expected) in filters {
        check(context, Query { filter, ..Query::all(Table::Task, 9) }, expected).await?;
    }
    let query = Query {
        prefix: vec!["default".into()],
        filter: vec![("lane", text("l"))],
        after: Some(vec!["default".into(), "a".into()]),
        ..Query::all(Table::Task, 2)
    };
    check(context, query, "default/b default/d").await
}

pub(super) async fn queries_join_without_a_seam(context: &Context<'_>) -> Verdict {
    plant(context).await?;
    let filter = vec![("lane", Value::from("l"))];
    for query in [Query::all(Table::Task, 9), Query { filter, ..Query::all(Table::Task, 9) }] {
        let expected = context.store.query(&query).await?;
        for limit in [1, 2, 3] {
            let mut joined: Vec<StoredRow> = Vec::new();
            loop {
                let after = joined.last().map(|row| row.key.values.clone());
                let page = context.store.query(&Query { after, limit, ..query.clone() }).await?;
                let last = page.len() < limit;
                joined.extend(page);
                if last || joined.len() > expected.len() {
                    break;
                }
            }
            same(&format!("by {limit}"), &joined, &expected)?;
        }
    }
    ensure(context.store.query(&Query::all(Table::Log, 1)).await?.is_empty(), || "a log".into())
}

pub(super) async fn counts_tell_rows_apart(context: &Context<'_>) -> Verdict {
    plant(context).await?;
    let tasks = |prefix: &[&str], present, by: &[&'static str]| Count {
        table: Table::Task,
        prefix: prefix.iter().map(|text| Value::from(*text)).collect(),
        present,
        by: by.to_vec(),
    };
    for (count, expected) in [
        (tasks(&[], None, &["tenant"]), "acme=2 default=5"),
        (tasks(&["default"], None, &["state"]), "delayed=2 waiting=3"),
        (tasks(&["default"], None, &["lane", "state"]), "k/delayed=1 l/delayed=1 l/waiting=3"),
        (tasks(&["default"], Some("ready_at"), &["lane"]), "l=3"),
        (tasks(&["acme"], Some("due_at"), &["lane"]), ""),
        (tasks(&["missing"], None, &["state"]), ""),
    ] {
        let found = context.store.count(&count).await?;
        let found: Vec<String> =
            found.iter().map(|(kind, rows)| format!("{}={rows}", joined(kind))).collect();
        same(&format!("{count:?}"), &found.join(" "), &expected.to_owned())?;
    }
    Ok(())
}
