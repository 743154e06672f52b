use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// A program and whatever it started, unless that has gone its own way. Dropped before
/// [`Group::ended`], it is killed.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group that a child leads; it must have been started as the leader of its own.
    pub(crate) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Nothing of it is left: its number may soon be somebody else's.
    pub(crate) fn ended(mut self) {
        self.0 = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // A group that is gone needs no signal, and this program may signal its own children.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
