use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use windlass_core::{ChangeSet, LaneName, Route, Tenant, Timestamp, Wake};

/// Notification of a commit made through another handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Lanes with their numbers of ready tasks, and the earliest due time.
    Changed { wakes: BTreeMap<Wake, u32>, next_due: Option<Timestamp> },
    /// Any record may have changed.
    Anything,
}

/// The wire format of a notice.
#[derive(Serialize, Deserialize)]
struct Word {
    wakes: Vec<(Tenant, LaneName, Option<Route>, u32)>,
    next_due: Option<Timestamp>,
}

impl Notice {
    /// The notice of a commit.
    pub fn of(changes: &ChangeSet) -> Self {
        Notice::Changed { wakes: changes.wakes.clone(), next_due: changes.next_due }
    }

    /// The notice of a commit in a store where reads lock: includes ready tasks that the batch
    /// locked but did not lease.
    pub fn with_left(changes: &ChangeSet) -> Self {
        let mut wakes = changes.wakes.clone();
        for (wake, tasks) in &changes.left_ready {
            *wakes.entry(wake.clone()).or_default() += tasks;
        }
        Notice::Changed { wakes, next_due: changes.next_due }
    }

    /// Encodes the notice in at most `most_bytes`; a larger one decodes as [`Notice::Anything`].
    pub fn written(&self, most_bytes: usize) -> String {
        let Notice::Changed { wakes, next_due } = self else { return String::new() };
        let wakes = wakes.iter().map(|(wake, tasks)| {
            (wake.tenant.clone(), wake.lane.clone(), wake.route.clone(), *tasks)
        });
        let word = Word { wakes: wakes.collect(), next_due: *next_due };
        let text = serde_json::to_string(&word).expect("texts and numbers serialize");
        if text.len() <= most_bytes { text } else { String::new() }
    }

    /// Decodes a notice. An undecodable one, as of another version, is [`Notice::Anything`].
    pub fn read(text: &str) -> Self {
        let Ok(Word { wakes, next_due }) = serde_json::from_str(text) else {
            return Notice::Anything;
        };
        let wake = |(tenant, lane, route, tasks)| (Wake { tenant, lane, route }, tasks);
        Notice::Changed { wakes: wakes.into_iter().map(wake).collect(), next_due }
    }
}

/// The notices for one receiver.
#[derive(Debug)]
pub struct Notices {
    receiver: broadcast::Receiver<(u64, Notice)>,
    own: u64,
}

impl Notices {
    /// Skips notices of the handle `own`.
    pub fn new(receiver: broadcast::Receiver<(u64, Notice)>, own: u64) -> Self {
        Self { receiver, own }
    }

    /// The next notice; none once the store is closed. A receiver that fell behind gets
    /// [`Notice::Anything`].
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.receiver.recv().await {
                Ok((origin, _)) if origin == self.own => {}
                Ok((_, notice)) => return Some(notice),
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(Notice::Anything),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_round_trips() {
        let wake = |lane: &str, route| Wake { tenant: "t".into(), lane: lane.into(), route };
        let route = Some(Route::new(&["gpu".to_owned()].into(), None));
        let wakes = BTreeMap::from([(wake("a", None), 2), (wake("b", route), 1)]);
        let next_due = Some(Timestamp::from_millis(5));
        let mut changes = ChangeSet { wakes, next_due, ..ChangeSet::default() };
        let notice = Notice::of(&changes);
        assert_eq!(Notice::read(&notice.written(1_000)), notice);
        assert_eq!(Notice::with_left(&changes), notice);
        changes.left_ready.insert(wake("a", None), 3);
        let Notice::Changed { wakes, .. } = Notice::with_left(&changes) else { panic!() };
        assert_eq!(wakes[&wake("a", None)], 5);
        for other in ["", "{}", "{\"wakes\":7}"] {
            assert_eq!(Notice::read(other), Notice::Anything, "{other}");
        }
        assert_eq!(Notice::read(&notice.written(10)), Notice::Anything);
        assert_eq!(Notice::read(&Notice::Anything.written(10)), Notice::Anything);
    }
}
