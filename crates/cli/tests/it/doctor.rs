//! The findings of `doctor`.

use serde_json::Value;
use windlass_store_test::bouncer::Bouncer;
use windlass_store_test::postgres::{Certificate, Server};

use crate::test_store::TestStore;

/// All findings, and the exit code.
struct Report {
    findings: Vec<Value>,
    code: i32,
}

impl Report {
    fn of(store: &TestStore, options: &str) -> Self {
        let output = store.run(&format!("doctor --json {options}"));
        let findings = output.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { findings, code: output.code }
    }

    /// The one finding of a check that contains this text: its level and its advice.
    fn found(&self, check: &str, part: &str) -> (&str, &str) {
        let of = |finding: &&Value| {
            finding["check"] == check && finding["found"].as_str().unwrap().contains(part)
        };
        let found: Vec<_> = self.findings.iter().filter(of).collect();
        assert_eq!(found.len(), 1, "{check}: {part}: {:#?}", self.findings);
        (found[0]["level"].as_str().unwrap(), found[0]["advice"].as_str().unwrap_or_default())
    }

    fn checks(&self) -> Vec<&str> {
        self.findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect()
    }
}

#[test]
fn an_empty_a_migrated_and_an_unreachable_database() {
    let server = Server::start();
    let store = TestStore::at(server.url());
    let empty = Report::of(&store, "");
    assert_eq!(empty.found("tables", "none"), ("problem", "create them: windlass migrate"));
    assert_eq!(empty.code, 1);
    assert_eq!(server.sql("SELECT to_regnamespace('windlass') IS NULL"), "t", "nothing is changed");

    store.ok("migrate");
    let migrated = Report::of(&store, "");
    assert!(
        migrated.findings.iter().all(|finding| finding["level"] == "ok"),
        "{:#?}",
        migrated.findings
    );
    assert_eq!(migrated.code, 0);
    for check in [
        "connection",
        "version",
        "role of the server",
        "encoding",
        "connections",
        "clock",
        "TLS",
        "fsync",
        "full_page_writes",
        "synchronous_commit",
        "rights to look",
        "long transactions",
        "prepared transactions",
        "replication slots",
        "autovacuum",
        "tables",
        "format",
        "rights",
        "vacuum",
        "indexes",
        "records",
        "pooler",
    ] {
        assert!(migrated.checks().contains(&check), "{check}: {:?}", migrated.checks());
    }
    assert!(store.ok("doctor").ends_with("0 problems, 0 warnings.\n"));

    server.control("stop -m fast");
    let stopped = Report::of(&store, "");
    assert_eq!((stopped.checks(), stopped.code), (vec!["connection"], 1));
    assert_eq!(stopped.found("connection", "does not answer").0, "problem");
}

#[test]
fn settings_that_cost_data_or_speed() {
    let settings = ["fsync=off", "full_page_writes=off", "autovacuum=off", "max_connections=10"];
    let server = Server::start_with(&settings);
    server.sql("CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0");
    let report = Report::of(&TestStore::at(server.url()), "");
    assert_eq!(report.found("fsync", "off").0, "problem");
    assert_eq!(report.found("full_page_writes", "off").0, "warning");
    assert_eq!(report.found("autovacuum", "autovacuum off").0, "problem");
    let (level, advice) = report.found("connections", "of 7 are used");
    assert!(level == "warning" && advice.contains("connections= in the URL"), "{advice}");
    let old = Report::of(&TestStore::at(server.url().replace("/postgres?", "/old?")), "");
    assert_eq!(old.found("encoding", "LATIN1").0, "problem");
}

