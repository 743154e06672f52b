//! What a run of a program means for its task.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde_json::{Value, json};
use windlass::{Asked, Failure, Payload, Retry, Settlement, limits};

use crate::worker::program::Ran;
use crate::worker::streams::{Broken, result};

/// Trying again does not help: EX_DATAERR of sysexits.h.
const BAD_DATA: i32 = 65;
/// Never try again, whatever the policy says.
const GIVE_UP: i32 = 100;

/// The part of the help that says it.
pub(crate) const HELP: &str = "\
Exit code of CMD:
  0         the task is completed; what CMD printed is its result
  65        a permanent failure: tried again only if the task's policy retries such
  100       give up: never tried again
  other     a transient failure (75 says so expressly): tried again if the task's policy
            says so; without a retry policy it is final
  a signal  a transient failure

  A failure gives the last lines of CMD's stderr as its reason. More than 4 MiB on stdout is a
  permanent failure. Results are application/json if they are JSON, else text/plain if they are
  UTF-8, else application/octet-stream; nothing printed is no result.

Environment of CMD:
  WINDLASS_TASK, WINDLASS_TENANT, WINDLASS_KIND, WINDLASS_LANE, WINDLASS_LABELS (JSON),
  WINDLASS_CONTENT_TYPE (of the payload), WINDLASS_ATTEMPT (from 1), WINDLASS_EPOCH (rises with
  every claim: task and epoch name this run for good), WINDLASS_STORE

What is told of a task, when it is settled, with --json: task, tenant, kind, lane, attempt, epoch,
outcome (done, failure, released, put_off; lost when it could not be settled), asked, settled, code
(why it could not), class, gives_up, reason, result_bytes, took_ms.

A program that cannot be started says nothing about its task, which is put off, the attempt not
counted: for a second at first, then for longer, half a minute at most. After five failed starts
in a row the worker ends with 1, and so does one that ends by itself after a failed start.

When the task is cancelled or its lease is lost, CMD and what it started get SIGTERM, and SIGKILL
after a sixth of the lease, a second at most. The same happens when the worker ends and its grace
is over; the task is then released, and the attempt not counted. The first Ctrl-C, SIGTERM or
SIGHUP lets programs finish, and so does a reader of the output that leaves; the second signal
kills them.

A worker that is killed (kill -9) leaves running programs behind, and their tasks are given to
others when the leases have run out. WINDLASS_EPOCH is the fence against that: what CMD writes to
should refuse an epoch below one that it has seen for the task.";

pub(crate) type Verdict = Result<Option<Payload>, Failure>;

pub(crate) fn verdict(ran: Ran) -> Verdict {
    match ran {
        Ran::Ended { status, printed, .. } if status.success() => Ok(result(printed)),
        Ran::Ended { status, last_words, .. } => {
            let reason = reason(status, &last_words);
            Err(match status.code() {
                Some(BAD_DATA) => Failure::permanent(reason),
                Some(GIVE_UP) => Failure::give_up(reason),
                _ => Failure::transient(reason),
            })
        }
        Ran::NotStarted { error, pause } => {
            Err(Failure::put_off(format!("the program could not be started: {error}"), pause))
        }
        Ran::Unfit(error) => {
            Err(Failure::permanent(format!("the program cannot be started for it: {error}")))
        }
        Ran::Broken(Broken::TooMuch) => {
            let most = limits::PAYLOAD_BYTES.max;
            Err(Failure::permanent(format!("the program printed more than {most} bytes")))
        }
        Ran::Broken(Broken::Lost(error)) => {
            Err(Failure::transient(format!("the program could not be followed: {error}")))
        }
        Ran::Abandoned => Err(Failure::transient(
            "the program ended, but something that it started held its output open",
        )),
        Ran::Stopped => Err(Failure::transient("the program was told to stop")),
    }
}

fn reason(status: ExitStatus, last_words: &str) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".into(),
    };
    if last_words.is_empty() { how } else { format!("{how}: {last_words}") }
}

