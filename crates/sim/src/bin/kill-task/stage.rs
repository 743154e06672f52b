//! The output of the process, and the step at which it stops to be killed.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use windlass_store::Fault;

use crate::line::{Act, Line};

/// How many open tasks this process may have created.
const ROOM: usize = 8;

/// The step that is only reached after an I/O error, and those a few batches later: the commit
/// that had the error was lost, or was not.
const REOPEN: &str = "sqlite.reopen";
const REOPENED_LOST: &str = "sqlite.reopened.lost";
const REOPENED_KEPT: &str = "sqlite.reopened.kept";
const BATCHES_LATER: u64 = 4;

#[derive(Debug)]
pub(crate) struct Stage {
    step: String,
    nth: u64,
    hits: AtomicU64,
    /// Batches since the I/O error.
    later: AtomicU64,
    /// Results of handlers, which their worker settles.
    returned: Mutex<BTreeMap<(String, u64), Act>>,
    room: Semaphore,
}

impl Stage {
    pub(crate) fn new(step: String, nth: u64) -> Self {
        Self {
            step,
            nth,
            hits: AtomicU64::new(0),
            later: AtomicU64::new(0),
            returned: Mutex::default(),
            room: Semaphore::new(ROOM),
        }
    }

    /// Prints a line in one write. Exits if the parent has closed the pipe.
    pub(crate) fn say(&self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line is serializable");
        text.push('\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(1);
        }
    }

    /// Reports an unexpected event, and stops.
    pub(crate) fn fail(&self, what: String) -> ! {
        self.say(&Line::Unexpected(what));
        hold()
    }

    /// Stops forever, with all that is held here, at the step to be killed at.
    pub(crate) fn reach(&self, step: &str) {
        if step == self.step && self.counts() {
            self.say(&Line::At { step: step.to_owned() });
            hold();
        }
    }

    /// The same for the steps inside the store. To be killed while the file is opened again, or a
    /// little later, an I/O error is injected first: before the commit, or after it.
    pub(crate) fn reach_in_store(&self, step: &'static str) -> Option<Fault> {
        let fails = match self.step.as_str() {
            REOPENED_LOST => "sqlite.commit.before",
            REOPENED_KEPT => "sqlite.commit.after",
            REOPEN if self.nth.is_multiple_of(2) => "sqlite.commit.before",
            REOPEN => "sqlite.commit.after",
            _ => {
                self.reach(step);
                return None;
            }
        };
        if step == fails {
            return self.counts().then_some(Fault::Io);
        }
        let failed = self.hits.load(Ordering::Relaxed) >= self.nth;
        let later = || self.later.fetch_add(1, Ordering::Relaxed) == BATCHES_LATER;
        if failed && (step == self.step || step == "sqlite.begin" && later()) {
            self.say(&Line::At { step: self.step.clone() });
            hold();
        }
        None
    }

    /// Whether this is the hit to stop at.
    fn counts(&self) -> bool {
        self.hits.fetch_add(1, Ordering::Relaxed) + 1 == self.nth
    }

    /// Waits until there is room for one more task.
    pub(crate) async fn room(&self) {
        self.room.acquire().await.expect("the semaphore is never closed").forget();
    }

    pub(crate) fn make_room(&self) {
        self.room.add_permits(1);
    }

    /// Records the result of a handler.
    pub(crate) fn returns(&self, act: &Act) {
        let key = (act.id.clone(), act.epoch);
        self.returned.lock().expect("no panic while it is locked").insert(key, act.clone());
    }

    pub(crate) fn returned(&self, id: &str, epoch: u64) -> Option<Act> {
        let returned = self.returned.lock().expect("no panic while it is locked");
        returned.get(&(id.to_owned(), epoch)).cloned()
    }
}

fn hold() -> ! {
    loop {
        std::thread::park();
    }
}
