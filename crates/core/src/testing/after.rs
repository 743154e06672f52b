use crate::command::{Outcome, SentMessage};
use crate::node::Node;
use crate::rejection::Rejection;
use crate::task::{Lifecycle, Settled};
use crate::testing::Stage;
use crate::time::Timestamp;

impl Stage {
    /// Running, admitted, the limit, the most starts per window, and the blocked tasks.
    pub(super) fn limit_after(&self) -> String {
        let records = self.limits();
        let Some(record) = records.first() else { return "absent".into() };
        let limit = record.limit.map_or("-".into(), |limit| limit.to_string());
        let rate = record.rate.map_or(String::new(), |rate| format!(" {}r", rate.limit));
        format!("{}+{}/{limit}{rate} behind {}", record.running, record.admitted, record.blocked)
    }

    pub(crate) fn task_after(&self) -> String {
        match self.task("t") {
            None => "absent".into(),
            Some(task) => {
                let mut state = task.lifecycle.public().as_str();
                if let Lifecycle::Active(lease) = &task.lifecycle {
                    state = if lease.attempt.is_some() { "active" } else { "claimed" };
                }
                if let Lifecycle::Granted { until, .. } = &task.lifecycle {
                    state = if until.is_some() { "granted" } else { "owned" };
                }
                format!("{state} e{} a{}", task.claims, task.attempts)
            }
        }
    }

    pub(super) fn lane_after(&self) -> String {
        match self.lane() {
            None => "absent".into(),
            Some(lane) => {
                let limit = lane.concurrency.map(|concurrency| {
                    let limit = concurrency.limit.map_or("-".into(), |limit| limit.to_string());
                    format!(" {}/{limit}", concurrency.running)
                });
                format!("{}{}", lane.state.as_str(), limit.unwrap_or_default())
            }
        }
    }

    pub(super) fn node_after(&self) -> String {
        match self.record::<Node>(&Node::key_of(&"n".into())) {
            None => "absent".into(),
            Some(node) => {
                let ago = |at: Timestamp| at.ms_until(self.now);
                format!("seen +{} up +{}", ago(node.seen_at), ago(node.started_at))
            }
        }
    }

    pub(super) fn events_since(&self, seq: u64) -> String {
        let names: Vec<_> = self.tables.events_after(seq).map(|logged| logged.name).collect();
        names.join(" ")
    }

    pub(super) fn outcome_text(&self, outcome: &Result<Outcome, Rejection>) -> String {
        let plus = |at: Timestamp| format!("+{}", self.now.ms_until(at));
        match outcome {
            Err(rejection) => format!("! {}", rejection.code()),
            Ok(Outcome::Created(created)) if created[0].duplicate => "duplicate".into(),
            Ok(Outcome::Created(_)) => "created".into(),
            Ok(Outcome::Claimed(tasks)) => format!("claimed {}", tasks.len()),
            Ok(Outcome::Renewed { expires_at }) => format!("until {}", plus(*expires_at)),
            Ok(Outcome::ProgressReported) => "progressed".into(),
            Ok(Outcome::Begun(attempt)) => format!("attempt {}", attempt.number),
            Ok(Outcome::Settled(Settled::RetryAt(at))) => format!("retry {}", plus(*at)),
            Ok(Outcome::Settled(Settled::SnoozedUntil(at))) => format!("delayed {}", plus(*at)),
            Ok(Outcome::Settled(settled)) => format!("{settled:?}").to_lowercase(),
            Ok(Outcome::Cancelled) => "cancelled".into(),
            Ok(Outcome::PriorityChanged) => "changed".into(),
            Ok(Outcome::Replayed { execution }) => format!("execution {execution}"),
            Ok(Outcome::TaskDeleted) => "deleted".into(),
            Ok(Outcome::LaneChanged) => "changed".into(),
            Ok(Outcome::Swept { swept, next_due }) => {
                format!("swept {swept} next {}", next_due.map_or("none".into(), plus))
            }
            Ok(Outcome::Trimmed { trimmed, more }) => format!("trimmed {trimmed} more {more}"),
            Ok(Outcome::NodeRegistered { joined, nodes, format }) => {
                let joined = if *joined { "joined " } else { "" };
                format!("{joined}{nodes} nodes format {format}")
            }
            Ok(Outcome::NodeDeregistered) => "left".into(),
            Ok(Outcome::ChildrenDone(counts)) => {
                format!("done {} of {}", counts.completed, counts.total())
            }
            Ok(Outcome::QuotaSet) => "set".into(),
            Ok(Outcome::SessionReleased { running }) => format!("released {running} running"),
            Ok(Outcome::SessionsRenewed { renewed }) => format!("renewed {renewed}"),
            Ok(Outcome::WorkerRegistered { joined: true, .. }) => "joined".into(),
            Ok(Outcome::WorkerRegistered { joined: false, .. }) => "registered".into(),
            Ok(Outcome::WorkerDeregistered) => "retired".into(),
            Ok(Outcome::Granted { until }) => format!("until {}", plus(*until)),
            Ok(Outcome::Revoked) => "revoked".into(),
            Ok(Outcome::SubscriptionCursorAt(cursor)) => format!("at {}", cursor.seq),
            Ok(Outcome::SubscriptionDeleted { existed }) => format!("dropped {existed}"),
            Ok(Outcome::Sent(sent)) => sent.iter().map(sent_as).collect::<Vec<_>>().join(" "),
            Ok(Outcome::WaitpointCreated(made)) => {
                format!("{} until {}", made.id, plus(made.expires_at))
            }
            Ok(Outcome::Suspended { waitpoints }) => format!("suspended {}", waitpoints.len()),
            Ok(Outcome::AlreadySatisfied(resumption)) => {
                format!("satisfied {:?}", resumption.messages)
            }
            Ok(Outcome::Resumed) => "resumed".into(),
            Ok(Outcome::Consumed { consumed }) => format!("consumed {consumed}"),
            Ok(Outcome::Admitted { until }) => format!("admitted {}", plus(*until)),
            Ok(Outcome::RequestCompleted(_)) => "answered".into(),
            Ok(Outcome::RequestReleased) => "released".into(),
            Ok(Outcome::TurnCommitted { lease_kept, .. }) => {
                format!("turned lease_kept={}", lease_kept.is_some())
            }
            Ok(Outcome::EffectClaimed { request_id, .. }) => {
                format!("claimed {}", request_id.expose_secret())
            }
            Ok(Outcome::EffectSettled) => "settled".into(),
            Ok(Outcome::Pruned { pruned, .. }) => format!("pruned {pruned}"),
            Ok(Outcome::StickyCleared { workflows }) => format!("cleared {workflows}"),
            Ok(Outcome::Spent) => "spent".into(),
            Ok(Outcome::SigningKeyRotated { unchanged }) => format!("unchanged {unchanged}"),
        }
    }
}

fn sent_as(sent: &SentMessage) -> String {
    match (sent.duplicate, sent.resumed) {
        (true, _) => format!("duplicate {}", sent.seq),
        (false, true) => format!("resumed {}", sent.seq),
        (false, false) => format!("sent {}", sent.seq),
    }
}
