//! Maps the result of a program run to the outcome of its task.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde_json::{Value, json};
use windlass::{AttemptReport, Failure, Payload, Retry, SettleRequest, limits};

use crate::worker::program::ProgramResult;
use crate::worker::streams::{StreamError, result};

/// A permanent failure: EX_DATAERR of sysexits.h.
const BAD_DATA: i32 = 65;
/// A non-retryable failure, whatever the policy.
const NON_RETRYABLE: i32 = 100;

/// The help text that documents this.
pub(crate) const HELP: &str = "\
Exit code of CMD:
  0         the task is completed; its stdout is the result
  65        a permanent failure: retried only if the task's policy includes such
  100       a non-retryable failure
  other     a transient failure (75 by convention): retried if the task's policy
            allows it; without a retry policy it is final
  a signal  a transient failure

  A failure gives the last lines of CMD's stderr as its reason. More than 4 MiB on stdout is a
  permanent failure. Results are application/json if they are JSON, else text/plain if they are
  UTF-8, else application/octet-stream; nothing printed is no result.

Environment of CMD:
  WINDLASS_TASK, WINDLASS_TENANT, WINDLASS_KIND, WINDLASS_LANE, WINDLASS_LABELS (JSON),
  WINDLASS_CONTENT_TYPE (of the payload), WINDLASS_ATTEMPT (from 1), WINDLASS_EPOCH (rises with
  every claim: task and epoch identify this run), WINDLASS_STORE

Fields reported for a settled task with --json: task, tenant, kind, lane, attempt, epoch,
outcome (completed, failed, released, snoozed; not_settled if the settle was rejected or not made),
requested, settled, code (why it was not settled), class, non_retryable, reason, result_bytes,
duration_ms.

If CMD cannot be started, its task is snoozed without counting the attempt: for one second at
first, then longer, up to 30 seconds. After five failed starts in a row the worker exits with 1,
and so does one that stops by --once or --exit-when-idle after a failed start.

When the task is cancelled or its lease is lost, CMD and its children get SIGTERM, and SIGKILL
after a sixth of the lease, a second at most. The same happens when the worker stops and its grace
is over; the task is then released, and the attempt not counted. The first Ctrl-C, SIGTERM or
SIGHUP lets programs finish, and so does a closed output pipe; the second signal
kills them.

A worker that is killed (kill -9) leaves running programs behind, and their tasks are leased to
other workers when the leases expire. WINDLASS_EPOCH is the fence against that: systems that CMD
writes to should reject an epoch below the highest that they have seen for the task.";

pub(crate) type Verdict = Result<Option<Payload>, Failure>;

pub(crate) fn verdict(ran: ProgramResult) -> Verdict {
    match ran {
        ProgramResult::Ended { status, printed, .. } if status.success() => Ok(result(printed)),
        ProgramResult::Ended { status, stderr_tail, .. } => {
            let reason = reason(status, &stderr_tail);
            Err(match status.code() {
                Some(BAD_DATA) => Failure::permanent(reason),
                Some(NON_RETRYABLE) => Failure::non_retryable(reason),
                _ => Failure::transient(reason),
            })
        }
        ProgramResult::NotStarted { error, pause } => {
            Err(Failure::snooze(format!("the program could not be started: {error}"), pause))
        }
        ProgramResult::Unfit(error) => {
            Err(Failure::permanent(format!("the program cannot be started for this task: {error}")))
        }
        ProgramResult::StreamError(StreamError::TooLong) => {
            let most = limits::PAYLOAD_BYTES.max;
            Err(Failure::permanent(format!("the program printed more than {most} bytes")))
        }
        ProgramResult::StreamError(StreamError::Io(error)) => {
            Err(Failure::transient(format!("the streams of the program failed: {error}")))
        }
        ProgramResult::Abandoned => Err(Failure::transient(
            "the program exited, but one of its children held its output open",
        )),
        ProgramResult::Stopped => Err(Failure::transient("the program was stopped")),
    }
}

fn reason(status: ExitStatus, stderr_tail: &str) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "exited with an unknown status".into(),
    };
    if stderr_tail.is_empty() { how } else { format!("{how}: {stderr_tail}") }
}

/// The report of an attempt: a line for people, an object for programs.
pub(crate) fn line(report: &AttemptReport) -> String {
    let (task, attempt, seconds) =
        (&report.fence.task.id, report.attempt, report.elapsed.as_secs_f64());
    let request = requested(report.request.as_ref(), report.result.is_settled());
    let what = match report.result.code() {
        None => request,
        Some(code) => format!("not settled, {} [{code}]; it was {request}", report.result),
    };
    format!("{task} attempt {attempt}, {seconds:.3} s: {}", what.replace('\n', " | "))
}

