use std::sync::Arc;

use crate::limits;
use crate::ready_route::ReadyRoute;
use crate::record::StoredRecord;
use crate::row::{Range, RowKey, Value};
use crate::world::entry::RecordState;
use crate::world::{Halt, World};

/// Twice the limit per lane: closing routes are still listed, and retries may exceed the limit.
const READY_ROUTES_PAGE: usize = 2 * limits::ROUTES_PER_LANE as usize;

/// The loaded part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Coverage {
    /// The number of loaded rows.
    pub(super) rows: usize,
    /// The position of the last loaded row; none if the range is loaded to its end.
    pub(super) last: Option<Vec<Value>>,
}

impl Coverage {
    fn covers(&self, position: &[Value]) -> bool {
        self.last.as_ref().is_none_or(|last| position <= last.as_slice())
    }
}

impl World {
    /// The first `limit` records of a range, including the uncommitted changes of this batch. Parks
    /// until enough of the range is loaded.
    ///
    /// The commit does not check scanned rows unless they are also read or changed.
    pub(crate) fn scan<R: StoredRecord>(
        &mut self,
        range: &Range,
        limit: usize,
    ) -> Result<Vec<Arc<R>>, Halt> {
        let Some(covered) = self.coverage.get(range) else {
            return Err(self.request_scan(range, limit));
        };
        let mut found = Vec::new();
        let mut skipped_picked = false;
        for (position, key) in self.positions.range((range.index, range.prefix.clone())..) {
            let (index, position) = position;
            let in_range = *index == range.index && range.contains(position);
            if !in_range || !covered.covers(position) || found.len() == limit {
                break;
            }
            if self.picked.contains(key) {
                skipped_picked = true;
                continue;
            }
            if let Some(RecordState::Present(any)) = self.entries.get(key).map(|entry| &entry.state)
            {
                found.push(R::from_any(any).clone());
            }
        }
        if found.len() == limit {
            return Ok(found);
        }
        if covered.last.is_some() {
            return Err(self.request_scan(range, limit - found.len()));
        }
        // A row picked by a parked command may be released in the next round: the result is open.
        if skipped_picked { Err(Halt::Parked) } else { Ok(found) }
    }

    /// All ready routes of a lane. Claims share one load of them.
    pub(crate) fn scan_ready_routes(
        &mut self,
        range: &Range,
    ) -> Result<Vec<Arc<ReadyRoute>>, Halt> {
        self.prefetch_ready_routes(range);
        match self.coverage.get(range) {
            None => return Err(Halt::Parked),
            Some(covered) if covered.last.is_some() => {
                return Err(self.request_scan(range, READY_ROUTES_PAGE));
            }
            Some(_) => {}
        }
        let listed = self.positions.range((range.index, range.prefix.clone())..);
        let listed = listed
            .take_while(|((index, position), _)| *index == range.index && range.contains(position));
        let ready_route = |(_, key)| match self.entries.get(key).map(|entry| &entry.state) {
            Some(RecordState::Present(any)) => Some(ReadyRoute::from_any(any).clone()),
            _ => None,
        };
        Ok(listed.filter_map(ready_route).collect())
    }

    pub(crate) fn prefetch_ready_routes(&mut self, range: &Range) {
        if !self.coverage.contains_key(range) {
            self.pending_loads.scans.insert(range.clone(), READY_ROUTES_PAGE);
        }
    }

    /// Notes a range that will be scanned, so that several are loaded together.
    pub(crate) fn prefetch_scan(&mut self, range: &Range, limit: usize) {
        if !self.coverage.contains_key(range) {
            self.request_scan(range, limit);
        }
    }

    /// Requests more rows of a range: at least as many as are loaded, so that a long run of
    /// unreadable rows takes few rounds.
    fn request_scan(&mut self, range: &Range, more: usize) -> Halt {
        let loaded = self.coverage.get(range).map_or(0, |covered| covered.rows);
        let requested = self.undo_log.requested.entry(range.clone()).or_default();
        let noted = self.pending_loads.scans.entry(range.clone()).or_insert(loaded);
        *noted = noted.saturating_add(more.saturating_sub(*requested));
        *requested = more.max(*requested);
        Halt::Parked
    }

    /// Picks a scanned record: if this command is parked, later commands of this round skip it.
    pub(crate) fn pick(&mut self, key: RowKey) {
        self.undo_log.picked.push(key);
    }
}
