use std::collections::BTreeMap;

use windlass_core::{CodeVersion, Kind, Rejection, Task, limits};

use crate::workflow::WorkflowDefinition;

/// The workflow code of a worker, in any number of versions per workflow.
#[derive(Debug, Default)]
pub(crate) struct Programs(BTreeMap<Kind, Versions>);

#[derive(Debug, Default)]
struct Versions {
    /// For workflows that were started without a version.
    plain: Option<WorkflowDefinition>,
    pinned: BTreeMap<CodeVersion, WorkflowDefinition>,
}

impl Programs {
    pub(crate) fn add(&mut self, program: WorkflowDefinition) -> Result<(), Rejection> {
        limits::KIND.check(program.name())?;
        let version = program.version().map(str::parse::<CodeVersion>).transpose()?;
        let known = self.0.entry(program.name().into()).or_default();
        match version {
            Some(version) => drop(known.pinned.insert(version, program)),
            None => known.plain = Some(program),
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The code of a workflow. One without a version gets the plain code, or else the latest.
    pub(crate) fn of(&self, task: &Task) -> Option<&WorkflowDefinition> {
        let known = self.0.get(&task.kind)?;
        match &task.workflow.as_ref()?.version {
            Some(version) => known.pinned.get(&version.parse().ok()?),
            None => known.plain.as_ref().or_else(|| known.pinned.values().next_back()),
        }
    }

    /// The capabilities that let this worker claim workflows of its versions.
    pub(crate) fn capabilities(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|(kind, versions)| {
            versions.pinned.keys().map(move |version| version.capability(kind))
        })
    }
}
