use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use windlass_core::{ChangeSet, LaneName, Route, Tenant, Timestamp, Wake};

/// Notification of a commit made through another handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Lanes with their numbers of ready tasks, and the earliest due time.
    Changed { wakes: BTreeMap<Wake, u32>, next_due: Option<Timestamp> },
    /// Any record may have changed.
    Anything,
}

/// The wire format of a notification.
#[derive(Serialize, Deserialize)]
struct WireNotification {
    wakes: Vec<(Tenant, LaneName, Option<Route>, u32)>,
    next_due: Option<Timestamp>,
}

impl Notification {
    /// The notification of a commit.
    pub fn of(changes: &ChangeSet) -> Self {
        Notification::Changed { wakes: changes.wakes.clone(), next_due: changes.next_due }
    }

    /// The notification of a commit in a store where reads lock: includes ready tasks that the
    /// batch locked but did not lease.
    pub fn with_left(changes: &ChangeSet) -> Self {
        let mut wakes = changes.wakes.clone();
        for (wake, tasks) in &changes.left_ready {
            *wakes.entry(wake.clone()).or_default() += tasks;
        }
        Notification::Changed { wakes, next_due: changes.next_due }
    }

    /// Encodes it in at most `most_bytes`; a larger one decodes as [`Notification::Anything`].
    pub fn encode(&self, most_bytes: usize) -> String {
        let Notification::Changed { wakes, next_due } = self else { return String::new() };
        let wakes = wakes.iter().map(|(wake, tasks)| {
            (wake.tenant.clone(), wake.lane.clone(), wake.route.clone(), *tasks)
        });
        let notification = WireNotification { wakes: wakes.collect(), next_due: *next_due };
        let text = serde_json::to_string(&notification).expect("texts and numbers serialize");
        if text.len() <= most_bytes { text } else { String::new() }
    }

    /// Decodes a notification. An undecodable one, as of another version, is
    /// [`Notification::Anything`].
    pub fn decode(text: &str) -> Self {
        let Ok(WireNotification { wakes, next_due }) = serde_json::from_str(text) else {
            return Notification::Anything;
        };
        let wake = |(tenant, lane, route, tasks)| (Wake { tenant, lane, route }, tasks);
        Notification::Changed { wakes: wakes.into_iter().map(wake).collect(), next_due }
    }
}

/// The notifications for one receiver.
#[derive(Debug)]
pub struct Notifications {
    receiver: broadcast::Receiver<(u64, Notification)>,
    own: u64,
}

impl Notifications {
    /// Skips notifications of the handle `own`.
    pub fn new(receiver: broadcast::Receiver<(u64, Notification)>, own: u64) -> Self {
        Self { receiver, own }
    }

    /// The next notification; none once the store is closed. A receiver that fell behind gets
    /// [`Notification::Anything`].
    pub async fn next(&mut self) -> Option<Notification> {
        loop {
            match self.receiver.recv().await {
                Ok((origin, _)) if origin == self.own => {}
                Ok((_, notification)) => return Some(notification),
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(Notification::Anything),
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
        let notification = Notification::of(&changes);
        assert_eq!(Notification::decode(&notification.encode(1_000)), notification);
        assert_eq!(Notification::with_left(&changes), notification);
        changes.left_ready.insert(wake("a", None), 3);
        let Notification::Changed { wakes, .. } = Notification::with_left(&changes) else {
            panic!()
        };
        assert_eq!(wakes[&wake("a", None)], 5);
        for other in ["", "{}", "{\"wakes\":7}"] {
            assert_eq!(Notification::decode(other), Notification::Anything, "{other}");
        }
        assert_eq!(Notification::decode(&notification.encode(10)), Notification::Anything);
        assert_eq!(
            Notification::decode(&Notification::Anything.encode(10)),
            Notification::Anything
        );
    }
}
