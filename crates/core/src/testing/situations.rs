use crate::command::{
    Cancel, Claim, Complete, Create, CreateWaitpoint, Delay, DeregisterNode, Fail, LimitLane,
    NewTask, NewWaitpoint, Outcome, QuotaScope, SendMessages, SetLaneState, SetQuota, Suspend,
    Sweep, WaitChildren,
};
use crate::concurrency_limit::LimitKey;
use crate::lane::LaneState;
use crate::mailbox::{Mailbox, Message};
use crate::name::Tenant;
use crate::rate::Rate;
use crate::task::{Condition, FailureClass, Retry};
use crate::testing::{
    Stage, beat, child, claim, fence, fence_of, grant, key, lane, message, new_task, rotation,
    session_claim,
};
use crate::token::Token;

impl Stage {
    /// A stage on which task `t` is in the named state, with epoch 1 once it was claimed.
    pub(crate) fn with_task(state: &str) -> Self {
        Self::with_new_task(state, new_task("t"))
    }

    pub(crate) fn with_new_task(state: &str, new: NewTask) -> Self {
        Self::with_new_task_then(state, new, |_| {})
    }

    /// The same, with a step before the task is claimed.
    pub(super) fn with_new_task_then(
        state: &str,
        mut new: NewTask,
        then: impl Fn(&mut Self),
    ) -> Self {
        let mut stage = Self::new();
        match state {
            "absent" => return stage,
            "delayed" => new.delay = Delay::For { ms: 10_000 },
            "expired" => new.deadline_ms = Some(1_000),
            "blocked" => stage.saturate(&mut new),
            "owned" => stage.own(&mut new),
            _ => {}
        }
        stage.must(Create::one(new));
        then(&mut stage);
        match state {
            "waiting" | "delayed" | "blocked" | "owned" => {}
            "granted" => drop(stage.must(grant("t"))),
            "ungranted" => {
                stage.must(grant("t"));
                stage.later(10_000);
            }
            "claimed" => drop(stage.must(Claim { begin: false, ..claim() })),
            "active" => drop(stage.must(claim())),
            "lease_expired" => {
                stage.must(claim());
                stage.later(30_000);
            }
            "completed" => {
                stage.must(claim());
                stage.must(Complete { fence: fence(1), result: None });
            }
            "failed" => {
                stage.must(claim());
                stage.must(Fail {
                    fence: fence(1),
                    class: FailureClass::Permanent,
                    reason: "no".into(),
                    retry: Retry::Policy,
                });
            }
            "cancelled" => {
                stage.must(claim());
                stage.must(Cancel { task: key("t"), reason: "stop".into() });
            }
            "expired" => {
                stage.must(claim());
                stage.later(1_000);
                stage.must(Sweep::default());
            }
            "waiting_children" => {
                stage.must(claim());
                stage.must(Create::one(child("c")));
                stage.must(WaitChildren { fence: fence(1) });
            }
            "suspended" => stage.suspend(),
            "resumable" => {
                stage.suspend();
                stage.must(SendMessages::one(message("go")));
            }
            other => panic!("no such state: {other}"),
        }
        stage
    }

    /// Gives a task a concurrency key under which a task of another lane is admitted.
    fn saturate(&mut self, new: &mut NewTask) {
        new.limit_key = Some(LimitKey::Concurrency("k".into()));
        let first =
            NewTask { lane: "other".into(), limit_key: new.limit_key.clone(), ..new_task("first") };
        self.must(Create::one(first));
    }

    /// Gives a task a session that worker `w` owns, without another open task.
    fn own(&mut self, new: &mut NewTask) {
        new.limit_key = Some(LimitKey::Session("s".into()));
        let first =
            NewTask { lane: "other".into(), limit_key: new.limit_key.clone(), ..new_task("first") };
        self.must(Create::one(first));
        self.must(Claim { lanes: vec!["other".into()], ..session_claim("w") });
        self.must(Complete { fence: fence_of("first", 1), result: None });
    }

    /// Claims `t` and suspends it until it gets the signal `go`.
    pub(super) fn suspend(&mut self) {
        self.must(claim());
        self.must(Suspend::new(fence(1), Condition::signal("go")));
    }

    /// Creates waitpoint `w` of task `t`, and returns its token.
    pub(crate) fn open_waitpoint(&mut self) -> Token {
        self.seed();
        let waitpoint = NewWaitpoint { id: "w".into(), ttl_ms: 10_000 };
        let create = CreateWaitpoint { task: key("t"), epoch: None, waitpoint };
        match self.must(create) {
            Outcome::WaitpointCreated(made) => made.token,
            other => panic!("{other:?}"),
        }
    }

    /// Gives the tenant its first signing key.
    pub(crate) fn seed(&mut self) {
        self.must(rotation("k1", "07"));
    }

    pub(crate) fn mailbox(&self) -> Option<Mailbox> {
        self.record(&Mailbox::key_of(&Tenant::default(), &"t".into()))
    }

    pub(crate) fn message(&self, seq: u64) -> Option<Message> {
        self.record(&Message::key_of(&Tenant::default(), &"t".into(), seq))
    }

    pub(crate) fn with_lane(state: &str) -> Self {
        let mut stage = Self::new();
        if state == "absent" {
            return stage;
        }
        stage.must(Create::one(new_task("t")));
        let mut set = |state| {
            stage.must(SetLaneState { tenant: Tenant::default(), lane: lane(), state });
        };
        match state {
            "active" => {}
            "paused" => set(LaneState::Paused),
            "draining" => set(LaneState::Draining),
            "disabled" => set(LaneState::Disabled),
            "limited" => drop(stage.must(LimitLane {
                tenant: Tenant::default(),
                lane: lane(),
                limit: Some(1),
            })),
            other => panic!("no such state: {other}"),
        }
        stage
    }

    /// A stage on which node `n` is in the named state.
    pub(crate) fn with_node(state: &str) -> Self {
        let mut stage = Self::new();
        if state == "absent" {
            return stage;
        }
        stage.must(beat());
        match state {
            "registered" => {}
            "late" => stage.later(17_499),
            "gone" => stage.later(17_500),
            "left" => drop(stage.must(DeregisterNode { id: "n".into() })),
            "lost" => {
                stage.later(17_500);
                stage.must(Sweep::default());
            }
            other => panic!("no such state: {other}"),
        }
        stage
    }

    /// A stage on which one task of key `k` runs and three follow: without a limit, with a limit of
    /// three, or with one start in ten seconds.
    pub(crate) fn with_limit(state: &str) -> Self {
        let mut stage = Self::new();
        let limit_key = Some(LimitKey::Concurrency("k".into()));
        let rate = Rate { limit: 1, window_ms: 10_000 };
        let (limit, rate) = match state {
            "absent" => return stage,
            "full" => (None, None),
            "wide" => (Some(3), None),
            "rated" => (None, Some(rate)),
            other => panic!("no such state: {other}"),
        };
        let scope = QuotaScope::Concurrency("k".into());
        stage.must(SetQuota { tenant: Tenant::default(), scope, limit, rate });
        for id in ["t", "u", "v", "w"] {
            stage.must(Create::one(NewTask { limit_key: limit_key.clone(), ..new_task(id) }));
        }
        stage.must(claim());
        stage
    }
}
