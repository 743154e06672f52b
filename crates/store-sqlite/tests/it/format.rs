use windlass_store::{Store, StoreError};
use windlass_store_sqlite::{FORMAT, SqliteStore};
use windlass_store_test::format;

use crate::fixture::{Place, create, ids, must};

/// The error from opening the file; the file itself must be unchanged.
fn rejected(place: &Place) -> StoreError {
    let before = std::fs::read(place.path()).unwrap();
    let error = SqliteStore::open(place.path()).unwrap_err();
    assert!(std::fs::read(place.path()).unwrap() == before, "the file changed: {error}");
    error
}

/// A closed database with one task.
async fn made() -> Place {
    let place = Place::new();
    let store = place.open();
    must(&store, create("a")).await;
    store.close().await.unwrap();
    place
}

#[tokio::test]
async fn a_file_that_is_no_database_is_rejected_unchanged() {
    let whole = std::fs::read(made().await.path()).unwrap();
    let mut header = whole.clone();
    header[..16].fill(0xff);
    let mut schema = whole.clone();
    schema[100..300].fill(0xff);
    let cases: [(&str, &[u8]); 6] = [
        ("garbage", &[0x5a; 10_000]),
        ("a damaged header", &header),
        ("a damaged schema", &schema),
        ("part of the header", &whole[..50]),
        ("part of the first page", &whole[..1_000]),
        ("half of the file", &whole[..whole.len() / 2]),
    ];
    for (name, bytes) in cases {
        let place = Place::new();
        std::fs::write(place.path(), bytes).unwrap();
        let error = rejected(&place);
        let StoreError::Corrupt { path, .. } = &error else { panic!("{name}: {error:?}") };
        assert_eq!(*path, place.path(), "{name}");
    }
}

#[tokio::test]
async fn missing_or_foreign_tables_are_rejected() {
    let other = Place::new();
    other.raw().execute_batch("CREATE TABLE person (name TEXT)").unwrap();
    assert!(matches!(rejected(&other), StoreError::Corrupt { .. }));
    for sql in [
        "DROP TABLE lane",
        "DROP TABLE event",
        "DROP TABLE payload",
        "DROP TABLE writer",
        "DROP TABLE meta",
        "DELETE FROM meta",
        "DROP INDEX task_ready_at",
        "ALTER TABLE task RENAME COLUMN state TO condition",
    ] {
        let place = made().await;
        place.raw().execute_batch(sql).unwrap();
        let error = rejected(&place);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{sql}: {error:?}");
    }
}

#[tokio::test]
async fn only_an_incompatible_format_is_rejected() {
    let later = FORMAT + 1;
    for (format, lowest, ok) in
        [(FORMAT, 1, true), (9, FORMAT, true), (9, later, false), (9, 9, false)]
    {
        let place = made().await;
        let raw = place.raw();
        raw.execute("UPDATE meta SET format = ?, lowest_compatible = ?", [format, lowest]).unwrap();
        drop(raw);
        if !ok {
            let error = rejected(&place);
            let expected = |e: &StoreError| {
                matches!(e, StoreError::Incompatible { found: 9, supported: FORMAT })
            };
            assert!(expected(&error), "{error:?}");
            continue;
        }
        let store = place.open();
        must(&store, create("b")).await;
        assert_eq!(ids(&store).await, ["a", "b"]);
        store.close().await.unwrap();
        let stored: i64 =
            place.raw().query_row("SELECT format FROM meta", [], |row| row.get(0)).unwrap();
        assert_eq!(stored, format, "a newer format is never lowered");
    }
}

#[tokio::test]
async fn a_new_file_has_the_first_format() {
    let formats = "SELECT format, lowest_compatible FROM meta";
    let place = made().await;
    let formats: (i64, i64) = place.raw().query_row(formats, [], |row| row.try_into()).unwrap();
    assert_eq!(formats, (FORMAT, 1));
}

/// The formats of unreleased versions have the same numbers as released ones, but other tables.
#[test]
fn a_file_of_an_unreleased_format_is_rejected_unchanged() {
    for format in format::UNRELEASED {
        let place = Place::new();
        place.raw().execute_batch(&format::unreleased(format, "")).unwrap();
        for error in [rejected(&place), SqliteStore::format(place.path()).unwrap_err()] {
            let is_expected = matches!(error, StoreError::Unreleased { found } if found == format);
            assert!(is_expected, "{error:?}");
            assert_eq!(error.code(), "store_incompatible");
        }
    }
}

#[tokio::test]
async fn a_format_that_becomes_incompatible_stops_the_writer() {
    let place = Place::new();
    let store = place.open();
    must(&store, create("a")).await;
    let later = FORMAT + 1;
    place
        .raw()
        .execute("UPDATE meta SET format = ?, lowest_compatible = ?", [later, later])
        .unwrap();
    let rejected = store.begin().await.err().unwrap();
    assert!(
        matches!(rejected, StoreError::Incompatible { found, supported: FORMAT } if found == later),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn concurrent_opens_create_one_database() {
    let place = Place::new();
    let path = place.path();
    let open = || SqliteStore::open(&path).unwrap();
    let stores: Vec<SqliteStore> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        openers.into_iter().map(|opener| opener.join().unwrap()).collect()
    });
    let first = stores[0].describe().await.unwrap().incarnation;
    for store in &stores {
        assert_eq!(store.describe().await.unwrap().incarnation, first);
    }
    assert_ne!(Place::new().open().describe().await.unwrap().incarnation, first);
}
