use windlass_core::command::NewTask;
use windlass_core::{Payload, TaskId, Timestamp};

/// A workflow command: what the commit of a turn does for the code.
#[derive(Clone, Debug)]
pub enum PlannedCommand {
    Activity {
        step: u64,
        task: Box<NewTask>,
    },
    Child {
        step: u64,
        task: Box<NewTask>,
    },
    /// A detached workflow.
    Start {
        step: u64,
        task: Box<NewTask>,
    },
    Timer {
        step: u64,
        at: Timestamp,
    },
    CancelActivity {
        step: u64,
    },
    CancelTimer {
        step: u64,
    },
    CancelChild {
        step: u64,
        id: TaskId,
    },
    Signal {
        step: u64,
        to: TaskId,
        name: String,
        payload: Option<Payload>,
        /// How long it is buffered if its target does not exist yet.
        buffer_ms: Option<u64>,
    },
    /// The status of the workflow.
    Status(String),
    /// A value that is readable from outside; none if it is removed.
    Value {
        key: String,
        value: Option<Payload>,
    },
}
