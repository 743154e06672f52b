use windlass_core::{Index, Range, Row, Scan, StoredRow, Table, Value, Version};
use windlass_store::Query;

use super::case::Verdict;
use super::context::{Context, ensure, same};
use crate::fixture::{TaskSpot, inserts, lane_key, lane_row};

/// Texts that databases and drivers are known to alter, in byte order.
fn texts() -> Vec<String> {
    let four_bytes_each = "\u{1f600}".repeat(63);
    let mut texts: Vec<String> = [
        " leading and trailing ",
        "%_[]*?",
        "'; DROP TABLE task; --",
        "0",
        "00",
        "1",
        "10",
        "2",
        "A",
        "Z",
        "\"quoted\"",
        "\\ back \\\\ slash \\n",
        "a",
        "a\u{301}",
        "aa",
        "null",
        "\u{7f}",
        "\u{e1}",
        "\u{df}",
        "\u{130}",
        "\u{feff}mark",
        "\u{ffff}",
        "\u{10000}",
        "\u{1f469}\u{200d}\u{1f680}",
        "\u{202e}right to left",
    ]
    .map(String::from)
    .into();
    texts.push(four_bytes_each);
    texts.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    texts
}

pub(super) async fn texts_survive(context: &Context<'_>) -> Verdict {
    let rows: Vec<Row> = texts().iter().map(|text| lane_row(text, 1)).collect();
    context.commit(inserts(rows.clone())).await?;
    for written in rows {
        let Row { key, version, schema, body, .. } = written;
        let found = context.store.query(&Query::one(key.clone())).await?;
        same("a row", &found, &vec![StoredRow { key, version, schema, body }])?;
    }
    for text in texts() {
        let filter = vec![("name", Value::from(text.as_str()))];
        let query = Query { filter, ..Query::all(Table::Lane, 9) };
        same(&text, &context.store.query(&query).await?.len(), &1)?;
    }
    Ok(())
}

pub(super) async fn texts_are_ordered_by_their_bytes(context: &Context<'_>) -> Verdict {
    let task = |text: &String| {
        let mut row = TaskSpot::ready("", 0, 0).row(1);
        row.key.values[1] = text.as_str().into();
        row
    };
    context.commit(inserts(texts().iter().rev().map(task))).await?;
    let last = |values: &[Value]| values.last().cloned();
    let expected: Vec<_> = texts().iter().map(|text| Some(text.as_str().into())).collect();
    let rows = context.store.query(&Query::all(Table::Task, 99)).await?;
    let found: Vec<_> = rows.iter().map(|row| last(&row.key.values)).collect();
    same("by key", &found, &expected)?;
    let range = Range { index: Index::TaskReady, prefix: Vec::new(), until: None };
    let pages = context.scan(vec![Scan { range, after: None, limit: 99 }]).await?.pages;
    let found: Vec<_> = pages[0].iter().map(|row| last(&row.position)).collect();
    same("by index", &found, &expected)
}

pub(super) async fn extreme_numbers_survive(context: &Context<'_>) -> Verdict {
    let extreme =
        |id, number| TaskSpot { due_at: Some(number), ..TaskSpot::ready(id, number, number) };
    let spots =
        [("a", i64::MAX), ("b", 0), ("c", i64::MIN), ("d", -1)].map(|(id, n)| extreme(id, n));
    context.commit(inserts(spots.iter().map(|spot| spot.row(spot.rank)))).await?;
    let mut huge = lane_row("huge", i64::MAX);
    huge.schema = u16::MAX;
    context.commit(inserts([huge])).await?;
    let row = context.row(&lane_key("huge")).await?.map(|row| (row.version, row.schema));
    same("a row", &row, &Some((Version(i64::MAX), u16::MAX)))?;
    for index in [Index::TaskReady, Index::TaskDue] {
        let range = Range { index, prefix: Vec::new(), until: None };
        let pages = context.scan(vec![Scan { range, after: None, limit: 9 }]).await?.pages;
        let versions: Vec<_> = pages[0].iter().map(|row| row.version.0).collect();
        same(&format!("{index:?}"), &versions, &vec![i64::MIN, -1, 0, i64::MAX])?;
    }
    Ok(())
}

pub(super) async fn a_long_body_survives(context: &Context<'_>) -> Verdict {
    let mut row = lane_row("long", 1);
    // Order, spaces and repeated keys must be preserved: a body is opaque to a store.
    row.body = format!("{{\"z\": 1.50,  \"a\": \"{}\", \"a\": null}}", "\u{fc}".repeat(1 << 20));
    context.commit(inserts([row.clone()])).await?;
    let found = context.row(&lane_key("long")).await?;
    ensure(found.is_some_and(|found| found.body == row.body), || "the body changed".into())
}
