//! `migrate` on both kinds of stores.

use serde_json::json;
use windlass_store_test::format;
use windlass_store_test::postgres::Server;

use crate::place::Place;

/// `sql` runs a statement on the store, as an operator would.
fn a_store_is_migrated(place: &Place, ours: i64, meta: &str, sql: impl Fn(&str)) {
    let store = place.one_of("migrate --check", 3)["store"].clone();
    let row = |from, to, done| json!({ "store": store, "from": from, "to": to, "done": done });
    assert_eq!(place.one_of("migrate --check", 3), row(json!(null), ours, false));
    let said = place.run("migrate --check");
    assert!(said.err.contains("has no tables") && said.err.contains("[not_migrated]"), "{said:?}");
    assert_eq!(place.one("migrate"), row(json!(null), ours, true));
    assert_eq!(place.one("migrate"), row(json!(ours), ours, false));
    assert_eq!(place.one("migrate --check"), row(json!(ours), ours, false));
    place.ok("task create k --id t");

    let earlier = ours - 1;
    sql(&format!("UPDATE {meta} SET format = {earlier}"));
    assert_eq!(place.one_of("migrate --check", 3), row(json!(earlier), ours, false));
    let said = place.run("migrate --check");
    assert!(said.err.contains(&format!("has format {earlier}")), "{said:?}");
    sql(&format!("UPDATE {meta} SET format = {ours}"));
    let done = format!("has format {ours}: nothing to do");
    assert!(place.ok("migrate").contains(&done));
    assert_eq!(place.json("task list").len(), 1);

    let later = ours + 1;
    sql(&format!("UPDATE {meta} SET format = {later}"));
    assert_eq!(place.one("migrate"), row(json!(later), later, false));
    sql(&format!("UPDATE {meta} SET lowest_compatible = {later}"));
    for line in ["migrate", "migrate --check", "task list"] {
        let said = place.run(line);
        assert_eq!(said.code, 1, "{line}: {said:?}");
        assert!(said.err.contains("[store_incompatible]"), "{line}: {said:?}");
    }
}

/// `sql` runs statements on an empty store.
fn an_unreleased_format_is_refused(place: &Place, schema: &str, sql: impl Fn(&str)) {
    sql(&format::unreleased(*format::UNRELEASED.end(), schema));
    for line in ["migrate", "migrate --check", "task list", "task create k"] {
        let said = place.run(line);
        assert_eq!(said.code, 1, "{line}: {said:?}");
        let expected = ["[store_incompatible]", "format 6 of an unreleased version"];
        assert!(expected.iter().all(|part| said.err.contains(part)), "{line}: {said:?}");
    }
    let said = place.run("doctor");
    assert!(said.code == 1 && said.out.contains("of an unreleased version"), "{said:?}");
}

#[test]
fn a_file_of_an_unreleased_format() {
    let place = Place::empty();
    an_unreleased_format_is_refused(&place, "", |text| {
        rusqlite::Connection::open(place.file("app.db")).unwrap().execute_batch(text).unwrap();
    });
}

#[test]
fn a_database_of_an_unreleased_format() {
    let server = Server::start();
    let place = Place::at(server.url());
    server.sql("CREATE SCHEMA windlass");
    an_unreleased_format_is_refused(&place, "windlass.", |text| {
        server.sql(text);
    });
}

#[test]
fn a_file() {
    let place = Place::empty();
    a_store_is_migrated(&place, windlass_store_sqlite::FORMAT, "meta", |text| {
        rusqlite::Connection::open(place.file("app.db")).unwrap().execute_batch(text).unwrap();
    });
}

#[test]
fn a_database() {
    let server = Server::start();
    let place = Place::at(server.url());
    a_store_is_migrated(&place, windlass_store_postgres::FORMAT, "windlass.meta", |text| {
        server.sql(text);
    });
}

#[test]
fn a_foreign_file_is_left_unchanged() {
    let place = Place::empty();
    std::fs::write(place.file("app.db"), "not a database").unwrap();
    for line in ["migrate", "migrate --check"] {
        let said = place.run(line);
        assert!(said.code == 1 && said.err.contains("[store_corrupt]"), "{line}: {said:?}");
    }
    assert_eq!(std::fs::read(place.file("app.db")).unwrap(), b"not a database");
}
