use windlass_core::command::{
    Cancel, ChangePriority, Claim, Complete, Create, DeleteTask, NewTask, Outcome, SetLaneState,
    Sweep,
};
use windlass_core::{
    LaneName, LaneState, ReferenceTables, Row, RowKey, StoredRow, TaskKey, Tenant, Version,
};

use super::case::{Verdict, Wrong};
use super::context::{Context, ensure, same};
use crate::fixture::{START, TaskSpot, inserts, lane_key, lane_row, task_key};

/// A schema version that no record of this program has.
const NEWER: u16 = 99;

/// The row as a later version might have written it.
fn newer(mut row: Row) -> Row {
    row.schema = NEWER;
    row.body.truncate(row.body.len() - 1);
    row.body.push_str(r#","colour":{"of":["it",1.5,null]},"flavour":"sour"}"#);
    row
}

fn keeps_its_fields(what: &str, row: Option<StoredRow>, schema: u16) -> Verdict {
    let Some(row) = row else { return Err(Wrong(format!("{what}: it does not exist"))) };
    same(what, &row.schema, &schema)?;
    let body: serde_json::Value = serde_json::from_str(&row.body)
        .map_err(|error| Wrong(format!("{what}: {error} in {}", row.body)))?;
    let fields = (&body["colour"], &body["flavour"]);
    same(what, &fields, &(&serde_json::json!({ "of": ["it", 1.5, null] }), &"sour".into()))
}

pub(super) async fn fields_of_a_newer_version_are_preserved(context: &Context<'_>) -> Verdict {
    context.commit(inserts([newer(lane_row("l", 7))])).await?;
    let (tenant, lane) = (Tenant::default(), LaneName::new("l"));
    context.must(SetLaneState { tenant, lane, state: LaneState::Paused }).await?;
    let row = context.row(&lane_key("l")).await?;
    let seen = row
        .as_ref()
        .map(|row| (row.version > Version(7), row.body.contains(r#""state":"paused""#)));
    same("the change", &seen, &Some((true, true)))?;
    keeps_its_fields("the lane", row, NEWER)
}

/// The rows that a command inserts, computed without a store.
fn rows_of(create: Create) -> Vec<Row> {
    ReferenceTables::default().attempt(START, &create.into()).1.inserts
}

pub(super) async fn a_task_of_a_newer_version_can_be_worked_on(context: &Context<'_>) -> Verdict {
    let rows = rows_of(Create::one(NewTask::new("t", "k"))).into_iter().map(newer);
    context.commit(inserts(rows)).await?;
    let Outcome::Claimed(tasks) = context.must(Claim::new("w")).await? else {
        return Err(Wrong("unexpected outcome of a claim".into()));
    };
    same("claimed", &tasks.len(), &1)?;
    keeps_its_fields("the claimed task", context.row(&task_key("t")).await?, NEWER)?;
    context.must(Complete { fence: tasks[0].fence(), result: None }).await?;
    keeps_its_fields("the completed task", context.row(&task_key("t")).await?, NEWER)
}

/// A lane with a decodable task behind an undecodable one.
async fn with_unreadable(context: &Context<'_>) -> Result<RowKey, Wrong> {
    let task = NewTask { lane: "l".into(), ..NewTask::new("readable", "k") };
    context.must(Create::one(task)).await?;
    let row = TaskSpot {
        due_at: Some(START.micros()),
        ..TaskSpot::ready("unreadable", -9, START.micros())
    }
    .row(3);
    let key = row.key.clone();
    context.commit(inserts([row])).await?;
    Ok(key)
}

pub(super) async fn an_undecodable_row_is_quarantined(context: &Context<'_>) -> Verdict {
    let key = with_unreadable(context).await?;
    let before = context.row(&key).await?;
    let task = TaskKey::new(&Tenant::default(), &"unreadable".into());
    let answers = [
        context.run(Cancel { task: task.clone(), reason: "stop".into() }).await?,
        context.run(ChangePriority { task: task.clone(), priority: 1 }).await?,
        context.run(DeleteTask { task }).await?,
        context.run(Create::one(NewTask::new("unreadable", "k"))).await?,
    ];
    for answer in answers {
        same("the result", &answer.map_err(|rejection| rejection.code()), &Err("quarantined"))?;
    }
    let claim = Claim { lanes: vec!["l".into()], limit: 9, ..Claim::new("w") };
    let Outcome::Claimed(tasks) = context.must(claim).await? else {
        return Err(Wrong("unexpected outcome of a claim".into()));
    };
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    same("claimed", &ids, &vec!["readable"])?;
    same("the undecodable row", &context.row(&key).await?, &before)
}

pub(super) async fn an_undecodable_row_is_not_swept(context: &Context<'_>) -> Verdict {
    let key = with_unreadable(context).await?;
    let before = context.row(&key).await?;
    let claim = Claim { lanes: vec!["l".into()], lease_ms: 1_000, ..Claim::new("w") };
    context.must(claim).await?;
    context.clock.advance_ms(2_000);
    let swept = context.must(Sweep { page: 1 }).await?;
    let only_the_other = matches!(swept, Outcome::Swept { swept: 1, .. });
    ensure(only_the_other, || format!("the sweep returned {swept:?}"))?;
    same("the undecodable row", &context.row(&key).await?, &before)
}
