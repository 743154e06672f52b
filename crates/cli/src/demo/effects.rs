use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use windlass::{Fence, TaskId};

use crate::demo::error::{DemoError, system_error};

/// The external world: a file to which each handler appends a line for its effect, with the fence
/// it had.
#[derive(Clone, Debug)]
pub(crate) struct Effects(Arc<File>);

/// How often the effect of each run occurred.
pub(crate) type EffectCounts = BTreeMap<(TaskId, u64), u32>;

impl Effects {
    pub(crate) fn open(path: &Path) -> Result<Self, DemoError> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Ok(Self(Arc::new(file.map_err(system_error("the file of effects"))?)))
    }

    /// In one write, so that lines of several processes do not interleave.
    pub(crate) fn append(&self, fence: &Fence) -> io::Result<()> {
        let line = format!("{} {}\n", fence.task.id, fence.epoch);
        (&*self.0).write_all(line.as_bytes())
    }

    pub(crate) fn read(path: &Path) -> Result<EffectCounts, DemoError> {
        let text = std::fs::read_to_string(path).map_err(system_error("the file of effects"))?;
        let mut counts = EffectCounts::new();
        for line in text.lines() {
            let fence = line
                .split_once(' ')
                .and_then(|(id, epoch)| Some((TaskId::new(id), epoch.parse().ok()?)));
            let bad = || io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
            let fence = fence.ok_or_else(bad).map_err(system_error("a line of effects"))?;
            *counts.entry(fence).or_default() += 1;
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use windlass::{TaskKey, Tenant};

    use super::*;

    #[test]
    fn appended_effects_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects");
        let effects = Effects::open(&path).unwrap();
        for (id, epoch) in [("a", 7), ("b", 8), ("a", 9), ("a", 9)] {
            let task = TaskKey { tenant: Tenant::default(), id: id.into() };
            effects.append(&Fence { task, epoch }).unwrap();
        }
        let expected = [(("a".into(), 7), 1), (("a".into(), 9), 2), (("b".into(), 8), 1)];
        assert_eq!(Effects::read(&path).unwrap(), EffectCounts::from(expected));
        std::fs::write(&path, "a\n").unwrap();
        assert!(Effects::read(&path).is_err());
    }
}
