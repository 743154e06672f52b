use std::ops::Deref;

use serde::Serialize;
use thiserror::Error as ThisError;
use windlass_core::{TaskId, WorkerId};
use windlass_engine::{Config, Error, WorkflowBuilder};
use windlass_worker::Worker;
use windlass_worker::workflow::{Workflow, name_of};

use crate::store_url::{InvalidStoreUrl, StoreUrl};

/// An engine with its own connection to a store. Clones share it.
///
/// Dereferences to [`windlass_engine::Engine`].
#[derive(Clone, Debug)]
pub struct Engine(windlass_engine::Engine);

/// Why a store could not be opened.
#[derive(Debug, ThisError)]
pub enum OpenError {
    #[error(transparent)]
    Url(#[from] InvalidStoreUrl),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl OpenError {
    /// The stable name of this error, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            OpenError::Url(_) => "invalid_url",
            OpenError::Engine(error) => error.code(),
        }
    }
}

impl Engine {
    /// Opens a store and starts an engine on it: `sqlite://app.db` (created if missing),
    /// `sqlite:///var/lib/app.db`, `postgres://app@db/app`, or `memory:`, which is lost when the
    /// process ends.
    ///
    /// Several programs may open one store at once. The engine runs on its own threads, so a
    /// handler that blocks its thread does not delay other tasks.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::open_with(&url.parse()?, Config::default()).await
    }

    pub async fn open_with(url: &StoreUrl, config: Config) -> Result<Self, OpenError> {
        let url = url.clone();
        let open = async move { url.open().await };
        Ok(Self(windlass_engine::Engine::start_on_own_runtime(open, config).await?))
    }

    /// A new task id. Ids are time-ordered, so that rows created together are stored together.
    pub fn new_id() -> TaskId {
        windlass_engine::Engine::new_id()
    }

    /// Starts a workflow that runs this function on some worker. Starting it again with the same id
    /// and input returns the same workflow; another input is a conflict.
    pub fn start_workflow<F, I, O, E, Fut>(&self, function: F, input: &I) -> WorkflowBuilder<'_, O>
    where
        F: Fn(Workflow, I) -> Fut,
        Fut: Future<Output = Result<O, E>>,
        I: Serialize,
    {
        // A function without a name gives an empty kind, which is rejected as `invalid`.
        let kind = name_of(&function).unwrap_or_default();
        self.0.start_workflow_named(kind, input)
    }

    /// Builds a worker that claims tasks from this engine; see [`Worker`] for its options.
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
