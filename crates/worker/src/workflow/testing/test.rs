use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::{HistoryPayload, Payload, TaskId, Timestamp, TurnRecord, WorkflowInput};

use super::failure::TestFailure;
use super::mock::Mock;
use super::recorded::RecordedExecution;
use super::stage::{Ended, SentSignal, Stage};
use crate::failure::Failure;
use crate::handler::{decode, encode};
use crate::workflow::name::{AnonymousFunction, name_of};
use crate::workflow::{ExecutionStart, ExecutionState, Signature, Workflow, WorkflowDefinition};

const ID: &str = "workflow-under-test";
/// When the workflow starts.
const MORNING: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A workflow that is run in memory, with its mocks and its scheduled inputs.
///
/// Virtual time advances only when nothing else can run, and then at once. The executions are also
/// replayed: code that is not deterministic fails its test.
#[derive(Debug)]
#[must_use = "it is run by `run`"]
pub struct WorkflowTest<O> {
    definition: WorkflowDefinition,
    begin: ExecutionStart,
    stage: Stage,
    /// The mock that was added last.
    last: String,
    broken: Option<TestFailure>,
    output: PhantomData<fn() -> O>,
}

/// The outcome of a workflow test.
#[derive(Debug)]
pub struct WorkflowTestResult<O> {
    /// What it returned, or how else it ended.
    pub result: Result<O, ExecutionState>,
    /// Its recorded executions; more than one if it continued as new.
    pub executions: Vec<RecordedExecution>,
    /// In virtual time.
    pub elapsed: Duration,
    pub status: Option<String>,
    pub values: BTreeMap<String, Payload>,
    /// The messages that it and its children sent.
    pub signals: Vec<SentSignal>,
    /// The detached workflows that were started.
    pub started: Vec<TaskId>,
}

impl<O> WorkflowTestResult<O> {
    /// The history of its last execution.
    pub fn history(&self) -> &[TurnRecord] {
        self.executions.last().map_or(&[], |recorded| &recorded.rows)
    }
}

impl<O: Serialize + DeserializeOwned> WorkflowTest<O> {
    pub fn new<F, I, E, Fut>(function: F, input: &I) -> Self
    where
        F: Fn(Workflow, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: Serialize + DeserializeOwned,
        E: Into<Failure>,
    {
        let name = name_of(&function).unwrap_or(ID);
        let definition = WorkflowDefinition::named(name, function);
        let mut test = Self {
            definition,
            begin: ExecutionStart::new(ID, 1),
            stage: Stage::at(MORNING),
            last: String::new(),
            broken: None,
            output: PhantomData,
        };
        test.begin.input = test.written(input);
        test
    }

    /// The seed of `random` and `uuid`.
    pub fn seed(mut self, seed: u64) -> Self {
        self.begin.seed = seed;
        self
    }

    /// Mocks an activity.
    pub fn activity<F, Form>(
        mut self,
        function: F,
        mock: impl Fn(F::Input) -> Result<F::Output, Failure> + Send + Sync + 'static,
    ) -> Self
    where
        F: Signature<Form>,
        F::Input: DeserializeOwned,
        F::Output: Serialize,
    {
        let name = self.name(name_of(&function));
        self.activity_named(name, mock)
    }

    /// Like [`WorkflowTest::activity`], by name.
    pub fn activity_named<I, A>(
        mut self,
        name: impl Into<String>,
        mock: impl Fn(I) -> Result<A, Failure> + Send + Sync + 'static,
    ) -> Self
    where
        I: DeserializeOwned,
        A: Serialize,
    {
        self.last = name.into();
        self.stage.mocks.insert(self.last.clone(), Mock::new(mock));
        self
    }

    /// Mocks a child.
    pub fn child<F, I, A, E, Fut>(
        mut self,
        function: F,
        mock: impl Fn(I) -> Result<A, Failure> + Send + Sync + 'static,
    ) -> Self
    where
        F: Fn(Workflow, I) -> Fut,
        Fut: Future<Output = Result<A, E>>,
        I: DeserializeOwned,
        A: Serialize,
    {
        let name = self.name(name_of(&function));
        self.activity_named(name, mock)
    }

    /// How long an attempt of the mock added last takes; by default no time.
    pub fn mock_duration(mut self, duration: Duration) -> Self {
        if let Some(mock) = self.stage.mocks.get_mut(&self.last) {
            mock.lasting = duration;
        }
        self
    }

    /// Runs a child or a detached workflow with its real code.
    pub fn workflow<F, I, A, E, Fut>(mut self, function: F) -> Self
    where
        F: Fn(Workflow, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A, E>> + Send + 'static,
        I: DeserializeOwned,
        A: Serialize,
        E: Into<Failure>,
    {
        let name = self.name(name_of(&function));
        self.stage.definitions.insert(name.clone(), WorkflowDefinition::named(name, function));
        self
    }

    /// Sends it a message, this long after its start.
    pub fn signal_at<T: Serialize>(mut self, after: Duration, name: &str, payload: &T) -> Self {
        let payload = self.written(payload);
        let (name, source) = (name.to_owned(), "test".to_owned());
        self.arrives(after, WorkflowInput::Message { name, source, payload })
    }

    /// Requests its cancellation, this long after its start.
    pub fn cancel_at(self, after: Duration, reason: &str) -> Self {
        self.arrives(after, WorkflowInput::Cancel { reason: reason.to_owned() })
    }

    /// Drops the code after each turn and replays it from its history.
    pub fn replay_every_turn(mut self) -> Self {
        self.stage.replay_every_turn = true;
        self
    }

    /// Runs it until it ends.
    pub async fn run(mut self) -> Result<WorkflowTestResult<O>, TestFailure> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let id = self.begin.id.clone();
        self.stage.start(self.definition, self.begin, None).await?;
        let Ended { state, published } = self.stage.run(&id).await?;
        let result = match state {
            ExecutionState::Completed(payload) => Ok(decode(payload.as_ref())
                .map_err(|why| TestFailure::Payload { reason: why.reason().to_owned() })?),
            state => Err(state),
        };
        Ok(WorkflowTestResult {
            result,
            executions: published.executions,
            elapsed: Duration::from_millis(MORNING.ms_until(self.stage.now)),
            status: published.status,
            values: published.values,
            signals: self.stage.signals,
            started: self.stage.started,
        })
    }

    fn arrives(mut self, after: Duration, input: WorkflowInput) -> Self {
        let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.stage.agenda.plan(MORNING.plus_ms(ms), self.begin.id.clone(), input);
        self
    }

    fn written<T: Serialize>(&mut self, payload: &T) -> Option<HistoryPayload> {
        match encode(payload) {
            Ok(payload) => payload.map(HistoryPayload),
            Err(failure) => {
                let reason = failure.reason().to_owned();
                self.broken = Some(TestFailure::Payload { reason });
                None
            }
        }
    }

    fn name(&mut self, name: Result<&'static str, AnonymousFunction>) -> String {
        name.map_or_else(
            |unnamed| {
                self.broken = Some(TestFailure::AnonymousFunction(unnamed));
                String::new()
            },
            ToOwned::to_owned,
        )
    }
}
