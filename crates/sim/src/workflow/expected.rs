use crate::workflow::interpreter::{FAILED, TIMED_OUT};
use crate::workflow::plan::{ActivityBehavior, NEVER, Op};

/// The workflow fails.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fails;

/// The outcome of a confluent program, without running it: it does not depend on faults.
pub(crate) fn expected(ops: &[Op]) -> Result<String, Fails> {
    let each: Result<Vec<String>, Fails> = ops.iter().map(one).collect();
    Ok(each?.join(" "))
}

fn one(op: &Op) -> Result<String, Fails> {
    Ok(match op {
        Op::Activity(number, behavior) => activity(*number, *behavior),
        Op::Started(number, behavior, between) => {
            let between = expected(between)?;
            format!("{between} then {}", activity(*number, *behavior))
        }
        Op::Dropped(..) => "dropped".to_owned(),
        Op::Local(number) => (number * 2).to_string(),
        Op::Sleep(_) => "slept".to_owned(),
        Op::WaitSignal(NEVER, _) => TIMED_OUT.to_owned(),
        Op::WaitSignal(name, _) => format!("m{name}"),
        Op::SignalStream(name, count) => format!("q{name}x{count}"),
        Op::Echo(_) => "echo".to_owned(),
        Op::Child(ops) => {
            format!("({})", expected(ops).unwrap_or_else(|Fails| FAILED.to_owned()))
        }
        Op::Detached(_) => "detached".to_owned(),
        Op::Join(branches) => {
            let all: Result<Vec<String>, Fails> = branches.iter().map(|b| expected(b)).collect();
            format!("[{}]", all?.join("|"))
        }
        Op::Select(branches) => format!("0:{}", expected(&branches[0])?),
        // A wait for a message that is never sent times out; everything else has enough time.
        Op::Timeout(_, ops) if ops.contains(&Op::WaitSignal(NEVER, None)) => TIMED_OUT.to_owned(),
        Op::Timeout(_, ops) | Op::Shielded(ops) => expected(ops)?,
        Op::Keep(number) => format!("kept {number}"),
        Op::Recall(number) => format!("Some({number})"),
        Op::Status(_) => "said".to_owned(),
        Op::Fail => return Err(Fails),
        Op::Hurried(..) | Op::Chance => unreachable!("a confluent program has no {op:?}"),
    })
}

fn activity(number: u64, behavior: ActivityBehavior) -> String {
    match behavior {
        ActivityBehavior::Never => FAILED.to_owned(),
        _ => (number * 10).to_string(),
    }
}
