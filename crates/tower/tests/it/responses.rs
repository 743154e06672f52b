//! Responses of the inner service, and what the layer stores of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use futures_util::stream;
use serde_json::Value;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;
use windlass_engine::{Config, Engine};
use windlass_store::MemoryStore;
use windlass_store_test::{Call, Failure, FaultStore};
use windlass_tower::{IdempotencyLayer, Principal};

const KEY: &str = "abcdefgh-key-of-a-payment";

/// A service that behaves as its path says and counts its calls.
struct TestService {
    service: Router,
    store: FaultStore,
    calls: Arc<AtomicU32>,
    /// Releases `/slow` requests.
    resume: Arc<Semaphore>,
}

fn body_of(length: usize) -> Body {
    Body::from("x".repeat(length))
}

fn broken() -> Body {
    let parts = [Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("connection reset"))];
    Body::from_stream(stream::iter(parts))
}

fn response_to(path: &str) -> Response<Body> {
    let response = Response::builder().header("set-cookie", "a=1").header("connection", "x-hop");
    let response = response.header("x-hop", "1").header("upgrade", "h2c");
    match path {
        "/long" => response.body(body_of(2_000)),
        "/widest" => response.body(body_of(4 * 1_024 * 1_024)),
        "/long-failure" => response.status(500).body(body_of(2_000)),
        "/broken" => response.body(broken()),
        "/see-other" => response.status(303).header("location", "/receipts/1").body(Body::empty()),
        "/elsewhere" => response.status(307).header("location", "/pay").body(Body::empty()),
        "/rejected" => response.status(402).body(Body::from("no")),
        _ => response.body(Body::from("ok")),
    }
    .unwrap()
}

async fn start_service(longest: usize) -> TestService {
    let store = FaultStore::new(Arc::new(MemoryStore::new()));
    let config = Config { background: false, ..Config::default() };
    let engine = Engine::with_shared_store(Arc::new(store.clone()), config).await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let (count, resume) = (calls.clone(), Arc::new(Semaphore::new(0)));
    let permits = resume.clone();
    let handler = async move |request: Request<Body>| {
        let nth = count.fetch_add(1, Ordering::SeqCst);
        match request.uri().path() {
            "/slow" => permits.acquire().await.unwrap().forget(),
            "/panics" if nth == 0 => panic!("this handler panics"),
            _ => {}
        }
        Ok::<_, Infallible>(response_to(request.uri().path()))
    };
    let user = |parts: &axum::http::request::Parts| {
        parts.headers.get("x-user").map(|user| Principal::new(user.to_str().unwrap()))
    };
    let layer = IdempotencyLayer::new(engine, user).max_body_bytes(longest);
    let service = Router::new().route("/{*path}", post(handler)).layer(layer);
    TestService { service, store, calls, resume }
}

impl TestService {
    async fn send(&self, path: &str, user: &str) -> (Response<()>, Bytes) {
        let request = Request::post(path).header("x-user", user).header("idempotency-key", KEY);
        let response =
            self.service.clone().oneshot(request.body(body_of(1)).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        (Response::from_parts(parts, ()), body)
    }

    async fn problem(&self, path: &str, user: &str) -> (u16, String, String) {
        let (response, body) = self.send(path, user).await;
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let json: Value = serde_json::from_slice(&body).unwrap();
        for member in ["type", "title", "detail"] {
            assert!(json[member].is_string(), "{json}");
        }
        assert_eq!(json["status"], response.status().as_u16());
        assert!(!json.to_string().contains("injected"), "store errors are not exposed: {json}");
        let again = response.headers().get("retry-after").map(|after| after.to_str().unwrap());
        assert_eq!(again, json["retry_after"].as_u64().map(|n| n.to_string()).as_deref());
        let text = |name: &str| json[name].as_str().unwrap().to_owned();
        (response.status().as_u16(), text("code"), text("recovery"))
    }

    fn take_calls(&self) -> u32 {
        self.calls.swap(0, Ordering::SeqCst)
    }
}

fn problem(status: u16, code: &str, recovery: &str) -> (u16, String, String) {
    (status, code.to_owned(), recovery.to_owned())
}

/// The request took effect, so it is not repeated, although its response cannot be replayed.
#[tokio::test]
async fn a_success_too_long_to_store_is_not_repeated() {
    for (longest, path) in [(1_000, "/long"), (8 * 1_024 * 1_024, "/widest")] {
        let service_under_test = start_service(longest).await;
        for _ in 0..3 {
            let found = service_under_test.problem(path, "ada").await;
            assert_eq!(found, problem(500, "response_too_long", "terminal"), "{path}");
        }
        assert_eq!(service_under_test.take_calls(), 1, "{path}");
    }
}

#[tokio::test]
async fn a_failed_request_runs_again_however_it_failed() {
    let service_under_test = start_service(1_000).await;
    for (path, expected) in [
        ("/long-failure", problem(500, "response_too_long", "terminal")),
        ("/broken", problem(500, "response_truncated", "transient")),
    ] {
        for _ in 0..2 {
            assert_eq!(service_under_test.problem(path, "ada").await, expected, "{path}");
        }
        assert_eq!(service_under_test.take_calls(), 2, "{path}");
    }
}

/// Many services report success by redirecting to another page.
#[tokio::test]
async fn see_other_is_a_success_and_other_redirects_are_none() {
    let service_under_test = start_service(1_000).await;
    for (path, status, times) in [("/elsewhere", 307, 2), ("/see-other", 303, 1)] {
        for _ in 0..2 {
            let (response, _) = service_under_test.send(path, "ada").await;
            assert_eq!(response.status(), StatusCode::from_u16(status).unwrap());
            assert!(response.headers().contains_key("location"));
        }
        assert_eq!(service_under_test.take_calls(), times, "{path}");
    }
}

/// All headers are replayed except hop-by-hop headers and those named by `Connection`.
#[tokio::test]
async fn hop_by_hop_headers_are_not_replayed() {
    let service_under_test = start_service(1_000).await;
    service_under_test.send("/pay", "ada").await;
    let (again, body) = service_under_test.send("/pay", "ada").await;
    assert_eq!((&body[..], service_under_test.take_calls()), (&b"ok"[..], 1));
    let mut names: Vec<&str> = again.headers().keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "idempotency-replayed", "set-cookie"]);
}

