//! Searches in the log. It is indexed only by sequence number, and times rise with it.

use std::ops::ControlFlow;

use windlass::{Cursor, Engine, Error, LaneName, LogEvent, Task, Timestamp};

/// The maximum number of events in one read.
const PAGE: u64 = 500;
/// How far back a search for an optional fact goes.
const NEAR: u64 = 20_000;
/// How far back the events of one task are searched.
const FAR: u64 = 100_000;

/// A snapshot of the log as of `open`.
#[derive(Debug)]
pub(crate) struct LogView<'e> {
    engine: &'e Engine,
    incarnation: String,
    /// The last sequence number that was trimmed.
    floor: u64,
    last: u64,
}

/// Log events, oldest first.
#[derive(Debug)]
pub(crate) struct LogEvents {
    pub(crate) entries: Vec<LogEvent>,
    /// Whether older ones may exist that were not read.
    pub(crate) truncated: bool,
}

impl<'e> LogView<'e> {
    pub(crate) async fn open(engine: &'e Engine) -> Result<Self, Error> {
        let oldest = engine.subscribe(None).await?;
        let described = engine.describe().await?;
        let floor = oldest.cursor().seq;
        let last = described.last_seq.max(floor);
        Ok(Self { engine, incarnation: described.incarnation, floor, last })
    }

    pub(crate) fn incarnation(&self) -> &str {
        &self.incarnation
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The cursor of a reader that has seen everything up to `seq`.
    pub(crate) fn cursor(&self, seq: u64) -> Cursor {
        Cursor { incarnation: self.incarnation.clone(), seq }
    }

    /// The sequence number before the last `most` events that match.
    pub(crate) async fn start_of_tail(
        &self,
        most: usize,
        matches: impl Fn(&LogEvent) -> bool,
    ) -> Result<u64, Error> {
        let (mut start, mut remaining) = (self.last, most);
        if most > 0 {
            self.backward(self.floor, self.last, |entry| {
                if matches(&entry) {
                    start = entry.seq - 1;
                    remaining -= 1;
                }
                continue_if(remaining > 0)
            })
            .await?;
        }
        Ok(start)
    }

    /// Passes the events after `start` to `show` in order, one page in memory at a time.
    pub(crate) async fn forward(
        &self,
        start: u64,
        mut show: impl FnMut(&LogEvent),
    ) -> Result<(), Error> {
        let mut reached = start;
        while reached < self.last {
            let page = self.page(reached).await?;
            let Some(end) = page.last() else {
                // The log was trimmed in the meantime: continue from the oldest event.
                let oldest = self.engine.subscribe(None).await?.cursor().seq;
                if oldest <= reached {
                    return Ok(());
                }
                reached = oldest;
                continue;
            };
            page.iter().filter(|entry| entry.seq <= self.last).for_each(&mut show);
            reached = end.seq;
        }
        Ok(())
    }

    /// The events of a task, from its creation to its end.
    pub(crate) async fn of_task(&self, task: &Task) -> Result<LogEvents, Error> {
        let start = self.before(task.created_at).await?;
        let end = match task.lifecycle.ended_at() {
            Some(at) => self.before(at.next()).await?,
            None => self.last,
        };
        let from = start.max(end.saturating_sub(FAR));
        let mut entries = Vec::new();
        self.backward(from, end, |entry| {
            if is_of(&entry, task) {
                entries.push(entry);
            }
            ControlFlow::Continue(())
        })
        .await?;
        entries.reverse();
        let truncated = entries.first().is_none_or(|first| first.name != "created");
        Ok(LogEvents { entries, truncated })
    }

    /// The latest change of this name of a task, within the last `NEAR` events.
    pub(crate) async fn latest_of(
        &self,
        task: &Task,
        name: &str,
    ) -> Result<Option<LogEvent>, Error> {
        self.latest(|entry| entry.name == name && is_of(entry, task)).await
    }

    /// The latest change of this name in the lane of a task, within the last `NEAR` events.
    pub(crate) async fn latest_in(
        &self,
        task: &Task,
        name: &str,
    ) -> Result<Option<LogEvent>, Error> {
        let lane: &LaneName = &task.lane;
        self.latest(|entry| {
            entry.name == name && entry.lane == *lane && entry.tenant == task.tenant
        })
        .await
    }

    async fn latest(&self, matches: impl Fn(&LogEvent) -> bool) -> Result<Option<LogEvent>, Error> {
        let mut found = None;
        let from = self.floor.max(self.last.saturating_sub(NEAR));
        self.backward(from, self.last, |entry| {
            if matches(&entry) {
                found = Some(entry);
            }
            continue_if(found.is_none())
        })
        .await?;
        Ok(found)
    }

    /// The sequence number of the last event before a timestamp.
    async fn before(&self, at: Timestamp) -> Result<u64, Error> {
        let (mut low, mut high) = (self.floor, self.last);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.page(middle).await?.first() {
                Some(entry) if entry.at < at => low = entry.seq,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Passes the events after `from` up to `end` to `visit`, latest first.
    async fn backward(
        &self,
        from: u64,
        end: u64,
        mut visit: impl FnMut(LogEvent) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut end = end;
        while end > from {
            let start = end.saturating_sub(PAGE).max(from);
            let page = self.page(start).await?;
            for entry in page.into_iter().rev().filter(|entry| entry.seq <= end) {
                if visit(entry).is_break() {
                    return Ok(());
                }
            }
            end = start;
        }
        Ok(())
    }

    /// The events after `after`; none if the log was trimmed in the meantime.
    async fn page(&self, after: u64) -> Result<Vec<LogEvent>, Error> {
        let mut log = self.engine.subscribe(Some(self.cursor(after))).await?;
        match log.read().await {
            Err(Error::CursorExpired(_)) => Ok(Vec::new()),
            other => other,
        }
    }
}

fn is_of(entry: &LogEvent, task: &Task) -> bool {
    entry.task.as_ref() == Some(&task.id) && entry.tenant == task.tenant
}

fn continue_if(condition: bool) -> ControlFlow<()> {
    if condition { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
