//! Reads the recorded executions of a workflow, with everything that a replay needs.

use windlass_core::{Execution, HistoryPayload, PayloadKey, Task};
use windlass_engine::{Engine, Error, TaskInput, WorkflowHandle};

use crate::turn_commit::encode_error;
use crate::workflow::testing::RecordedExecution;
use crate::workflow::{Carryover, ExecutionStart};

impl RecordedExecution {
    /// The retained executions of a workflow, in order, the current one last. They are all that is
    /// needed to check code against them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass_engine::{Config, Engine};
    /// # use windlass_store::MemoryStore;
    /// # use windlass_worker::Worker;
    /// use windlass_worker::workflow::testing::{RecordedExecution, replay_check};
    /// use windlass_worker::workflow::{StepError, Workflow};
    ///
    /// async fn countdown(ctx: Workflow, n: u32) -> Result<u32, StepError> {
    ///     ctx.sleep(Duration::from_millis(1)).await?;
    ///     if n == 0 {
    ///         return Ok(ctx.info().execution);
    ///     }
    ///     match ctx.continue_as_new(&(n - 1)).await? {}
    /// }
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::with_store(MemoryStore::new(), Config::default()).await?;
    /// # let running = Worker::new(engine.clone(), "w").workflow(countdown).start()?;
    /// let handle = engine.start_workflow_named::<u32>("countdown", &2).await?;
    /// assert_eq!(handle.result().await?, 2);
    ///
    /// let recorded = RecordedExecution::of(&handle).await?;
    /// let text = serde_json::to_string(&recorded)?; // for a file beside the test
    /// let recorded: Vec<RecordedExecution> = serde_json::from_str(&text)?;
    /// assert_eq!(recorded.len(), 3);
    /// for execution in &recorded {
    ///     replay_check(countdown, execution)?;
    /// }
    /// # running.drain(Duration::from_secs(10)).await;
    /// # Ok(()) }
    /// ```
    pub async fn of<O>(workflow: &WorkflowHandle<O>) -> Result<Vec<Self>, Error> {
        let engine = workflow.engine();
        // Read first: if it continues as new meanwhile, no earlier execution is missing below.
        let task = workflow.task().await?;
        let mut all = Vec::new();
        for execution in workflow.executions().await? {
            if execution.number < task.execution {
                all.push(Self::of_past_execution(engine, &task, &execution).await?);
            }
        }
        all.push(Self::of_current_execution(engine, &task).await?);
        Ok(all)
    }

    /// The current execution of a workflow.
    pub async fn of_current_execution(engine: &Engine, task: &Task) -> Result<Self, Error> {
        let start = begin(engine, task, &stored(task.input_key())).await?;
        Ok(Self { start, rows: engine.history(task, 0).await? })
    }

    /// An earlier execution of a workflow.
    pub async fn of_past_execution(
        engine: &Engine,
        task: &Task,
        execution: &Execution,
    ) -> Result<Self, Error> {
        let Execution { number, version, first_step, .. } = execution.clone();
        let (input, carried) = (stored(execution.input_key()), execution.carried_key());
        let start = begin_at(engine, task, number, &input, carried).await?;
        let start = ExecutionStart { version, first_step, ..start };
        Ok(Self { start, rows: engine.past_history(execution).await? })
    }
}

fn stored(input: Option<PayloadKey>) -> TaskInput {
    input.map_or(TaskInput::None, TaskInput::ByKey)
}

/// The start parameters of the current execution of a workflow.
pub(crate) async fn begin(
    engine: &Engine,
    task: &Task,
    input: &TaskInput,
) -> Result<ExecutionStart, Error> {
    let begin = begin_at(engine, task, task.execution, input, task.carried_key()).await?;
    let state = task.workflow.as_deref();
    Ok(ExecutionStart {
        version: state.and_then(|state| state.version.clone()),
        first_step: state.map_or(0, |state| state.first_step),
        ..begin
    })
}

async fn begin_at(
    engine: &Engine,
    task: &Task,
    execution: u32,
    input: &TaskInput,
    carried: Option<PayloadKey>,
) -> Result<ExecutionStart, Error> {
    let input = match input {
        TaskInput::None => None,
        TaskInput::Inline(payload) => Some(payload.clone()),
        TaskInput::ByKey(key) => Some(engine.payload_of_record(key).await?),
    };
    let over: Carryover = match carried {
        Some(key) => {
            let carried = engine.payload_of_record(&key).await?;
            serde_json::from_slice(&carried.bytes).map_err(encode_error)?
        }
        None => Carryover::default(),
    };
    let seed = task.created_at.micros().unsigned_abs() ^ u64::from(execution) << 48;
    Ok(ExecutionStart {
        execution,
        parent: task.parent.clone(),
        lane: task.lane.clone(),
        input: input.map(HistoryPayload),
        carried: over.unread,
        values: over.values,
        ..ExecutionStart::new(task.id.clone(), seed)
    })
}
