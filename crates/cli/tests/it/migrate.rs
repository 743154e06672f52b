//! `migrate`, on both kinds of stores.

use serde_json::json;
use windlass_store_test::postgres::Server;

use crate::place::Place;

/// `format` raises the numbers of a store to these, as a later version would.
fn a_store_is_migrated(place: &Place, later: impl Fn(i64, i64)) {
    let store = place.one_of("migrate --check", 3)["store"].clone();
    let row = |from, done| json!({ "store": store, "from": from, "to": 1, "done": done });
    assert_eq!(place.one_of("migrate --check", 3), row(json!(null), false));
    let said = place.run("migrate --check");
    assert!(said.err.contains("has no tables") && said.err.contains("[not_migrated]"), "{said:?}");
    assert_eq!(place.one("migrate"), row(json!(null), true));
    assert_eq!(place.one("migrate"), row(json!(1), false));
    assert_eq!(place.one("migrate --check"), row(json!(1), false));
    assert!(place.ok("migrate").contains("has format 1: there is nothing to do"));
    place.ok("task create k --id t");
    later(2, 1);
    assert_eq!(place.one("migrate")["to"], 2);
    assert_eq!(place.json("task list").len(), 1);
    later(2, 2);
    for line in ["migrate", "migrate --check", "task list"] {
        let said = place.run(line);
        assert_eq!(said.code, 1, "{line}: {said:?}");
        assert!(said.err.contains("[store_incompatible]"), "{line}: {said:?}");
    }
}

#[test]
fn a_file() {
    let place = Place::empty();
    a_store_is_migrated(&place, |format, lowest| {
        let conn = rusqlite::Connection::open(place.file("app.db")).unwrap();
        conn.execute("UPDATE meta SET format = ?, lowest = ?", [format, lowest]).unwrap();
    });
}

#[test]
fn a_database() {
    let server = Server::start();
    a_store_is_migrated(&Place::at(server.url()), |format, lowest| {
        server.sql(&format!("UPDATE windlass.meta SET format = {format}, lowest = {lowest}"));
    });
}

#[test]
fn what_is_not_ours_stays_as_it_is() {
    let place = Place::empty();
    std::fs::write(place.file("app.db"), "a letter to a friend").unwrap();
    for line in ["migrate", "migrate --check"] {
        let said = place.run(line);
        assert!(said.code == 1 && said.err.contains("[store_corrupt]"), "{line}: {said:?}");
    }
    assert_eq!(std::fs::read(place.file("app.db")).unwrap(), b"a letter to a friend");
}
