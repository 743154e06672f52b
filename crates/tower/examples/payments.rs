//! A payment service that takes each payment once.
//!
//! ```sh
//! cargo run -p windlass-tower --example payments
//! curl -si localhost:8117/pay -H 'x-user: ada' -H 'idempotency-key: order-2024-000017' \
//!     -H 'content-type: application/json' -d '{"cents":999}'
//! ```
//!
//! Send it again, also after a restart: the receipt is the same, and nothing is charged again. The
//! stored responses are in `payments.db`, in the current directory.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::request::Parts;
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde_json::{Value, json};
use windlass_engine::{
    Config, EffectError, Engine, ExternalCall, ExternalService, Lookup, RequestContext,
};
use windlass_store_sqlite::SqliteStore;
use windlass_tower::{IdempotencyLayer, Principal};

/// A stub of a bank.
#[derive(Clone, Default)]
struct Bank(Arc<AtomicU32>);

impl ExternalService for Bank {
    type Request = Value;
    type Response = Value;
    type Error = String;

    async fn invoke(&self, call: &ExternalCall, payment: &Value) -> Result<Value, String> {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(json!({ "receipt": number, "cents": payment["cents"], "id": call.request_id }))
    }

    async fn lookup(&self, _: &ExternalCall) -> Lookup<Value> {
        Lookup::Ambiguous("this bank has no lookup".to_owned())
    }
}

/// A real service has authenticated the caller before.
fn who(parts: &Parts) -> Option<Principal> {
    let user = parts.headers.get("x-user")?.to_str().ok()?;
    Some(Principal::new(user))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::open("payments.db")?;
    let engine = Engine::with_store(store, Config::default()).await?;
    let bank = Bank::default();
    let pay = async move |Extension(context): Extension<RequestContext>,
                          Json(payment): Json<Value>| {
        let paid = context.effect("bank").run(&bank, &payment).await;
        paid.map(Json)
            .map_err(|error: EffectError| (axum::http::StatusCode::BAD_GATEWAY, error.to_string()))
    };
    let service =
        Router::new().route("/pay", post(pay)).layer(IdempotencyLayer::new(engine.clone(), who));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8117").await?;
    println!("taking payments at http://{}/pay", listener.local_addr()?);
    axum::serve(listener, service).await?;
    Ok(engine.shutdown().await?)
}
