use std::sync::Arc;

use clap::Args;
use windlass::{Config, Engine, InvalidStoreUrl, StoreUrl, Task, TaskId, TaskKey, Tenant};

use crate::error::CliError;
use crate::formats::Formats;

/// The options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The store: sqlite://PATH or postgres://. Your program may have it open at the same time.
    #[arg(
        long,
        value_name = "URL",
        env = "WINDLASS_STORE",
        hide_env_values = true,
        default_value = "sqlite://windlass.db",
        value_parser = lasting,
        help_heading = "Where and how"
    )]
    pub(crate) store: StoreUrl,
    /// The tenant.
    #[arg(long, default_value = "default", help_heading = "Where and how")]
    pub(crate) tenant: Tenant,
    /// Print JSON on standard output, one object per line; errors on standard error are JSON too.
    #[arg(long, help_heading = "Where and how")]
    pub(crate) json: bool,
}

/// A store that outlives this command.
fn lasting(text: &str) -> Result<StoreUrl, String> {
    match text.parse() {
        Ok(StoreUrl::Memory) => {
            Err("a memory store ends with this command; name a file or a server".to_owned())
        }
        Ok(store) => Ok(store),
        Err(InvalidStoreUrl::UnknownScheme) => {
            Err("a store is sqlite://PATH (sqlite:///absolute, \
            sqlite://relative) or postgres://"
                .to_owned())
        }
        Err(bad) => Err(bad.to_string()),
    }
}

impl Target {
    /// Opens an engine without background work. Creates neither a file nor a table.
    pub(crate) async fn open(&self) -> Result<Engine, CliError> {
        if Formats::of(&self.store).await?.found.is_none() {
            return Err(CliError::NoDatabase(self.store.to_string()));
        }
        self.open_or_make().await
    }

    pub(crate) async fn open_or_make(&self) -> Result<Engine, CliError> {
        let config = Config { background: false, ..Config::default() };
        Ok(Engine::open_with(&self.store, config).await?)
    }

    pub(crate) async fn task(&self, engine: &Engine, id: &TaskId) -> Result<Arc<Task>, CliError> {
        let task = engine.task(&self.key(id)).await?;
        task.ok_or_else(|| CliError::NotFound { what: "task", name: id.to_string() })
    }

    /// Loads a task that must be a workflow.
    pub(crate) async fn workflow(
        &self,
        engine: &Engine,
        id: &TaskId,
    ) -> Result<Arc<Task>, CliError> {
        let task = engine.task(&self.key(id)).await?;
        let name = id.to_string();
        match task {
            Some(task) if task.workflow.is_some() => Ok(task),
            Some(_) => Err(CliError::NotAWorkflow(name)),
            None => Err(CliError::NotFound { what: "workflow", name }),
        }
    }

    pub(crate) fn key(&self, id: &TaskId) -> TaskKey {
        TaskKey::new(&self.tenant, id)
    }
}
