use windlass_core::command::NewTask;
use windlass_core::{Payload, TaskId, Timestamp};

/// What the commit of a turn does, for what the code of a workflow made.
#[derive(Clone, Debug)]
pub enum Deed {
    Activity {
        step: u64,
        task: Box<NewTask>,
    },
    Child {
        step: u64,
        task: Box<NewTask>,
    },
    /// A workflow that nobody waits for.
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
    Post {
        step: u64,
        to: TaskId,
        name: String,
        payload: Option<Payload>,
        /// For how long it is kept if there is nobody to be told yet.
        keep_ms: Option<u64>,
    },
    /// What the workflow says of itself.
    Status(String),
    /// A value that can be read from outside; none when it is removed.
    Value {
        key: String,
        value: Option<Payload>,
    },
}
