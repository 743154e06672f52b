use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The process group of a program and its children. Killed if dropped before [`Group::ended`].
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group led by a child, which must have been started as a group leader.
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

    /// Call when no process of the group is left: its id may be reused.
    pub(crate) fn ended(mut self) {
        self.0 = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // ESRCH is fine, and this program may signal its own children.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
