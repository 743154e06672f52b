//! The files of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source::{Source, is_test_path};

/// The root of the workspace, from any working directory.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

pub(crate) fn read(path: &str) -> Result<String, String> {
    let bytes = std::fs::read(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Every Rust source, tracked or untracked, without the ignored ones.
pub(crate) fn sources() -> Result<Vec<Source>, String> {
    let read = |path: String| Ok(Source::new(&path, &read(&path)?));
    files("rs")?.into_iter().map(read).collect()
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()))
}

/// The first digits of the checked-out commit, as a number; none without git or outside a clone.
pub(crate) fn commit() -> Option<u32> {
    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output();
    let output = git.ok().filter(|output| output.status.success())?;
    u32::from_str_radix(String::from_utf8_lossy(&output.stdout).get(..8)?, 16).ok()
}

/// The files with this extension, tracked or untracked, without the ignored ones, in order.
pub(crate) fn files(extension: &str) -> Result<Vec<String>, String> {
    let ending = format!(".{extension}");
    files_where(|path| path.ends_with(&ending))
}

/// The files with accepted paths, tracked or untracked, without the ignored ones, in order.
pub(crate) fn files_where(accepts: impl Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let args = ["ls-files", "-z", "-co", "--exclude-standard"];
    let listed = Command::new("git").args(args).current_dir(root()).output();
    let mut paths = match listed {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let existing =
                |path: &&str| !path.is_empty() && accepts(path) && root().join(path).is_file();
            text.split('\0').filter(existing).map(String::from).collect()
        }
        // A copy without its history, or a machine without git.
        _ => walk(&root(), &accepts)?,
    };
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// The same without git: hidden folders and the target folder are excluded.
pub(crate) fn walk(root: &Path, accepts: &impl Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
                continue;
            }
            let inside = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            if accepts(&inside) {
                found.push(inside);
            }
        }
    }
    Ok(found)
}

/// The folder of a source's crate.
pub(crate) fn crate_of(path: &str) -> &str {
    match path.split_once("/src/") {
        Some((folder, _)) => folder,
        None => path.strip_suffix("/build.rs").unwrap_or(path),
    }
}

/// Whether it is part of a store, and not of its tests or of the shared conformance suites.
pub(crate) fn is_in_store(path: &str) -> bool {
    path.starts_with("crates/store-") && !is_test_path(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_belongs_to_a_crate() {
        for (path, folder) in [
            ("crates/core/src/command/claim.rs", "crates/core"),
            ("xtask/src/main.rs", "xtask"),
            ("crates/cli/build.rs", "crates/cli"),
        ] {
            assert_eq!(crate_of(path), folder);
        }
    }

    #[test]
    fn a_walk_finds_what_git_lists() {
        let inside = |path: &String| path.starts_with("xtask/");
        let listed: Vec<String> = files("rs").unwrap().into_iter().filter(inside).collect();
        let mut walked = walk(&root(), &|path: &str| path.ends_with(".rs")).unwrap();
        walked.retain(inside);
        walked.sort();
        assert_eq!(listed, walked);
        assert!(listed.contains(&"xtask/src/tree.rs".to_owned()));
    }
}
