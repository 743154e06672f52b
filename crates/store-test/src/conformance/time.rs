use std::collections::BTreeMap;

use windlass_core::{Change, ChangeSet, Event, LaneName, Tenant, Timestamp};
use windlass_store::Store;

use super::case::{Verdict, Wrong};
use super::context::{Context, same};
use crate::fixture::{START, inserts, lane_row};

async fn now_is(store: &dyn Store, what: &str, expected: Timestamp) -> Result<(), Wrong> {
    same(what, &store.begin().await?.now(), &expected)
}

pub(super) async fn time_follows_the_clock(context: &Context<'_>) -> Verdict {
    now_is(&*context.store, "at the start", START).await?;
    now_is(&*context.store, "while nothing is written", START).await?;
    context.commit(inserts([lane_row("a", 1)])).await?;
    context.clock.advance_ms(1);
    now_is(&*context.store, "one millisecond later", START.plus_ms(1)).await?;
    context.clock.advance_ms(86_400_000);
    now_is(&*context.another().await, "by another handle", START.plus_ms(86_400_001)).await
}

/// First versions are times: two commits at one time could reuse a version of a key.
pub(super) async fn time_rises_with_every_commit(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    let mut expected = START;
    for n in 0..5 {
        now_is(&*context.store, "while the clock is stopped", expected).await?;
        now_is(&*other, "for the other handle", expected).await?;
        context.commit(inserts([lane_row(&n.to_string(), 1)])).await?;
        expected = expected.next();
    }
    Ok(())
}

pub(super) async fn time_never_falls(context: &Context<'_>) -> Verdict {
    let other = context.another().await;
    context.clock.advance_ms(5_000);
    context.commit(inserts([lane_row("a", 1)])).await?;
    context.clock.set(START);
    let last = START.plus_ms(5_000);
    now_is(&*context.store, "the clock was set back", last.next()).await?;
    now_is(&*other, "for the other handle", last.next()).await?;
    now_is(&*context.another().await, "for a handle opened later", last.next()).await?;
    let (tenant, lane) = (Tenant::default(), LaneName::default());
    let event = Event {
        at: START,
        tenant,
        lane,
        task: None,
        labels: BTreeMap::new(),
        change: Change::Created,
    };
    // A commit while the clock is behind does not set the time back either.
    context.commit(ChangeSet { events: vec![event], ..ChangeSet::default() }).await?;
    now_is(&*context.store, "after a commit in the meantime", last.next().next()).await?;
    context.clock.advance_ms(5_001);
    now_is(&*context.store, "the clock caught up", START.plus_ms(5_001)).await
}
