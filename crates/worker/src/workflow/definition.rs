use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::Payload;

use super::context::Workflow;
use super::name::{AnonymousFunction, name_of};
use crate::failure::Failure;
use crate::handler::{Handled, decode, encode};

pub(super) type Code = Pin<Box<dyn Future<Output = Handled> + Send>>;

/// The code of a workflow, from payload to payload.
#[derive(Clone)]
pub struct WorkflowDefinition {
    name: String,
    version: Option<String>,
    run: Arc<dyn Fn(Workflow, Option<Payload>) -> Code + Send + Sync>,
}

impl WorkflowDefinition {
    /// The code of a function, under the name of the function.
    pub fn of<F, I, O, E, Fut>(function: F) -> Result<Self, AnonymousFunction>
    where
        F: Fn(Workflow, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: Into<Failure>,
    {
        let name = name_of(&function)?;
        Ok(Self::named(name, function))
    }

    /// The code of a function, under this name.
    pub fn named<F, I, O, E, Fut>(name: impl Into<String>, function: F) -> Self
    where
        F: Fn(Workflow, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: Into<Failure>,
    {
        let function = Arc::new(function);
        let run = move |workflow, input: Option<Payload>| -> Code {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let running = function(workflow, decode(input.as_ref())?);
                let output = running.await.map_err(Into::into)?;
                encode(&output)
            })
        };
        Self { name: name.into(), version: None, run: Arc::new(run) }
    }

    /// The version of workflows that run this code, such as `1.2.0`. Without unversioned code, the
    /// latest version also runs workflows without one.
    #[must_use]
    pub fn at_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    pub(super) fn begin(&self, workflow: Workflow, input: Option<Payload>) -> Code {
        (self.run)(workflow, input)
    }
}

impl fmt::Debug for WorkflowDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkflowDefinition({})", self.name)
    }
}
