use std::collections::BTreeMap;

use windlass_core::command::QuotaScope;
use windlass_core::{
    Change, ChangeSet, Event, FailureClass, LaneName, LaneState, LoadRequest, LogEntry, LogEvent,
    Rate, ResumeCause, Tenant, Timestamp,
};

use super::case::{Verdict, Wrong};
use super::context::{Context, commit, ensure, same};
use crate::fixture::START;

/// An event that is identified by its lane name.
fn event(name: &str, at_ms: i64) -> Event {
    Event {
        at: Timestamp::from_millis(at_ms),
        tenant: Tenant::default(),
        lane: LaneName::new(name),
        task: None,
        labels: BTreeMap::new(),
        change: Change::LaneStateChanged { state: LaneState::Paused },
    }
}

fn appends(names: &[&str]) -> ChangeSet {
    let events = names.iter().map(|name| event(name, 0)).collect();
    ChangeSet { events, ..ChangeSet::default() }
}

fn trim(through: u64) -> ChangeSet {
    ChangeSet { trim_through: Some(through), ..ChangeSet::default() }
}

fn names(events: &[LogEvent]) -> Vec<&str> {
    events.iter().map(|event| event.lane.as_str()).collect()
}

async fn log(context: &Context<'_>) -> Result<Vec<LogEvent>, Wrong> {
    let events = context.store.events(0, 1_000).await?;
    let rising = events.is_sorted_by(|earlier, later| earlier.seq < later.seq);
    ensure(rising, || format!("sequence numbers do not rise: {events:?}"))?;
    Ok(events)
}

pub(super) async fn events_come_in_the_order_of_their_commits(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    context.commit(appends(&["a", "b"])).await?;
    commit(&*other, appends(&["c"])).await?;
    // Has an earlier time, but is committed later.
    let late = ChangeSet { events: vec![event("d", -5)], ..ChangeSet::default() };
    context.commit(late).await?;
    commit(&*other, appends(&["f", "e"])).await?;
    same("events", &names(&log(context).await?), &vec!["a", "b", "c", "d", "f", "e"])
}

pub(super) async fn events_come_in_pages(context: &Context<'_>) -> Verdict {
    context.commit(appends(&["a", "b", "c", "d"])).await?;
    let all = log(context).await?;
    same("events", &all.len(), &4)?;
    for (after, limit, expected) in [
        (0, 2, &all[..2]),
        (all[1].seq, 1, &all[2..3]),
        (all[1].seq, 9, &all[2..]),
        (all[3].seq, 9, &[]),
        (i64::MAX as u64, 9, &[]),
        (0, 0, &[]),
    ] {
        let page = context.store.events(after, limit).await?;
        same(&format!("{limit} after {after}"), &page, &expected.to_vec())?;
    }
    Ok(())
}

pub(super) async fn every_change_round_trips(context: &Context<'_>) -> Verdict {
    let reason = "\u{1f525} \"so\" \\ 'it'\nwent".to_owned();
    let class = FailureClass::Timeout;
    let changes = [
        Change::Created,
        Change::Claimed { epoch: u64::MAX, worker: "w\u{f6}rker".into(), attempt: Some(7) },
        Change::Renewed { epoch: 1, expires_at: Timestamp::from_micros(i64::MAX) },
        Change::RetryScheduled { class, reason: reason.clone(), at: START },
        Change::Failed { class, reason: reason.clone() },
        Change::Cancelled { reason },
        Change::PriorityChanged { priority: i32::MIN },
        Change::LaneLimited { limit: None },
        Change::LaneLimited { limit: Some(u32::MAX) },
        Change::QuotaSet {
            scope: QuotaScope::Concurrency("k\u{e9}y".into()),
            limit: None,
            rate: Some(Rate { limit: u32::MAX, window_ms: u64::MAX }),
        },
        Change::Granted { worker: "w\u{f6}rker".into(), until: START },
        Change::Signalled {
            seq: u64::MAX,
            name: "n\u{e4}me".into(),
            source: "'\"\\".into(),
            waitpoint: Some("p".into()),
        },
        Change::Resumed { cause: ResumeCause::Operator, messages: vec![1], by: Some("ada".into()) },
    ];
    let task = |change| Event {
        task: Some(("t\u{e4}sk".into(), "k\u{ef}nd".into())),
        change,
        ..event("l\u{e0}ne", 7)
    };
    let mut events: Vec<Event> = changes.into_iter().map(task).collect();
    events.push(event("of a lane", i64::MIN));
    let labels = [("wh\u{f6}".to_owned(), "\"so\" \\ 'it'".to_owned())].into();
    events.push(Event { labels, ..task(Change::Promoted) });
    context.commit(ChangeSet { events: events.clone(), ..ChangeSet::default() }).await?;
    let found = log(context).await?;
    same("events", &found.len(), &events.len())?;
    for (found, event) in found.iter().zip(&events) {
        same("an event", found, &LogEvent::new(found.seq, event))?;
        same("its change", &found.change().as_ref(), &Some(&event.change))?;
        same("its labels", &found.labels(), &event.labels)?;
    }
    Ok(())
}

pub(super) async fn a_trim_forgets_the_oldest(context: &Context<'_>) -> Verdict {
    context.commit(appends(&["a", "b", "c", "d"])).await?;
    let seqs: Vec<u64> = log(context).await?.iter().map(|event| event.seq).collect();
    context.commit(trim(seqs[1])).await?;
    same("after a trim", &names(&log(context).await?), &vec!["c", "d"])?;
    context.commit(trim(seqs[0])).await?;
    same("after an earlier trim", &names(&log(context).await?), &vec!["c", "d"])?;
    context.commit(ChangeSet { trim_through: Some(seqs[2]), ..appends(&["e"]) }).await?;
    same("with an append", &names(&log(context).await?), &vec!["d", "e"])
}

pub(super) async fn numbers_are_never_used_again(context: &Context<'_>) -> Verdict {
    let mut last = 0;
    for round in 0..3 {
        context.commit(appends(&["a", "b"])).await?;
        let seqs: Vec<u64> = log(context).await?.iter().map(|event| event.seq).collect();
        same("events", &seqs.len(), &2)?;
        ensure(seqs[0] > last, || format!("round {round}: {} after {last}", seqs[0]))?;
        last = seqs[1];
        context.commit(trim(last)).await?;
        same("events", &log(context).await?, &Vec::new())?;
    }
    let other = context.another().await;
    commit(&*other, appends(&["c"])).await?;
    let seq = log(context).await?.first().map(|event| event.seq);
    ensure(seq > Some(last), || format!("by another handle: {seq:?} after {last}"))
}

pub(super) async fn the_head_of_the_log_is_loaded(context: &Context<'_>) -> Verdict {
    let events = vec![event("a", 5), event("b", 3), event("c", 9)];
    context.commit(ChangeSet { events, ..ChangeSet::default() }).await?;
    let entry = |event: &LogEvent| LogEntry { seq: event.seq, at: event.at };
    for trimmed in [0, 1] {
        let entries: Vec<LogEntry> = log(context).await?.iter().map(entry).collect();
        same("entries", &entries.len(), &(3 - trimmed))?;
        for log_head in [0, 1, 2, 3, 100] {
            let head =
                context.load(LoadRequest { log_head, ..LoadRequest::default() }).await?.log_head;
            let expected = entries[..log_head.min(entries.len())].to_vec();
            same(&format!("{log_head} entries"), &head, &expected)?;
        }
        context.commit(trim(entries[0].seq)).await?;
    }
    Ok(())
}
