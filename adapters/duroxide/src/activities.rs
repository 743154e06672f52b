//! The worker queue: activities, each a task that is a step of its instance.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::ErrorDetails;
use duroxide::providers::{ProviderError, SessionFetchConfig, TagFilter as Tags, WorkItem};
use windlass_core::command::{
    Claim, Complete, Create, DropActivity, Fail, NewTask, Release, Snooze,
};
use windlass_core::{
    Command, FailureClass, Fence, Kind, LaneName, LimitKey, Payload, Policy, Rejection, Retry,
    RetryPolicy, SESSIONS, TagFilter, WorkerCapabilities, limits,
};
use windlass_engine::{ClaimedTask, Error, TaskInput};

use crate::error::{failed, garbled};
use crate::names::{self, activities, activity_id, all_activities, instance_id, step};
use crate::provider::{WindlassProvider, lease_ms, ms};
use crate::token::Token;

const FETCH: &str = "fetch_work_item";
const ACK: &str = "ack_work_item";

/// The maximum wait for an activity without a session.
const SESSIONLESS: Duration = Duration::from_secs(1);

/// An activity as a task of its instance. The duroxide runtime decides on its retries.
pub(crate) fn new_activity(
    operation: &'static str,
    item: &WorkItem,
) -> Result<NewTask, ProviderError> {
    let WorkItem::ActivityExecute { instance, execution_id, id, name, session_id, tag, .. } = item
    else {
        return Err(ProviderError::permanent(operation, "not an item for a worker"));
    };
    let payload = serde_json::to_string(item).map_err(garbled(operation))?;
    let policy = Policy {
        retry: Some(RetryPolicy::fixed(most(limits::ATTEMPTS), 0)),
        max_lost_leases: most(limits::LOST_LEASES),
        retention_ms: 0,
        ..Policy::default()
    };
    Ok(NewTask {
        lane: activities(tag.as_deref()),
        payload: Some(Payload::json(payload)),
        tag: tag.as_deref().map(names::tag),
        limit_key: session_id.clone().map(LimitKey::Affinity),
        parent: Some(instance_id(instance)),
        step: Some(step(*execution_id, *id)),
        policy,
        ..NewTask::new(activity_id(instance, *execution_id, *id), kind(name))
    })
}

fn most(limit: limits::RangeLimit) -> u32 {
    u32::try_from(limit.max).unwrap_or(u32::MAX)
}

/// The name of an activity, if it is valid as a kind.
fn kind(name: &str) -> Kind {
    if limits::KIND.check(name).is_ok() { name.into() } else { "activity".into() }
}

/// An activity whose result cannot be stored has failed.
fn rejected(completion: WorkItem, reason: &str) -> WorkItem {
    match completion {
        WorkItem::ActivityCompleted { instance, execution_id, id, .. }
        | WorkItem::ActivityFailed { instance, execution_id, id, .. } => {
            let details = ErrorDetails::Infrastructure {
                operation: "activity".to_owned(),
                message: format!("its result cannot be stored: {reason}"),
                retryable: false,
            };
            WorkItem::ActivityFailed { instance, execution_id, id, details }
        }
        other => other,
    }
}

fn tags(filter: &Tags) -> TagFilter {
    let set = |tags: &std::collections::HashSet<String>| -> BTreeSet<String> {
        tags.iter().map(|tag| names::tag(tag)).collect()
    };
    match filter {
        Tags::DefaultOnly => TagFilter::Untagged,
        Tags::Tags(tags) => TagFilter::Only(set(tags)),
        Tags::DefaultAnd(tags) => TagFilter::UntaggedAnd(set(tags)),
        Tags::Any => TagFilter::Any,
        Tags::None => TagFilter::None,
    }
}

/// The lanes that may have activities for a filter.
fn lanes(filter: &Tags) -> Vec<LaneName> {
    let of = |tags: &std::collections::HashSet<String>| -> BTreeSet<LaneName> {
        tags.iter().map(|tag| activities(Some(tag))).collect()
    };
    let tagged = match filter {
        Tags::DefaultOnly | Tags::None => BTreeSet::new(),
        Tags::Tags(tags) => return of(tags).into_iter().collect(),
        Tags::DefaultAnd(tags) => of(tags),
        Tags::Any => return all_activities().collect(),
    };
    std::iter::once(activities(None)).chain(tagged).collect()
}

