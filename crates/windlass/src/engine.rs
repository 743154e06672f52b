use std::ops::Deref;

use serde::Serialize;
use thiserror::Error as ThisError;
use windlass_core::{TaskId, WorkerId};
use windlass_engine::{Config, Error, Starting};
use windlass_worker::Worker;
use windlass_worker::workflow::{Workflow, name_of};

use crate::store_url::{BadUrl, StoreUrl};

/// An engine on a store of its own. Clones share it.
///
/// Whatever [`windlass_engine::Engine`] can do, this can.
#[derive(Clone, Debug)]
pub struct Engine(windlass_engine::Engine);

/// Why a store could not be opened.
#[derive(Debug, ThisError)]
pub enum OpenError {
    #[error(transparent)]
    Url(#[from] BadUrl),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl OpenError {
    /// The stable name of this error, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            OpenError::Url(_) => "bad_url",
            OpenError::Engine(error) => error.code(),
        }
    }
}

impl Engine {
    /// Opens a store and starts an engine on it: `sqlite://app.db` (made when it is not there),
    /// `sqlite:///var/lib/app.db`, `postgres://app@db/app`, or `memory:`, which is gone with the
    /// process.
    ///
    /// Several programs may have one store open at once. The engine has threads of its own, so that
    /// a handler that blocks its thread holds up nobody else.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::open_with(&url.parse()?, Config::default()).await
    }

    pub async fn open_with(url: &StoreUrl, config: Config) -> Result<Self, OpenError> {
        let url = url.clone();
        let open = async move { url.open().await };
        Ok(Self(windlass_engine::Engine::start_apart(open, config).await?))
    }

    /// A fresh task id: time-ordered, so that rows that are made together lie together.
    pub fn new_id() -> TaskId {
        windlass_engine::Engine::new_id()
    }

    /// Starts a workflow: the code of this function, which some worker has. Started again under the
    /// same id it is the same one, or a conflict if its input is another.
    pub fn start<F, I, O, E, Fut>(&self, function: F, input: &I) -> Starting<'_, O>
    where
        F: Fn(Workflow, I) -> Fut,
        Fut: Future<Output = Result<O, E>>,
        I: Serialize,
    {
        // Without a name it is refused as what has no kind.
        let kind = name_of(&function).unwrap_or_default();
        self.0.start_workflow(kind, input)
    }

    /// A worker that takes tasks from this engine; see [`Worker`] for what it can be told.
    pub fn worker(&self, name: impl Into<WorkerId>) -> Worker {
        Worker::new(self.0.clone(), name)
    }
}

impl Deref for Engine {
    type Target = windlass_engine::Engine;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
