use std::fmt;
use std::sync::Arc;

/// Named steps at which a test can make a store fail, or end the process.
///
/// A store calls `hit` at each step; without a hook that costs one comparison.
#[derive(Clone, Default)]
pub struct Failpoints(Option<Arc<dyn Fn(&'static str) -> Option<Fault> + Send + Sync>>);

/// The injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation reports an I/O error.
    Io,
    /// The operation reports a full disk.
    Full,
}

impl Failpoints {
    pub fn new(hook: impl Fn(&'static str) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub fn hit(&self, step: &'static str) -> Option<Fault> {
        self.0.as_ref().and_then(|hook| hook(step))
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failpoints({})", if self.0.is_some() { "armed" } else { "none" })
    }
}
