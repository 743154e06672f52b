use windlass_core::{ChangeSet, Change, Event, LaneName, Tenant};
use windlass_store::Store;

use super::case::{Verdict, Wrong};
use super::ground::{Ground, same};
use crate::fixture::{START, inserts, lane_row};

async fn now_is(store: &dyn Store, what: &str, expected_ms: u64) -> Result<(), Wrong> {
    same(what, &store.begin().await?.now(), &START.plus_ms(expected_ms))
}

pub(super) async fn time_is_that_of_the_clock(ground: &Ground<'_>) -> Verdict {
    now_is(&*ground.store, "at the start", 0).await?;
    ground.commit(inserts([lane_row("a", 1)])).await?;
    now_is(&*ground.store, "while the clock stands", 0).await?;
    ground.clock.advance_ms(1);
    now_is(&*ground.store, "a moment later", 1).await?;
    ground.clock.advance_ms(86_400_000);
    now_is(&*ground.another().await, "by another handle", 86_400_001).await
}

pub(super) async fn time_never_falls(ground: &Ground<'_>) -> Verdict {
    let other = ground.another().await;
    ground.clock.advance_ms(5_000);
    ground.commit(inserts([lane_row("a", 1)])).await?;
    ground.clock.set(START);
    now_is(&*ground.store, "the clock was set back", 5_000).await?;
    now_is(&*other, "for the other handle", 5_000).await?;
    now_is(&*ground.another().await, "for a handle opened later", 5_000).await?;
    let (tenant, lane) = (Tenant::default(), LaneName::default());
    let event = Event { at: START, tenant, lane, task: None, change: Change::Created };
    // What is written behind the clock's back does not set the time back either.
    ground.commit(ChangeSet { events: vec![event], ..ChangeSet::default() }).await?;
    now_is(&*ground.store, "after a commit in the meantime", 5_000).await?;
    ground.clock.advance_ms(5_001);
    now_is(&*ground.store, "the clock caught up", 5_001).await
}
