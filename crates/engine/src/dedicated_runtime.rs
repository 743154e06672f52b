use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// A dedicated runtime for the engine. Application code that blocks its own runtime's threads
/// delays neither commits nor heartbeats.
#[derive(Debug)]
pub(crate) struct DedicatedRuntime(Option<Runtime>);

impl DedicatedRuntime {
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(2).thread_name("windlass").enable_all();
        Ok(Self(Some(builder.build()?)))
    }

    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().expect("the runtime is taken only on drop").handle().clone()
    }
}

impl Drop for DedicatedRuntime {
    /// Does not block: the last clone may be dropped on one of these threads.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
