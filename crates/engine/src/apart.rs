use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// Threads of the engine's own. Code that blocks the threads of its program, as handlers may do by
/// mistake, holds up neither commits nor heartbeats.
#[derive(Debug)]
pub(crate) struct Apart(Option<Runtime>);

impl Apart {
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(2).thread_name("windlass").enable_all();
        Ok(Self(Some(builder.build()?)))
    }

    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().expect("it is taken only when this is dropped").handle().clone()
    }
}

impl Drop for Apart {
    /// May happen anywhere, also on one of these threads: nothing is waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