/// What is told of an attempt: a line for people, an object for programs.
pub(crate) fn line(came: &Settlement) -> String {
    let (task, attempt, seconds) = (&came.fence.task.id, came.attempt, came.took.as_secs_f64());
    let asked = match &came.asked {
        None => "told to stop".into(),
        Some(Asked::Complete(None)) => "done".into(),
        Some(Asked::Complete(Some(result))) => {
            format!("done, a result of {} bytes", result.bytes.len())
        }
        Some(Asked::Fail(failure)) => {
            let end = if failure.retry() == Retry::GiveUp { ", given up" } else { "" };
            format!("{} failure{end}: {}", failure.class().as_str(), failure.reason())
        }
        Some(Asked::Release) => "told to stop, and given back".into(),
        Some(Asked::Delay { pause, reason }) => {
            format!("put off for {} s: {reason}", pause.as_secs())
        }
        Some(Asked::WaitChildren) => "waits for its children".into(),
        Some(Asked::Suspend) => "suspended".into(),
    };
    let what = match came.answer.code() {
        None => asked,
        Some(code) => format!("not settled, {} [{code}]; it was {asked}", came.answer),
    };
    format!("{task} attempt {attempt}, {seconds:.3} s: {}", what.replace('\n', " | "))
}

pub(crate) fn object(came: &Settlement) -> Value {
    let (asked, outcome) = match &came.asked {
        None => (None, "lost"),
        Some(Asked::Complete(_)) => (Some("complete"), "done"),
        Some(Asked::Fail(_)) => (Some("fail"), "failure"),
        Some(Asked::Release) => (Some("release"), "released"),
        Some(Asked::Delay { .. }) => (Some("delay"), "put_off"),
        Some(Asked::WaitChildren) => (Some("wait_children"), "waits"),
        Some(Asked::Suspend) => (Some("suspend"), "suspended"),
    };
    let settled = came.answer.is_settled();
    let failure = match &came.asked {
        Some(Asked::Fail(failure)) => Some(failure),
        _ => None,
    };
    let reason = match &came.asked {
        Some(Asked::Delay { reason, .. }) => Some(reason.as_str()),
        _ => failure.map(Failure::reason),
    };
    let result_bytes = match &came.asked {
        Some(Asked::Complete(result)) => Some(result.as_ref().map_or(0, |p| p.bytes.len())),
        _ => None,
    };
    json!({
        "task": came.fence.task.id,
        "tenant": came.fence.task.tenant,
        "kind": came.kind,
        "lane": came.lane,
        "attempt": came.attempt,
        "epoch": came.fence.epoch,
        "outcome": if settled { outcome } else { "lost" },
        "asked": asked,
        "settled": settled,
        "code": came.answer.code(),
        "class": failure.map(|failure| failure.class().as_str()),
        "gives_up": failure.is_some_and(|failure| failure.retry() == Retry::GiveUp),
        "reason": reason,
        "result_bytes": result_bytes,
        "took_ms": u64::try_from(came.took.as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use windlass::FailureClass;

    use super::*;

    #[test]
    fn exit_codes() {
        use FailureClass::{Permanent, Transient};
        let exit = |code: i32| code << 8;
        for (status, expected) in [
            (exit(0), None),
            (exit(1), Some((Transient, Retry::Policy, "exit code 1: why"))),
            (exit(65), Some((Permanent, Retry::Policy, "exit code 65: why"))),
            (exit(75), Some((Transient, Retry::Policy, "exit code 75: why"))),
            (exit(100), Some((Permanent, Retry::GiveUp, "exit code 100: why"))),
            (9, Some((Transient, Retry::Policy, "killed by signal 9: why"))),
        ] {
            let status = ExitStatus::from_raw(status);
            let ran = Ran::Ended { status, printed: Vec::new(), last_words: "why".into() };
            let failure = verdict(ran).err();
            let found = failure.as_ref().map(|f| (f.class(), f.retry(), f.reason()));
            assert_eq!(found, expected, "{status}");
        }
    }
}