#[test]
fn changed_tables_and_indexes_are_found() {
    let server = Server::start();
    let store = TestStore::at(server.url());
    store.ok("migrate");
    server.sql(
        "DROP INDEX windlass.task_due_at; DROP INDEX windlass.task_state; \
         CREATE INDEX task_state ON windlass.task (state); \
         CREATE INDEX mine ON windlass.task (kind); \
         UPDATE pg_index SET indisvalid = false \
         WHERE indexrelid = 'windlass.ready_route_due_at'::regclass; \
         ALTER TABLE windlass.lane SET (autovacuum_enabled = false)",
    );
    let report = Report::of(&store, "");
    let (level, advice) = report.found("indexes", "task_due_at is missing");
    assert_eq!(level, "problem");
    let make = advice.strip_prefix("create it again: ").unwrap();
    server.sql(make);
    assert_eq!(report.found("indexes", "task_state has columns state").0, "problem");
    assert_eq!(report.found("indexes", "ready_route_due_at is not valid").0, "problem");
    assert_eq!(report.found("indexes", "mine on task is not from Windlass").0, "warning");
    assert_eq!(report.found("vacuum", "autovacuum_enabled=false").0, "problem");
    let report = Report::of(&store, "");
    assert!(!report.findings.iter().any(|it| it["found"] == "task_due_at is missing"));
    server.sql("DROP TABLE windlass.payload");
    assert_eq!(Report::of(&store, "").found("tables", "lacks payload").0, "problem");
}

#[tokio::test]
async fn what_retains_dead_rows() {
    let server = Server::start_with(&["max_connections=50", "max_prepared_transactions=5"]);
    let store = TestStore::at(server.url());
    store.ok("migrate");
    let (client, _) = windlass_store_postgres::connect(&server.url()).await.unwrap();
    client.batch_execute("BEGIN; SELECT 1").await.unwrap();
    server.sql("BEGIN; CREATE TABLE public.left_over (); PREPARE TRANSACTION 'forgotten'");
    server.sql("SELECT pg_create_physical_replication_slot('unread', true)");
    assert_eq!(Report::of(&store, "").found("long transactions", "none").0, "ok");
    let report = Report::of(&store, "--long 0s");
    let (level, advice) = report.found("long transactions", "idle in transaction");
    assert!(level == "warning" && advice.contains("pg_terminate_backend"), "{advice}");
    assert_eq!(report.found("prepared transactions", "forgotten").0, "warning");
    assert_eq!(report.found("replication slots", "unread has no reader").0, "warning");
    assert_eq!(report.code, 0);
}

#[test]
fn a_role_without_permissions() {
    let server = Server::start();
    TestStore::at(server.url()).ok("migrate");
    server.sql("CREATE ROLE guest LOGIN");
    let store = TestStore::at(server.url().replace("user=windlass", "user=guest"));
    let report = Report::of(&store, "");
    let (level, advice) = report.found("rights to look", "guest sees only its own");
    assert!(level == "warning" && advice.contains("pg_read_all_stats"), "{advice}");
    let (level, _) = report.found("format", "not checked: permission denied for schema windlass");
    assert_eq!(level, "warning");
    assert_eq!(report.found("rights", "may not read and write").0, "problem");
}

#[test]
fn poolers_are_detected() {
    let server = Server::start();
    let bouncer = Bouncer::start(&server, "transaction", 3);
    TestStore::at(bouncer.plain_url()).ok("migrate");
    for (url, level, part) in [
        (bouncer.plain_url(), "ok", "transaction pooling"),
        (bouncer.url(), "ok", "transaction pooling"),
        (format!("{}&prepare=on", bouncer.plain_url()), "problem", "mixes up prepared statements"),
        (format!("{}&prepare=off", server.url()), "warning", "none between client and server"),
    ] {
        let report = Report::of(&TestStore::at(url.clone()), "");
        assert_eq!(report.found("pooler", part).0, level, "{url}");
        assert_eq!(report.code, i32::from(level == "problem"), "{url}");
    }
    drop(bouncer);
    let bouncer = Bouncer::start(&server, "session", 5);
    let report = Report::of(&TestStore::at(bouncer.plain_url()), "");
    let (level, advice) = report.found("pooler", "probably session pooling");
    assert!(level == "ok" && advice.contains("prepare=on"), "{advice}");
}

#[test]
fn how_a_connection_is_encrypted() {
    let server = Server::start_on_tcp(&["max_connections=50"]);
    let store = TestStore::at(server.tcp_url());
    assert_eq!(Report::of(&store, "").found("TLS", "none; the server is this machine").0, "ok");
    let root = server.encrypt(Certificate::Usual);
    assert_eq!(Report::of(&store, "").found("TLS", "TLSv1.3").0, "ok");
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", server.tcp_url(), root.display());
    assert_eq!(Report::of(&TestStore::at(url), "").found("TLS", "the server is verified").0, "ok");
}

