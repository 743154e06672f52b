use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{EventCategory, Kind, LaneName, LogEvent, Tenant};

/// Selects log events. An event must match every field that is set; empty fields match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// One of these categories.
    pub categories: BTreeSet<EventCategory>,
    pub tenant: Option<Tenant>,
    /// One of these lanes.
    pub lanes: BTreeSet<LaneName>,
    /// Tasks of one of these kinds.
    pub kinds: BTreeSet<Kind>,
    /// Tasks that had all of these labels when the event was written.
    pub labels: BTreeMap<String, String>,
}

impl EventFilter {
    pub fn matches(&self, event: &LogEvent) -> bool {
        let in_category = |category: &EventCategory| category.as_str() == event.category;
        (self.categories.is_empty() || self.categories.iter().any(in_category))
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == event.tenant)
            && (self.lanes.is_empty() || self.lanes.contains(&event.lane))
            && (self.kinds.is_empty()
                || event.kind.as_ref().is_some_and(|kind| self.kinds.contains(kind)))
            && self.takes_labels(event)
    }

    /// Parses the event body only if labels are requested.
    fn takes_labels(&self, event: &LogEvent) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        let labels = event.labels();
        self.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(body: &str) -> LogEvent {
        LogEvent {
            seq: 1,
            at: windlass_core::Timestamp::default(),
            tenant: "acme".into(),
            lane: "mail".into(),
            task: Some("t".into()),
            kind: Some("email".into()),
            category: "lease".into(),
            name: "claimed".into(),
            body: body.into(),
        }
    }

    #[test]
    fn a_filter_takes_events_that_match_all_its_fields() {
        let labelled = event(r#"{"event":"claimed","labels":{"who":"me","region":"eu"}}"#);
        let of_lane = LogEvent { task: None, kind: None, category: "lane".into(), ..event("{}") };
        let any = EventFilter::default;
        let labels = |pairs: &[(&str, &str)]| EventFilter {
            labels: pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            ..any()
        };
        for (filter, takes_labelled, takes_of_lane) in [
            (any(), true, true),
            (
                EventFilter {
                    categories: [EventCategory::Lease, EventCategory::Task].into(),
                    ..any()
                },
                true,
                false,
            ),
            (EventFilter { categories: [EventCategory::Lane].into(), ..any() }, false, true),
            (EventFilter { tenant: Some("acme".into()), ..any() }, true, true),
            (EventFilter { tenant: Some("other".into()), ..any() }, false, false),
            (EventFilter { lanes: ["mail".into()].into(), ..any() }, true, true),
            (EventFilter { lanes: ["bulk".into()].into(), ..any() }, false, false),
            (EventFilter { kinds: ["email".into(), "fax".into()].into(), ..any() }, true, false),
            (EventFilter { kinds: ["fax".into()].into(), ..any() }, false, false),
            (labels(&[("who", "me")]), true, false),
            (labels(&[("who", "me"), ("region", "eu")]), true, false),
            (labels(&[("who", "me"), ("region", "us")]), false, false),
            (labels(&[("missing", "")]), false, false),
        ] {
            let found = (filter.matches(&labelled), filter.matches(&of_lane));
            assert_eq!(found, (takes_labelled, takes_of_lane), "{filter:?}");
        }
    }
}
