use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::mutation::Mutation;
use crate::cargo::Cargo;
use crate::proof::{Hash, tree_hash};
use crate::tree;

/// The files that a build needs.
const EXTENSIONS: &[&str] = &["rs", "toml", "lock", "sql", "md"];

/// The folders that the results depend on.
const FOLDERS: &[&str] = &["crates"];

/// A copy of the tree, reused by later runs, with a separate target folder.
pub(super) struct TreeCopy {
    /// The hash of the copied sources.
    pub(super) hash: Hash,
    tree: PathBuf,
    target: PathBuf,
    /// Held while the copy is in use: two concurrent runs would mix their mutations.
    _lock: File,
}

impl TreeCopy {
    /// The hash of the present tree, under which results are stored.
    pub(super) fn hash_of_tree() -> Result<Hash, String> {
        tree_hash(FOLDERS)
    }

    /// Updates the copy.
    pub(super) fn update() -> Result<Self, String> {
        let home = tree::target().join("mutate");
        std::fs::create_dir_all(&home).map_err(|error| failed(&home, &error))?;
        let path = home.join("lock");
        let lock = File::create(&path).map_err(|error| failed(&path, &error))?;
        lock.try_lock().map_err(|_| format!("{} is locked by another run", path.display()))?;
        let hash = Self::hash_of_tree()?;
        let (tree, target) = (home.join("tree"), home.join("target"));
        let copy = Self { hash, tree, target, _lock: lock };
        copy.copy()?;
        if Self::hash_of_tree()? != hash {
            return Err("the tree changed while it was copied: run again".into());
        }
        Ok(copy)
    }

    /// Unchanged files are not written, so that they are not built again.
    fn copy(&self) -> Result<(), String> {
        let mut paths = BTreeSet::new();
        for extension in EXTENSIONS {
            paths.extend(tree::files(extension)?);
        }
        for path in &paths {
            let from = tree::root().join(path);
            let bytes = std::fs::read(&from).map_err(|error| failed(&from, &error))?;
            let to = self.tree.join(path);
            if std::fs::read(&to).is_ok_and(|stored| stored == bytes) {
                continue;
            }
            if let Some(folder) = to.parent() {
                std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
            }
            write(&to, bytes)?;
        }
        // Cargo would build a file that the tree does not have.
        for path in tree::walk(&self.tree, &|_| true)? {
            if !paths.contains(&path) {
                let deleted = self.tree.join(&path);
                std::fs::remove_file(&deleted).map_err(|error| failed(&deleted, &error))?;
            }
        }
        Ok(())
    }

    /// Runs `act` while a rule is disabled.
    pub(super) fn without<T>(
        &self,
        mutation: &Mutation,
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let path = self.tree.join(mutation.file);
        let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        write(&path, mutation.patch(&text)?)?;
        let done = act();
        write(&path, &text)?;
        done
    }

    /// A call of cargo in the copy. A disabled rule may leave code unused.
    pub(super) fn command(&self, call: Cargo) -> Command {
        let call = call
            .env("CARGO_TARGET_DIR", self.target.to_string_lossy())
            .env("RUSTFLAGS", "--cap-lints=allow");
        let mut command = call.command();
        command.current_dir(&self.tree);
        command
    }

    /// A program that was built in the copy.
    pub(super) fn program(&self, path: &str) -> Command {
        Command::new(self.target.join(path))
    }
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
