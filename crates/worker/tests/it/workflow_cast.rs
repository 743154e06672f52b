//! Activities and helpers shared by the tests of workflows.

use std::time::Duration;

use windlass_core::{Arrival, Carried, Payload, StepOutcome, Timestamp, Turned};
use windlass_worker::workflow::{Begin, Doing, Finished, Instance, Program, Standing, Turn};
use windlass_worker::{Context, Failure};

pub(crate) async fn charge(_: Context, cents: u64) -> Result<String, Failure> {
    Ok(format!("paid {cents}"))
}

pub(crate) async fn refund(_: Context, receipt: String) -> Result<(), Failure> {
    Err(Failure::permanent(receipt))
}

pub(crate) async fn pack(_: Context, cents: u64) -> Result<u64, Failure> {
    Ok(cents)
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// The commands of a history, a line for each.
pub(crate) fn made(rows: &[Turned]) -> Vec<String> {
    let made = rows.iter().flat_map(|row| &row.made);
    made.map(|made| Doing::Made(Box::new(made.clone())).to_string()).collect()
}

pub(crate) fn done(step: u64, json: &str) -> Arrival {
    let result = Some(Carried(Payload::json(json)));
    Arrival::Report { step, outcome: StepOutcome::Completed { result } }
}

pub(crate) fn fired(step: u64) -> Arrival {
    Arrival::Report { step, outcome: StepOutcome::Fired }
}

pub(crate) fn message(name: &str, json: &str) -> Arrival {
    let payload = Some(Carried(Payload::json(json)));
    Arrival::Message { name: name.to_owned(), source: "test".to_owned(), payload }
}

pub(crate) fn cancel(reason: &str) -> Arrival {
    Arrival::Cancel { reason: reason.to_owned() }
}

/// A workflow without input, before its first turn.
pub(crate) fn instance(program: &Program) -> Instance {
    Instance::begin(program, Begin::new("w", 7))
}

/// A turn without local activities.
pub(crate) fn turn(instance: &mut Instance, ms: i64, arrivals: Vec<Arrival>) -> Finished {
    match instance.turn(at(ms), arrivals).unwrap() {
        Turn::Finished(finished) => finished,
        Turn::Local(work) => panic!("{work:?}"),
    }
}

pub(crate) fn rows(finished: &Finished) -> Vec<Turned> {
    finished.parts.iter().map(|part| part.row.clone()).collect()
}

/// The result of a workflow.
pub(crate) fn json(standing: &Standing) -> String {
    match standing {
        Standing::Completed(None) => "null".to_owned(),
        Standing::Completed(Some(payload)) => String::from_utf8(payload.bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}
