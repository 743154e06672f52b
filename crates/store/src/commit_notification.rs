use windlass_core::Timestamp;

use crate::notification::Notification;
use crate::scan_hints::LowWatermarks;

/// The notification of one commit to other nodes: its origin and time, the queue positions it wrote
/// or released, and its notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitNotification {
    /// Identifies the handle that committed.
    pub origin: String,
    pub at: Timestamp,
    pub lowest: LowWatermarks,
    pub notification: Notification,
}

impl CommitNotification {
    /// An anonymous notification: some row was released, in any queue.
    pub fn of_anything() -> Self {
        let (at, lowest) = (Timestamp::default(), LowWatermarks::default());
        Self { origin: "-".into(), at, lowest, notification: Notification::Anything }
    }

    /// Encodes it in about `most_bytes`; larger ones decode as [`Notification::Anything`].
    pub fn encode(&self, most_bytes: usize) -> String {
        let Self { origin, at, lowest, notification } = self;
        let lowest = lowest.encode();
        let notification = notification.encode(most_bytes.saturating_sub(lowest.len()));
        let lowest = if notification.is_empty() { "" } else { &lowest };
        format!("{origin}\n{}\n{lowest}\n{notification}", at.micros())
    }

    /// Decodes a notification. An undecodable one, as of another version, means any change.
    pub fn decode(text: &str) -> Self {
        let mut parts = text.splitn(4, '\n');
        let mut part = || parts.next().unwrap_or_default();
        let (origin, at) = (part().to_owned(), part().parse().unwrap_or_default());
        let (lowest, notification) =
            match (LowWatermarks::decode(part()), Notification::decode(part())) {
                (Some(lowest), notification) => (lowest, notification),
                (None, _) => (LowWatermarks::default(), Notification::Anything),
            };
        Self { origin, at: Timestamp::from_micros(at), lowest, notification }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use windlass_core::{Index, Wake};

    use super::*;

    fn some_notification() -> CommitNotification {
        let wake = Wake { tenant: "t".into(), lane: "a\nb c".into(), route: None };
        let mut lowest = LowWatermarks::default();
        let head = ["t", "a\nb c", "r"].map(Into::into);
        let rest = [0.into(), 5.into(), "id".into()];
        lowest.note(Index::TaskReady, head.into_iter().chain(rest).collect());
        let notification =
            Notification::Changed { wakes: BTreeMap::from([(wake, 2)]), next_due: None };
        CommitNotification {
            origin: "me".into(),
            at: Timestamp::from_micros(7),
            lowest,
            notification,
        }
    }

    #[test]
    fn a_notification_round_trips() {
        let notification = some_notification();
        assert_eq!(CommitNotification::decode(&notification.encode(7_000)), notification);
        assert_eq!(
            CommitNotification::decode(&CommitNotification::of_anything().encode(7_000)),
            CommitNotification::of_anything()
        );
    }

    #[test]
    fn an_oversized_or_undecodable_notification_means_any_change() {
        let short = CommitNotification::decode(&some_notification().encode(60));
        assert_eq!((short.origin.as_str(), short.notification), ("me", Notification::Anything));
        for text in ["", "me", "me\n7", "me\n7\n[]", "me\n7\n[[\"other\",[1]]]\n{}"] {
            assert_eq!(
                CommitNotification::decode(text).notification,
                Notification::Anything,
                "{text:?}"
            );
        }
    }
}
