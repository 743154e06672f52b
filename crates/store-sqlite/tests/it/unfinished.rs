//! Files whose creation was interrupted by a crash at each step.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use windlass_store::{Failpoints, Fault, StoreError};
use windlass_store_sqlite::{FORMAT, Options, SqliteStore};

use crate::fixture::{Place, create, ids, must};

/// Copies the database and its journal files.
fn copy(from: &Path) -> Place {
    let place = Place::new();
    for entry in std::fs::read_dir(from.parent().unwrap()).unwrap() {
        let file = entry.unwrap().path();
        std::fs::copy(&file, place.path().with_file_name(file.file_name().unwrap())).unwrap();
    }
    place
}

/// Copies of the file as left by a crash at each step of its creation.
fn crashes() -> Vec<(String, Place)> {
    let place = Place::new();
    let images: Arc<Mutex<Vec<(String, Place)>>> = Arc::default();
    let (path, found) = (place.path(), images.clone());
    let failpoints = Failpoints::new(move |step| {
        let mut found = found.lock().unwrap();
        let name = format!("{step} {}", found.len());
        found.push((name, copy(&path)));
        None
    });
    drop(place.open_with(Options { failpoints, ..Options::default() }));
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() >= 3 + MIGRATIONS, "{}", images.len());
    images
}

const MIGRATIONS: usize = windlass_store_sqlite::MIGRATIONS.len();

/// A file with pages of an incomplete transaction.
fn hot_journal() -> Place {
    let place = Place::new();
    let raw = place.raw();
    raw.execute_batch("PRAGMA cache_size = 1; BEGIN; CREATE TABLE t (b BLOB)").unwrap();
    for _ in 0..100 {
        raw.execute("INSERT INTO t VALUES (zeroblob(3000))", []).unwrap();
    }
    let image = copy(&place.path());
    assert!(std::fs::metadata(image.path()).unwrap().len() > 0, "the cache spilled");
    assert!(journal(&image).exists());
    image
}

fn journal(place: &Place) -> PathBuf {
    let mut name = place.path().into_os_string();
    name.push("-journal");
    name.into()
}

fn prepared(sql: &str) -> Place {
    let place = Place::new();
    std::fs::write(place.path(), b"").unwrap();
    place.raw().execute_batch(sql).unwrap();
    place
}

#[tokio::test]
async fn every_incomplete_file_is_completed_on_open() {
    let mut images = crashes();
    images.push(("an empty file".into(), prepared("")));
    images.push(("no table".into(), prepared("PRAGMA journal_mode = wal")));
    images.push(("no table, no log".into(), prepared("VACUUM")));
    images.push(("a hot journal".into(), hot_journal()));
    for (name, place) in images {
        let found = SqliteStore::format(place.path());
        let done = name.starts_with("sqlite.migrate.after");
        let expected = done.then_some(FORMAT);
        assert!(matches!(found, Ok(found) if found == expected), "{name}: {found:?}");
        let store = SqliteStore::open(place.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
        must(&store, create("a")).await;
        assert_eq!(ids(&store).await, ["a"], "{name}");
        drop(store);
        let found = SqliteStore::format(place.path());
        assert!(matches!(found, Ok(Some(FORMAT))), "{name}: {found:?}");
    }
}

#[tokio::test]
async fn a_creation_interrupted_by_a_full_disk_can_be_completed() {
    for step in ["sqlite.open", "sqlite.migrate.step", "sqlite.migrate.before"] {
        let place = Place::new();
        let failpoints = Failpoints::new(move |found| (found == step).then_some(Fault::Full));
        let options = Options { failpoints, ..Options::default() };
        let full = SqliteStore::open_with(place.path(), options).unwrap_err();
        assert!(matches!(full, StoreError::Full), "{step}: {full:?}");
        assert!(matches!(SqliteStore::format(place.path()), Ok(None)), "{step}");
        must(&place.open(), create("a")).await;
    }
    for pages in 1..20 {
        let place = Place::new();
        let options = Options { max_pages: Some(pages), ..Options::default() };
        let full = SqliteStore::open_with(place.path(), options).unwrap_err();
        assert!(matches!(full, StoreError::Full), "{pages}: {full:?}");
        assert!(matches!(SqliteStore::format(place.path()), Ok(None)), "{pages}");
        must(&place.open(), create("a")).await;
    }
}

#[test]
fn reading_the_format_creates_and_changes_nothing() {
    let missing = Place::new();
    assert!(matches!(SqliteStore::format(missing.path()), Ok(None)));
    assert!(!missing.path().exists());
    // The WAL of a foreign database contains pages that its file lacks.
    let other = Place::new();
    let raw = other.raw();
    raw.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE person (name TEXT)").unwrap();
    let other = copy(&other.path());
    drop(raw);
    let before = std::fs::read(other.path()).unwrap();
    for rejected in
        [SqliteStore::format(other.path()).map(drop), SqliteStore::open(other.path()).map(drop)]
    {
        assert!(matches!(rejected, Err(StoreError::Corrupt { .. })), "{rejected:?}");
        assert!(std::fs::read(other.path()).unwrap() == before, "the file changed");
    }
}
