use std::collections::BTreeMap;

use windlass_core::{CodeVersion, Kind, Rejection, Task, limits};

use crate::workflow::WorkflowDefinition;

/// The workflow code of a worker, in any number of versions per workflow.
#[derive(Debug, Default)]
pub(crate) struct WorkflowDefinitions(BTreeMap<Kind, Versions>);

#[derive(Debug, Default)]
struct Versions {
    /// For workflows that were started without a version.
    plain: Option<WorkflowDefinition>,
    pinned: BTreeMap<CodeVersion, WorkflowDefinition>,
}

impl WorkflowDefinitions {
    pub(crate) fn add(&mut self, definition: WorkflowDefinition) -> Result<(), Rejection> {
        limits::KIND.check(definition.name())?;
        let version = definition.version().map(str::parse::<CodeVersion>).transpose()?;
        let versions = self.0.entry(definition.name().into()).or_default();
        match version {
            Some(version) => drop(versions.pinned.insert(version, definition)),
            None => versions.plain = Some(definition),
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The code of a workflow. One without a version gets the plain code, or else the latest.
    pub(crate) fn of(&self, task: &Task) -> Option<&WorkflowDefinition> {
        let versions = self.0.get(&task.kind)?;
        match &task.workflow.as_ref()?.version {
            Some(version) => versions.pinned.get(&version.parse().ok()?),
            None => versions.plain.as_ref().or_else(|| versions.pinned.values().next_back()),
        }
    }

    /// The capabilities that let this worker claim workflows of its versions.
    pub(crate) fn capabilities(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|(kind, versions)| {
            versions.pinned.keys().map(move |version| version.capability(kind))
        })
    }
}
