//! The examples that duroxide publishes, with the provider replaced and otherwise unchanged.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bench::target;
use crate::cargo::Cargo;
use crate::table::{row, table};
use crate::tree;

/// The replacements: the provider, and the URL of its file.
const SWAPS: [(&str, &str); 4] = [
    (
        "use duroxide::providers::sqlite::SqliteProvider;",
        "use windlass_duroxide::WindlassProvider;",
    ),
    ("SqliteProvider::new(&db_url, None)", "WindlassProvider::open(&db_url)"),
    ("SqliteProvider::new_in_memory()", "WindlassProvider::open(\"memory:\")"),
    ("format!(\"sqlite:{}\",", "format!(\"sqlite://{}\","),
];

/// The number of examples that name the provider, which is all of them today.
const FEWEST: usize = 6;

const METADATA: &str =
    "metadata --locked --format-version 1 --manifest-path adapters/duroxide/Cargo.toml";
const MANIFEST: &str = "\
[package]
name = \"duroxide-examples\"
version = \"0.0.0\"
edition = \"2024\"
publish = false

[workspace]

[dependencies]
duroxide = { version = \"=VERSION\", default-features = false }
serde = { version = \"1\", features = [\"derive\"] }
serde_json = \"1\"
tempfile = \"3\"
tokio = { version = \"1\", features = [\"full\"] }
tracing = \"0.1\"
tracing-subscriber = { version = \"0.3\", features = [\"env-filter\", \"json\"] }
windlass-duroxide = { path = \"ADAPTER\" }
";

/// Builds them from the source of the crate that this repository depends on, and runs each.
pub(crate) fn run() -> Result<(), String> {
    let source = published()?;
    let workspace = target().join("duroxide-examples");
    let names = swap(&source.join("examples"), &workspace.join("src/bin"))?;
    if names.len() < FEWEST {
        return Err(format!("only {} examples name their provider", names.len()));
    }
    let folder = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = folder.trim_start_matches("duroxide-");
    let adapter = tree::root().join("adapters/duroxide");
    let manifest = MANIFEST.replace("VERSION", version);
    let manifest = manifest.replace("ADAPTER", &adapter.display().to_string());
    write(&workspace.join("Cargo.toml"), &manifest)?;
    // The same versions of all dependencies as here.
    let locked = fs::copy(tree::root().join("Cargo.lock"), workspace.join("Cargo.lock"));
    locked.map_err(|error| format!("Cargo.lock: {error}"))?;
    let mut rows = vec![row([&"example", &"ends well"])];
    let mut all = true;
    for name in &names {
        let run = Cargo::new("run --quiet --bin");
        let mut run = run.command();
        run.arg(name).current_dir(&workspace).env("CARGO_TARGET_DIR", target());
        println!("==> {name}, on Windlass");
        let status = run.status().map_err(|error| format!("cannot run {name}: {error}"))?;
        all &= status.success();
        rows.push(row([name, &if status.success() { "yes" } else { "no" }]));
    }
    print!("\n{}", table(&rows));
    if all { Ok(()) } else { Err("not every example succeeded".into()) }
}

/// The folder of the crate's source.
fn published() -> Result<PathBuf, String> {
    let output = Cargo::new(METADATA).command().output();
    let output = output.map_err(|error| format!("cannot run cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_it = |path: &&str| path.contains("/duroxide-") && path.ends_with("/Cargo.toml");
    let manifest = text.split('"').find(is_it).ok_or("cargo metadata has no duroxide")?;
    Ok(Path::new(manifest).parent().unwrap_or(Path::new("/")).to_owned())
}

/// Writes the examples that name their provider with the other one. Returns their names.
fn swap(from: &Path, to: &Path) -> Result<Vec<String>, String> {
    let files = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
    let mut names = Vec::new();
    for file in files.flatten() {
        let path = file.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(stem) = name.strip_suffix(".rs") else { continue };
        let text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        if text.contains(SWAPS[0].0) {
            write(&to.join(name), &swapped(&text))?;
            names.push(stem.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn swapped(text: &str) -> String {
    SWAPS.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_is_replaced() {
        let text = "use duroxide::providers::sqlite::SqliteProvider;\n\
            let url = format!(\"sqlite:{}\", path);\n\
            let store = Arc::new(SqliteProvider::new(&db_url, None).await?);\n";
        let expected = "use windlass_duroxide::WindlassProvider;\n\
            let url = format!(\"sqlite://{}\", path);\n\
            let store = Arc::new(WindlassProvider::open(&db_url).await?);\n";
        assert_eq!(swapped(text), expected);
    }
}
