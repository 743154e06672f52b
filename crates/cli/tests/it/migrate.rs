//! `migrate` on both kinds of stores.

use serde_json::json;
use windlass_store_test::format;
use windlass_store_test::postgres::Server;

use crate::test_store::TestStore;

/// `sql` runs a statement on the store, as an operator would.
fn a_store_is_migrated(store: &TestStore, ours: i64, meta: &str, sql: impl Fn(&str)) {
    let url = store.one_of("migrate --check", 3)["store"].clone();
    let row = |from, to, done| json!({ "store": url, "from": from, "to": to, "done": done });
    assert_eq!(store.one_of("migrate --check", 3), row(json!(null), ours, false));
    let output = store.run("migrate --check");
    assert!(
        output.err.contains("has no tables") && output.err.contains("[not_migrated]"),
        "{output:?}"
    );
    assert_eq!(store.one("migrate"), row(json!(null), ours, true));
    assert_eq!(store.one("migrate"), row(json!(ours), ours, false));
    assert_eq!(store.one("migrate --check"), row(json!(ours), ours, false));
    store.ok("task create k --id t");

    let earlier = ours - 1;
    sql(&format!("UPDATE {meta} SET format = {earlier}"));
    assert_eq!(store.one_of("migrate --check", 3), row(json!(earlier), ours, false));
    let output = store.run("migrate --check");
    assert!(output.err.contains(&format!("has format {earlier}")), "{output:?}");
    sql(&format!("UPDATE {meta} SET format = {ours}"));
    let done = format!("has format {ours}: nothing to do");
    assert!(store.ok("migrate").contains(&done));
    assert_eq!(store.json("task list").len(), 1);

    let later = ours + 1;
    sql(&format!("UPDATE {meta} SET format = {later}"));
    assert_eq!(store.one("migrate"), row(json!(later), later, false));
    sql(&format!("UPDATE {meta} SET lowest_compatible = {later}"));
    for line in ["migrate", "migrate --check", "task list"] {
        let output = store.run(line);
        assert_eq!(output.code, 1, "{line}: {output:?}");
        assert!(output.err.contains("[store_incompatible]"), "{line}: {output:?}");
    }
}

/// `sql` runs statements on an empty store.
fn an_unreleased_format_is_rejected(store: &TestStore, schema: &str, sql: impl Fn(&str)) {
    sql(&format::unreleased(*format::UNRELEASED.end(), schema));
    for line in ["migrate", "migrate --check", "task list", "task create k"] {
        let output = store.run(line);
        assert_eq!(output.code, 1, "{line}: {output:?}");
        let expected = ["[store_incompatible]", "format 6 of an unreleased version"];
        assert!(expected.iter().all(|part| output.err.contains(part)), "{line}: {output:?}");
    }
    let output = store.run("doctor");
    assert!(output.code == 1 && output.out.contains("of an unreleased version"), "{output:?}");
}

#[test]
fn a_file_of_an_unreleased_format() {
    let store = TestStore::empty();
    an_unreleased_format_is_rejected(&store, "", |text| {
        rusqlite::Connection::open(store.file("app.db")).unwrap().execute_batch(text).unwrap();
    });
}

#[test]
fn a_database_of_an_unreleased_format() {
    let server = Server::start();
    let store = TestStore::at(server.url());
    server.sql("CREATE SCHEMA windlass");
    an_unreleased_format_is_rejected(&store, "windlass.", |text| {
        server.sql(text);
    });
}

#[test]
fn a_file() {
    let store = TestStore::empty();
    a_store_is_migrated(&store, windlass_store_sqlite::FORMAT, "meta", |text| {
        rusqlite::Connection::open(store.file("app.db")).unwrap().execute_batch(text).unwrap();
    });
}

#[test]
fn a_database() {
    let server = Server::start();
    let store = TestStore::at(server.url());
    a_store_is_migrated(&store, windlass_store_postgres::FORMAT, "windlass.meta", |text| {
        server.sql(text);
    });
}

#[test]
fn a_foreign_file_is_left_unchanged() {
    let store = TestStore::empty();
    std::fs::write(store.file("app.db"), "not a database").unwrap();
    for line in ["migrate", "migrate --check"] {
        let output = store.run(line);
        assert!(output.code == 1 && output.err.contains("[store_corrupt]"), "{line}: {output:?}");
    }
    assert_eq!(std::fs::read(store.file("app.db")).unwrap(), b"not a database");
}