#[tokio::test]
async fn every_rejection_has_its_own_code() {
    let service_under_test = start_service(1_000).await;
    let nameless = service_under_test.problem("/pay", "").await;
    assert_eq!(nameless, problem(400, "invalid", "correctable"), "the principal is invalid");
    for failure in [Failure::Unavailable, Failure::Rejected] {
        service_under_test.store.fail(Call::Commit, 1, failure);
        let (status, code, recovery) = service_under_test.problem("/pay", "ada").await;
        assert_eq!((status, recovery.as_str()), (503, "transient"));
        assert!(code.starts_with("store_"), "{code}");
    }
    assert_eq!(service_under_test.take_calls(), 0);
}

/// A failure is returned although the store is unavailable when its key is to be released.
#[tokio::test]
async fn a_failure_is_returned_even_if_the_release_fails() {
    let service_under_test = start_service(1_000).await;
    // The second commit releases the key.
    service_under_test.store.fail(Call::Commit, 2, Failure::Unavailable);
    let (response, body) = service_under_test.send("/rejected", "ada").await;
    assert_eq!((response.status().as_u16(), &body[..]), (402, &b"no"[..]));
    assert!(service_under_test.store.is_spent());
}

/// A client that disconnects does not stop its request, and gets the response when it retries.
#[tokio::test]
async fn a_client_that_disconnects_does_not_stop_its_request() {
    let service_under_test = start_service(1_000).await;
    tokio::select! {
        biased;
        (response, _) = service_under_test.send("/slow", "ada") => panic!("{response:?}"),
        () = async {
            while service_under_test.calls.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    service_under_test.resume.add_permits(1);
    let (response, body) = service_under_test.send("/slow", "ada").await;
    assert_eq!(
        (response.headers()["idempotency-replayed"].as_bytes(), &body[..]),
        (&b"true"[..], &b"ok"[..])
    );
    assert_eq!(service_under_test.take_calls(), 1);
}

#[tokio::test]
async fn a_panic_releases_the_key() {
    let service_under_test = Arc::new(start_service(1_000).await);
    let sent = tokio::spawn({
        let service_under_test = service_under_test.clone();
        async move { service_under_test.send("/panics", "ada").await }
    });
    assert!(sent.await.unwrap_err().is_panic(), "the panic is passed on to the caller");
    let (response, body) = service_under_test.send("/panics", "ada").await;
    assert_eq!(
        (response.status().as_u16(), &body[..], service_under_test.take_calls()),
        (200, &b"ok"[..], 2)
    );
}

/// An invalid key is rejected, and the service is not called.
#[tokio::test]
async fn invalid_keys_are_rejected() {
    let service_under_test = start_service(1_000).await;
    for strange in [
        &b"caf\xe9-of-sixteen-or-more"[..],
        b"",
        b"\"\"",
        b"\"",
        b"\"an-open-quote-of-a-key",
        b"a-key-of-a-payment, another-key-of-it",
        b"a-key\twith-a-tab-within",
    ] {
        let request = Request::post("/pay").header("x-user", "ada");
        let request = request.header("idempotency-key", strange).body(Body::empty()).unwrap();
        let response = service_under_test.service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{strange:?}");
    }
    assert_eq!(service_under_test.take_calls(), 0);
}
