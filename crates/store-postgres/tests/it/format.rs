//! The format of the tables: created, migrated once, and rejected if it is not supported.

use windlass_store::{Store, StoreError};
use windlass_store_postgres::{FORMAT, PostgresStore};
use windlass_store_test::format;
use windlass_store_test::postgres::Server;

use crate::stage::{create, must};

const FORMATS: &str = "SELECT format, lowest_compatible FROM windlass.meta";

#[tokio::test]
async fn concurrent_opens_create_the_tables_once() {
    let server = Server::start();
    let open = || async { PostgresStore::open(&server.url()).await.unwrap() };
    let stores = tokio::join!(open(), open(), open(), open());
    let first = stores.0.describe().await.unwrap().incarnation;
    for store in [&stores.1, &stores.2, &stores.3] {
        assert_eq!(store.describe().await.unwrap().incarnation, first);
        must(store, create(&uuid::Uuid::now_v7().to_string())).await;
    }
    assert_eq!(server.sql(FORMATS), format!("{FORMAT}|1"));
    assert_eq!(server.sql("SELECT count(*) FROM windlass.task"), "3");
}

#[tokio::test]
async fn only_an_incompatible_format_is_rejected() {
    let server = Server::start();
    drop(PostgresStore::open(&server.url()).await.unwrap());
    let later = FORMAT + 1;
    for (format, lowest, ok) in [(later, 1, true), (9, FORMAT, true), (9, later, false)] {
        let meta = format!("format = {format}, lowest_compatible = {lowest}");
        server.sql(&format!("UPDATE windlass.meta SET {meta}"));
        let opened = PostgresStore::open(&server.url()).await.map(drop);
        let rejected = StoreError::Incompatible { found: format, supported: FORMAT }.to_string();
        let expected = if ok { Ok(()) } else { Err(rejected) };
        assert_eq!(opened.map_err(|error| error.to_string()), expected, "{meta}");
        let stored = server.sql(FORMATS);
        assert_eq!(stored, format!("{format}|{lowest}"), "a newer format is never lowered");
    }
}

/// The formats of unreleased versions have the same numbers as released ones, but other tables.
#[tokio::test]
async fn tables_of_an_unreleased_format_are_rejected_unchanged() {
    let server = Server::start();
    let tables = "SELECT count(*), (SELECT count(*) FROM windlass.meta) FROM pg_class \
        WHERE relnamespace = 'windlass'::regnamespace";
    for format in format::UNRELEASED {
        server.sql("DROP SCHEMA IF EXISTS windlass CASCADE; CREATE SCHEMA windlass");
        server.sql(&format::unreleased(format, "windlass."));
        let before = server.sql(tables);
        let error = PostgresStore::open(&server.url()).await.unwrap_err();
        let is_expected = matches!(error, StoreError::Unreleased { found } if found == format);
        assert!(is_expected, "{error:?}");
        assert_eq!(error.code(), "store_incompatible");
        assert_eq!(server.sql(tables), before, "nothing is created");
    }
}