#[test]
fn a_file() {
    let store = TestStore::empty();
    let nothing = Report::of(&store, "");
    assert_eq!(nothing.found("file", "no database"), ("problem", "create it: windlass migrate"));
    assert!(!store.file("app.db").exists(), "doctor changes nothing");
    store.ok("migrate");
    let report = Report::of(&store, "");
    assert_eq!(report.code, 0, "{:#?}", report.findings);
    for check in [
        "file",
        "file system",
        "space",
        "write-ahead log",
        "journal",
        "format",
        "tables",
        "integrity",
        "records",
    ] {
        assert!(report.checks().contains(&check), "{check}: {:?}", report.checks());
    }
    let conn = rusqlite::Connection::open(store.file("app.db")).unwrap();
    conn.execute_batch("DROP INDEX task_due_at; UPDATE meta SET format = 0").unwrap();
    conn.pragma_update(None, "journal_mode", "delete").unwrap();
    drop(conn);
    let report = Report::of(&store, "");
    assert_eq!(report.found("tables", "missing: task_due_at").0, "problem");
    assert_eq!(report.found("format", "0, usable").0, "warning");
    assert_eq!(report.found("journal", "delete").0, "warning");
    assert_eq!(report.code, 1);
}

#[test]
fn a_damaged_file() {
    let store = TestStore::empty();
    store.ok("task create k --id t");
    let mut bytes = std::fs::read(store.file("app.db")).unwrap();
    let end = bytes.len();
    bytes[8_192..end].iter_mut().step_by(7).for_each(|byte| *byte ^= 0x55);
    std::fs::write(store.file("app.db"), bytes).unwrap();
    let report = Report::of(&store, "");
    assert_eq!(report.code, 1, "{:#?}", report.findings);
}

/// `sql` runs a statement on the store; `{}` is replaced by the prefix of table names.
fn unreadable_records_are_named(store: &TestStore, sql: impl Fn(&str)) {
    store.ok("task create k --id good");
    for n in 0..30 {
        store.ok(&format!("task create k --id bad{n:02} --idempotency-key key{n:02}"));
    }
    assert_eq!(Report::of(store, "").found("records", "can be read").0, "ok");
    sql("UPDATE {}task SET body = '{\"id\": 7}' WHERE id = 'bad03'");
    sql("UPDATE {}admission SET body = 'torn' WHERE key = 'key05'");
    let of_another = "(SELECT body FROM {}task WHERE id = 'good')";
    sql(&format!("UPDATE {{}}task SET body = {of_another} WHERE id = 'bad04'"));
    let cancel = store.run("task cancel bad04");
    assert!(cancel.err.contains("[quarantined]"), "{cancel:?}");
    assert_eq!(store.one("task show good")["state"], "waiting");
    let report = Report::of(store, "");
    let (level, advice) = report.found("records", "3 records cannot be read");
    assert!(level == "problem" && advice.contains("backup"), "{advice}");
    assert_eq!(report.code, 1);
    report.found("records", "\ntask tenant=default, id=bad03");
    report.found("records", "\nadmission tenant=default, ");
    report.found("records", "key=key05");
    assert!(store.run("doctor").out.contains("id=bad03"));
    sql("UPDATE {}task SET body = '' WHERE id <> 'good'");
    let many = Report::of(store, "");
    many.found("records", "31 records cannot be read");
    many.found("records", "and 11 more");
}

#[test]
fn unreadable_records_of_a_file() {
    let store = TestStore::empty();
    unreadable_records_are_named(&store, |text| {
        let conn = rusqlite::Connection::open(store.file("app.db")).unwrap();
        conn.execute_batch(&text.replace("{}", "")).unwrap();
    });
    // A body that is not even UTF-8.
    let conn = rusqlite::Connection::open(store.file("app.db")).unwrap();
    conn.execute_batch("UPDATE task SET body = CAST(x'ff00' AS TEXT) WHERE id = 'good'").unwrap();
    Report::of(&store, "").found("records", "32 records cannot be read");
}

#[test]
fn unreadable_records_of_a_database() {
    let server = Server::start();
    let store = TestStore::at(server.url());
    store.ok("migrate");
    unreadable_records_are_named(&store, |text| {
        server.sql(&text.replace("{}", "windlass."));
    });
}