impl WindlassProvider {
    pub(crate) async fn enqueue_activity(&self, item: &WorkItem) -> Result<(), ProviderError> {
        const OPERATION: &str = "enqueue_for_worker";
        let new = new_activity(OPERATION, item)?;
        let create = |new| Create { tenant: self.tenant.clone(), tasks: vec![new] };
        match self.engine.submit(create(new.clone())).await {
            // Without a parent, it reports its end to no instance, and no instance cancels it.
            Err(Error::Rejected(Rejection::ParentNotFound | Rejection::ParentTerminal)) => {
                let alone = NewTask { parent: None, step: None, ..new };
                self.engine.submit(create(alone)).await
            }
            other => other,
        }
        .map(drop)
        .map_err(failed(OPERATION))
    }

    pub(crate) async fn fetch_activity(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        filter: &Tags,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        if matches!(filter, Tags::None) {
            return Ok(None);
        }
        let capabilities = session.map(|_| SESSIONS.to_owned()).into_iter().collect();
        let owner = session.map(|session| session.owner_id.as_str().into());
        let mut claim = Claim {
            tenant: self.tenant.clone(),
            lanes: lanes(filter),
            capabilities: WorkerCapabilities {
                names: capabilities,
                tags: tags(filter),
                versions: Vec::new(),
            },
            lease_ms: lease_ms(lock_timeout),
            ..Claim::new(owner.unwrap_or_else(|| self.worker.clone()))
        };
        if let Some(session) = session {
            claim.session_idle_ms = crate::sessions::lock_ms(session.lock_timeout);
        }
        // A dispatcher at its session limit fetches without sessions, and must soon re-check that
        // limit.
        let wait = if session.is_some() { poll_timeout } else { poll_timeout.min(SESSIONLESS) };
        match self.claim(FETCH, &claim, wait).await? {
            Some(claimed) => self.activity(claimed).await.map(Some),
            None => Ok(None),
        }
    }

    async fn activity(
        &self,
        claimed: ClaimedTask,
    ) -> Result<(WorkItem, String, u32), ProviderError> {
        let payload = match claimed.input {
            TaskInput::Inline(payload) => Some(payload),
            TaskInput::ByKey(key) => self.engine.payload(&key).await.map_err(failed(FETCH))?,
            TaskInput::None => None,
        };
        let payload = payload.ok_or_else(|| ProviderError::permanent(FETCH, "no input"))?;
        let item = serde_json::from_slice(&payload.bytes).map_err(garbled(FETCH))?;
        let task = claimed.task;
        let token = Token::new(task.fence(), Vec::new(), task.parent.is_none());
        Ok((item, token.write().map_err(garbled(FETCH))?, task.attempts))
    }

    /// The completion is the step completion: it is committed with the end of the activity.
    pub(crate) async fn ack_activity(
        &self,
        token: &str,
        completion: Option<WorkItem>,
    ) -> Result<(), ProviderError> {
        let token = Token::read(ACK, token)?;
        let fence = token.fence(&self.tenant);
        let Some(completion) = completion else {
            let discard = DropActivity { fence, reason: "its worker dropped it".to_owned() };
            return self.engine.submit(discard).await.map(drop).map_err(failed(ACK));
        };
        let is_completion = matches!(
            completion,
            WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. }
        );
        if !is_completion {
            return Err(ProviderError::permanent(ACK, "this does not complete an activity"));
        }
        if token.standalone {
            let discard = DropActivity { fence, reason: "no instance waits for it".to_owned() };
            self.engine.submit(discard).await.map_err(failed(ACK))?;
            return self.enqueue(&completion, None).await;
        }
        match self.complete(fence.clone(), &completion).await {
            // The instance gets the reason instead of a result, and the activity is not retried.
            Err(Error::Rejected(rejection @ Rejection::Invalid { .. })) => {
                let rejected = rejected(completion, &rejection.to_string());
                self.complete(fence, &rejected).await
            }
            answer => answer,
        }
        .map_err(failed(ACK))
    }

    async fn complete(&self, fence: Fence, completion: &WorkItem) -> Result<(), Error> {
        let written = serde_json::to_string(completion).expect("work items serialize");
        let complete = Complete { fence, result: Some(Payload::json(written)) };
        self.engine.submit(complete).await.map(drop)
    }

    pub(crate) async fn abandon_activity(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        const OPERATION: &str = "abandon_work_item";
        let fence = Token::read(OPERATION, token)?.fence(&self.tenant);
        let delay_ms = delay.map_or(0, ms);
        let command: Command = match (ignore_attempt, delay_ms) {
            (true, 0) => Release { fence }.into(),
            (true, delay_ms) => Snooze { fence, delay_ms }.into(),
            (false, ms) => {
                let reason = "abandoned by its worker".to_owned();
                let retry = Retry::After { ms };
                Fail { fence, class: FailureClass::Transient, reason, retry }.into()
            }
        };
        self.engine.submit(command).await.map(drop).map_err(failed(OPERATION))
    }
}
