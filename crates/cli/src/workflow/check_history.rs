use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use windlass::workflow::TurnRecord;
use windlass::{Engine, Error, PublicState, Task, TaskId};

use crate::error::CliError;
use crate::output::{counted, say, say_json};
use crate::target::Target;
use crate::workflow::check::{Checked, HistoryProblem, check};
use crate::workflow::executions::{ExecutionRef, all_executions, select_execution};

const EXAMPLES: &str = "Examples:
  windlass workflow check-history order-42
  windlass workflow check-history feed-7 --execution 3
  windlass workflow history order-42 --recording > order-42.json
  windlass workflow check-history --file order-42.json

It checks that steps are numbered without a gap, that only created steps have ended, each once
and with a valid outcome, that time does not go backwards, and that the store agrees.
This command has none of your code and cannot replay it. Whether changed code still fits a history
is checked by a test of yours: `check_history` of windlass::workflow::testing.";

#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    group = clap::ArgGroup::new("what").args(["id", "file"]).required(true)
)]
pub(crate) struct CheckHistory {
    /// The id of the workflow, as `workflow list` shows it.
    id: Option<TaskId>,
    /// A file instead of the store: the output of `history --recording` or `--json`, or a history
    /// recorded by a test; - is standard input.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// The execution, from 0 [default: all retained ones]
    #[arg(long, value_name = "N", conflicts_with = "file")]
    execution: Option<u32>,
    #[command(flatten)]
    target: Target,
}

/// The findings of one execution.
struct Finding {
    /// None if a file does not contain it.
    execution: Option<u32>,
    turns: usize,
    problems: Vec<HistoryProblem>,
}

impl CheckHistory {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        let findings = match (&self.id, &self.file) {
            (Some(id), _) => self.of_store(id).await?,
            (None, Some(path)) => of_file(path)?,
            (None, None) => unreachable!("clap requires one of the two"),
        };
        for finding in &findings {
            if self.target.json {
                say_json(&finding.json());
            } else {
                finding.lines().iter().for_each(|line| say(line));
            }
        }
        let problems = findings.iter().map(|finding| finding.problems.len() as u64).sum();
        if problems > 0 { Err(CliError::Unhealthy(problems)) } else { Ok(()) }
    }

    async fn of_store(&self, id: &TaskId) -> Result<Vec<Finding>, CliError> {
        let engine = self.target.open().await?;
        let task = self.target.workflow(&engine, id).await?;
        let executions = match self.execution {
            Some(_) => vec![select_execution(&engine, &task, self.execution).await?],
            None => all_executions(&engine, &task).await?,
        };
        let mut findings: Vec<Finding> = Vec::new();
        // The number of the first step of the next execution.
        let mut next = Some((0, 0));
        for selected in executions {
            let number = selected.number();
            let first_step = next.filter(|(of, _)| *of == number).map(|(_, step)| step);
            let (finding, next_step) =
                check_execution(&engine, &task, &selected, first_step).await?;
            next = next_step.map(|step| (number + 1, step));
            findings.push(finding);
        }
        engine.shutdown().await?;
        Ok(findings)
    }
}

async fn check_execution(
    engine: &Engine,
    task: &Task,
    selected: &ExecutionRef<'_>,
    first_step: Option<u64>,
) -> Result<(Finding, Option<u64>), CliError> {
    let execution = Some(selected.number());
    let rows = match selected.rows(engine).await {
        Ok(rows) => rows,
        Err(error @ (Error::HistoryMissing { .. } | Error::HistoryUnreadable { .. })) => {
            let problems = vec![HistoryProblem { turn: None, what: error.to_string() }];
            return Ok((Finding { execution, turns: 0, problems }, None));
        }
        Err(error) => return Err(error.into()),
    };
    let state = task.workflow.as_deref().filter(|_| matches!(selected, ExecutionRef::Present(_)));
    let first_step = first_step.or(state.map(|state| state.first_step));
    let Checked { mut problems, next_step } = check(&rows, first_step);
    if let Some(state) = state {
        let mut disagree = |what: &str, store: u64, history: u64| {
            let what = format!("the store says {what} {store}, the history {history}");
            problems.push(HistoryProblem { turn: None, what });
        };
        let next = next_step.unwrap_or(state.first_step);
        // A turn that is being committed in parts has allocated all its numbers already.
        let rests = task.lifecycle.public() == PublicState::Suspended
            || task.lifecycle.ended_at().is_some_and(|_| !is_forced(task));
        if next > state.next_step || rests && next != state.next_step {
            disagree("that the next step is", state.next_step, next);
        }
        if first_step.is_some_and(|first| first != state.first_step) {
            disagree("that the first step is", state.first_step, first_step.unwrap_or_default());
        }
    }
    Ok((Finding { execution, turns: rows.len(), problems }, next_step.or(first_step)))
}

/// Whether it was ended from outside, perhaps during a turn.
fn is_forced(task: &Task) -> bool {
    !matches!(task.lifecycle.public(), PublicState::Completed)
}

/// History rows or recorded executions, as a sequence or as an array.
fn of_file(path: &Path) -> Result<Vec<Finding>, CliError> {
    let rejected = |why: String| CliError::NoHistoryFile { path: path.to_owned(), why };
    let text = match path.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| rejected(error.to_string()))?;
    let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let mut values: Vec<Value> =
        values.collect::<Result<_, _>>().map_err(|error| rejected(error.to_string()))?;
    if let [Value::Array(all)] = values.as_mut_slice() {
        values = std::mem::take(all);
    }
    if values.is_empty() {
        return Err(rejected("it has no rows".to_owned()));
    }
    if !values.iter().all(|value| value["rows"].is_array()) {
        return of_rows(values, None, None).map(|finding| vec![finding]).map_err(rejected);
    }
    let findings = values.into_iter().map(|mut recorded| {
        let begin = &recorded["start"];
        let execution = begin["execution"].as_u64().and_then(|number| number.try_into().ok());
        let first_step = begin["first_step"].as_u64();
        let rows = serde_json::from_value(recorded["rows"].take()).unwrap_or_default();
        of_rows(rows, execution, first_step).map_err(rejected)
    });
    findings.collect()
}

fn of_rows(
    rows: Vec<Value>,
    execution: Option<u32>,
    first_step: Option<u64>,
) -> Result<Finding, String> {
    let read = |(turn, row)| {
        let row = serde_json::from_value::<TurnRecord>(row);
        row.map_err(|error| format!("row {turn} is not a history row: {error}"))
    };
    let rows = rows.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    let Checked { problems, .. } = check(&rows, first_step);
    Ok(Finding { execution, turns: rows.len(), problems })
}

impl Finding {
    fn json(&self) -> Value {
        let problems = self.problems.iter();
        let problems =
            problems.map(|problem| json!({ "turn": problem.turn, "what": problem.what }));
        let problems: Vec<Value> = problems.collect();
        json!({ "execution": self.execution, "turns": self.turns, "problems": problems })
    }

    fn lines(&self) -> Vec<String> {
        let name = match self.execution {
            Some(number) => format!("execution {number}"),
            None => "history".to_owned(),
        };
        if self.problems.is_empty() {
            return vec![format!("{name}: {}, well formed", counted(self.turns as u64, "turn"))];
        }
        let line = |problem: &HistoryProblem| match problem.turn {
            Some(turn) => format!("{name}, turn {turn}: {}", problem.what),
            None => format!("{name}: {}", problem.what),
        };
        self.problems.iter().map(line).collect()
    }
}
