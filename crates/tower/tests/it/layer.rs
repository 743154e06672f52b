use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::{get, post};
use serde_json::Value;
use tower::ServiceExt as _;
use windlass_core::Timestamp;
use windlass_engine::{Config, Engine, RequestContext};
use windlass_store::{MemoryStore, Store};
use windlass_store_sqlite::SqliteStore;
use windlass_tower::{IdempotencyLayer, Principal};

const KEY: &str = "key-of-a-payment";

type Count = Arc<AtomicU32>;

async fn engine(store: impl Store) -> Engine {
    Engine::with_store(store, Config { background: false, ..Config::default() }).await.unwrap()
}

/// Takes the caller from a header; a real service checks a credential.
fn who(parts: &axum::http::request::Parts) -> Option<Principal> {
    parts.headers.get("x-user").map(|user| Principal::new(user.to_str().unwrap()))
}

fn service(engine: &Engine, paid: &Count) -> Router {
    let pay = move |paid: Count| {
        async move |context: axum::Extension<RequestContext>, body: String| {
            assert!(context.until() > Timestamp::default());
            match body.as_str() {
                "reject" => {
                    (StatusCode::PAYMENT_REQUIRED, [("x-kind", "rejection")], "no".to_owned())
                }
                _ => {
                    let nth = paid.fetch_add(1, Ordering::SeqCst);
                    (
                        StatusCode::CREATED,
                        [("x-kind", "receipt")],
                        format!("receipt {nth} \u{1f4b6}"),
                    )
                }
            }
        }
    };
    Router::new()
        .route("/pay", post(pay(paid.clone())))
        .route("/refund", post(pay(paid.clone())))
        .layer(IdempotencyLayer::new(engine.clone(), who))
        .route("/balance", get(|| async { "7" }))
}

fn request(path: &str, key: Option<&str>, body: &str) -> Request<Body> {
    let mut request = Request::post(path).header("x-user", "ada");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

async fn bytes(response: Response<Body>) -> Vec<u8> {
    axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()
}

async fn send(service: &Router, request: Request<Body>) -> (u16, bool, Vec<u8>) {
    let response = service.clone().oneshot(request).await.unwrap();
    let replayed = response.headers().contains_key("idempotency-replayed");
    (response.status().as_u16(), replayed, bytes(response).await)
}

async fn problem(service: &Router, request: Request<Body>) -> (u16, String, String) {
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let json: Value = serde_json::from_slice(&bytes(response).await).unwrap();
    assert_eq!(json["status"], status);
    let text = |name: &str| json[name].as_str().unwrap().to_owned();
    (status, text("code"), text("recovery"))
}

#[tokio::test]
async fn the_original_bytes_are_replayed() {
    let (engine, paid) = (engine(MemoryStore::new()).await, Count::default());
    let service = service(&engine, &paid);
    let first = send(&service, request("/pay", Some(KEY), "7")).await;
    assert_eq!((first.0, first.1), (201, false));
    for key in [KEY.to_owned(), format!("\"{KEY}\"")] {
        let again = send(&service, request("/pay", Some(&key), "7")).await;
        assert_eq!(again, (201, true, first.2.clone()));
    }
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_restart_between_call_and_replay_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answers.db");
    let paid = Count::default();
    let mut responses = Vec::new();
    for _ in 0..3 {
        let store = SqliteStore::open(&file).unwrap();
        let engine = engine(store).await;
        responses.push(send(&service(&engine, &paid), request("/pay", Some(KEY), "7")).await);
        engine.shutdown().await.unwrap();
    }
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let replayed: Vec<bool> = responses.iter().map(|response| response.1).collect();
    assert_eq!(replayed, [false, true, true]);
    assert!(responses.iter().all(|response| response.2 == responses[0].2));
}

#[tokio::test]
async fn rejections_have_a_status_and_a_code() {
    let (engine, paid) = (engine(MemoryStore::new()).await, Count::default());
    let service = service(&engine, &paid);
    let invalid = "idempotency_key_invalid";
    send(&service, request("/pay", Some(KEY), "7")).await;
    let mut anonymous = request("/pay", Some(KEY), "7");
    anonymous.headers_mut().remove("x-user");
    let mut twice = request("/pay", Some(KEY), "7");
    twice.headers_mut().append("idempotency-key", KEY.parse().unwrap());
    let long = "x".repeat(2 * 1_024 * 1_024);
    for (request, status, code) in [
        (request("/pay", None, "7"), 400, "idempotency_key_missing"),
        (request("/pay", Some("short"), "7"), 400, invalid),
        (request("/pay", Some("over sixteen, with spaces"), "7"), 400, invalid),
        (twice, 400, invalid),
        (request("/pay", Some(KEY), "8"), 422, "idempotency_conflict"),
        (request("/refund", Some(KEY), "7"), 422, "idempotency_conflict"),
        (request("/pay", Some("another-key-of-a-payment"), &long), 413, "body_too_long"),
        (anonymous, 401, "principal_unknown"),
    ] {
        let found = problem(&service, request).await;
        assert_eq!((found.0, found.1.as_str(), found.2.as_str()), (status, code, "correctable"));
    }
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn only_successes_are_stored() {
    let (engine, paid) = (engine(MemoryStore::new()).await, Count::default());
    let service = service(&engine, &paid);
    for _ in 0..2 {
        let rejected = send(&service, request("/pay", Some(KEY), "reject")).await;
        assert_eq!(rejected, (402, false, b"no".to_vec()));
    }
    assert_eq!(send(&service, request("/pay", Some(KEY), "7")).await.0, 201);
}

#[tokio::test]
async fn safe_methods_pass_through() {
    let (engine, paid) = (engine(MemoryStore::new()).await, Count::default());
    let service = service(&engine, &paid);
    let read = Request::get("/balance").body(Body::empty()).unwrap();
    assert_eq!(send(&service, read).await, (200, false, b"7".to_vec()));
}

/// Identical concurrent requests: one effect, one response.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_duplicates_pay_once() {
    let (engine, paid) = (engine(MemoryStore::new()).await, Count::default());
    let service = service(&engine, &paid);
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { send(&service, request("/pay", Some(KEY), "7")).await })
        })
        .collect();
    let mut first = 0;
    for call in calls {
        let (status, replayed, body) = call.await.unwrap();
        assert_eq!((status, body), (201, "receipt 0 \u{1f4b6}".as_bytes().to_vec()));
        first += u32::from(!replayed);
    }
    assert_eq!((paid.load(Ordering::SeqCst), first), (1, 1));
}