/// What the worker requested; a release counts only once it is committed.
fn requested(request: Option<&SettleRequest>, is_settled: bool) -> String {
    match request {
        None => "stopped".into(),
        Some(SettleRequest::Complete(None)) => "done".into(),
        Some(SettleRequest::Complete(Some(result))) => {
            format!("done, a result of {} bytes", result.bytes.len())
        }
        Some(SettleRequest::Fail(failure)) => {
            let end = if failure.retry() == Retry::Never { ", not retried" } else { "" };
            format!("{} failure{end}: {}", failure.class().as_str(), failure.reason())
        }
        Some(SettleRequest::Release) if is_settled => "stopped and released".into(),
        Some(SettleRequest::Release) => "stopped".into(),
        Some(SettleRequest::Snooze { delay, reason }) => {
            format!("snoozed for {} s: {reason}", delay.as_secs())
        }
        Some(SettleRequest::WaitChildren) => "waits for its children".into(),
        Some(SettleRequest::Suspend) => "suspended".into(),
    }
}

pub(crate) fn object(report: &AttemptReport) -> Value {
    let (requested, outcome) = match &report.request {
        None => (None, "not_settled"),
        Some(SettleRequest::Complete(_)) => (Some("complete"), "completed"),
        Some(SettleRequest::Fail(_)) => (Some("fail"), "failed"),
        Some(SettleRequest::Release) => (Some("release"), "released"),
        Some(SettleRequest::Snooze { .. }) => (Some("snooze"), "snoozed"),
        Some(SettleRequest::WaitChildren) => (Some("wait_children"), "waiting_children"),
        Some(SettleRequest::Suspend) => (Some("suspend"), "suspended"),
    };
    let settled = report.result.is_settled();
    let failure = match &report.request {
        Some(SettleRequest::Fail(failure)) => Some(failure),
        _ => None,
    };
    let reason = match &report.request {
        Some(SettleRequest::Snooze { reason, .. }) => Some(reason.as_str()),
        _ => failure.map(Failure::reason),
    };
    let result_bytes = match &report.request {
        Some(SettleRequest::Complete(result)) => Some(result.as_ref().map_or(0, |p| p.bytes.len())),
        _ => None,
    };
    json!({
        "task": report.fence.task.id,
        "tenant": report.fence.task.tenant,
        "kind": report.kind,
        "lane": report.lane,
        "attempt": report.attempt,
        "epoch": report.fence.epoch,
        "outcome": if settled { outcome } else { "not_settled" },
        "requested": requested,
        "settled": settled,
        "code": report.result.code(),
        "class": failure.map(|failure| failure.class().as_str()),
        "non_retryable": failure.is_some_and(|failure| failure.retry() == Retry::Never),
        "reason": reason,
        "result_bytes": result_bytes,
        "duration_ms": u64::try_from(report.elapsed.as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use windlass::FailureClass;

    use super::*;

    #[test]
    fn a_release_that_is_not_committed_is_not_reported_as_released() {
        let release = Some(&SettleRequest::Release);
        assert_eq!(requested(release, true), "stopped and released");
        assert_eq!(requested(release, false), "stopped");
    }

    #[test]
    fn a_line_says_what_the_worker_requested() {
        let result = Payload::new("text/plain", *b"ok");
        for (request, expected) in [
            (None, "stopped"),
            (Some(SettleRequest::Complete(None)), "done"),
            (Some(SettleRequest::Complete(Some(result))), "done, a result of 2 bytes"),
        ] {
            assert_eq!(requested(request.as_ref(), false), expected);
        }
    }

    #[test]
    fn exit_codes() {
        use FailureClass::{Permanent, Transient};
        let exit = |code: i32| code << 8;
        for (status, expected) in [
            (exit(0), None),
            (exit(1), Some((Transient, Retry::Policy, "exit code 1: why"))),
            (exit(65), Some((Permanent, Retry::Policy, "exit code 65: why"))),
            (exit(75), Some((Transient, Retry::Policy, "exit code 75: why"))),
            (exit(100), Some((Permanent, Retry::Never, "exit code 100: why"))),
            (9, Some((Transient, Retry::Policy, "killed by signal 9: why"))),
        ] {
            let status = ExitStatus::from_raw(status);
            let ran =
                ProgramResult::Ended { status, printed: Vec::new(), stderr_tail: "why".into() };
            let failure = verdict(ran).err();
            let found = failure.as_ref().map(|f| (f.class(), f.retry(), f.reason()));
            assert_eq!(found, expected, "{status}");
        }
    }
}
