//! TLS with libpq's modes.

use windlass_store::{Store, StoreError};
use windlass_store_postgres::{PostgresStore, connect};
use windlass_store_test::execute;
use windlass_store_test::postgres::{Certificate, Server};

const IS_ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

async fn is_encrypted(url: &str) -> Result<bool, StoreError> {
    let (client, _) = connect(url).await?;
    Ok(client.query_one(IS_ENCRYPTED, &[]).await.unwrap().get(0))
}

/// The error of a connection that cannot be made.
async fn complaint(url: &str) -> (&'static str, String) {
    let error = PostgresStore::open(url).await.expect_err(url);
    let same = connect(url).await.map(|_| ()).expect_err(url);
    assert_eq!(error.code(), same.code(), "{error} and {same}");
    (error.code(), error.to_string())
}

#[tokio::test]
async fn connections_are_encrypted_by_default_where_possible() {
    let server = Server::start_on_tcp(&[]);
    let url = server.tcp_url();
    assert!(!is_encrypted(&url).await.unwrap());
    let (code, said) = complaint(&format!("{url}?sslmode=require")).await;
    assert!(code == "store_unavailable" && said.contains("does not support TLS"), "{said}");
    server.encrypt(Certificate::Usual);
    for (options, expected) in [
        ("", true),
        ("?sslmode=prefer", true),
        ("?sslmode=require", true),
        ("?sslmode=disable", false),
    ] {
        assert_eq!(is_encrypted(&format!("{url}{options}")).await.unwrap(), expected, "{options}");
    }
    let socket = server.url();
    for mode in ["prefer", "require", "verify-full"] {
        assert!(!is_encrypted(&format!("{socket}&sslmode={mode}")).await.unwrap(), "{mode}");
    }
}

/// The pool and the listening connection.
#[tokio::test]
async fn a_store_is_encrypted_throughout() {
    let server = Server::start_on_tcp(&[]);
    let root = server.encrypt(Certificate::Usual);
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", server.tcp_url(), root.display());
    let store = PostgresStore::open(&url).await.unwrap();
    let create = windlass_core::command::NewTask::new("t", "k");
    let create = windlass_core::command::Create::one(create).into();
    execute(&store, &create).await.unwrap().unwrap();
    let count = |encrypted| {
        server.sql(&format!(
            "SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) \
             WHERE client_port > 0 AND ssl = {encrypted}"
        ))
    };
    assert_eq!((count("true").as_str(), count("false").as_str()), ("2", "0"));
    store.close().await.unwrap();
}

#[tokio::test]
async fn verify_full_verifies_the_server() {
    let server = Server::start_on_tcp(&[]);
    let root = server.encrypt(Certificate::Usual);
    let other = server.certificate("other", Certificate::Usual);
    let empty = server.socket().join("empty.crt");
    std::fs::write(&empty, "").unwrap();
    let url = format!("{}?sslmode=verify-full", server.tcp_url());
    let with = |root: &std::path::Path| format!("{url}&sslrootcert={}", root.display());
    assert!(is_encrypted(&with(&root)).await.unwrap());
    let elsewhere = with(&root).replace("localhost", "127.0.0.1");
    for (url, code, part) in [
        (url.clone(), "store_unavailable", "invalid peer certificate: UnknownIssuer"),
        (with(&other), "store_unavailable", "invalid peer certificate: UnknownIssuer"),
        (elsewhere, "store_unavailable", "not valid for name"),
        (with("/no/such.crt".as_ref()), "store_rejected", "/no/such.crt"),
        (with(&empty), "store_rejected", "no certificate to trust"),
    ] {
        let (found, said) = complaint(&url).await;
        assert!(found == code && said.contains(part), "{url}: {found}: {said}");
    }
}

/// Such certificates cannot be verified by name, but encryption works.
#[tokio::test]
async fn an_old_certificate_suffices_for_encryption() {
    let server = Server::start_on_tcp(&[]);
    let root = server.encrypt(Certificate::Old);
    let url = server.tcp_url();
    assert!(is_encrypted(&url).await.unwrap());
    let url = format!("{url}?sslmode=verify-full&sslrootcert={}", root.display());
    assert_eq!(complaint(&url).await.0, "store_unavailable");
}
