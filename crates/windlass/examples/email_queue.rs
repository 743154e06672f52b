//! A queue of emails in a SQLite file: retries, a duplicate request, a dead letter.
//!
//! Run it with `cargo run --example email_queue`. It stores its tasks in `email_queue.db`, or in
//! the file given as the first argument; run it again, and the accepted tasks still exist.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Context, Engine, Failure, RetryPolicy};

#[derive(Serialize, Deserialize)]
struct Email {
    to: String,
    subject: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    to: String,
    attempts: u32,
}

/// A mail server that is busy on the first attempt and rejects addresses without an `@`.
async fn send(context: Context, mail: Email) -> Result<Receipt, Failure> {
    if !mail.to.contains('@') {
        return Err(context.non_retryable(format!("{} is not an address", mail.to)));
    }
    if context.attempt() == 1 {
        return Err(Failure::transient("the mail server is busy"));
    }
    println!("  sent {:?} to {}", mail.subject, mail.to);
    Ok(Receipt { to: mail.to, attempts: context.attempt() })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "email_queue.db".into());
    let engine = Engine::open(&format!("sqlite://{file}")).await?;
    let worker =
        engine.worker("mailer").lanes(["mail"]).concurrency(8).handler("email", send).start()?;

    let welcome = |to: &str| Email { to: to.into(), subject: "Welcome".into() };
    let create = |to: &str| {
        let email = engine.create("email").lane("mail").payload(&welcome(to));
        email.retry(RetryPolicy::fixed(5, 200)).idempotency_key(format!("welcome-{to}"))
    };
    let ada = create("ada@example.com").await?;
    let again = create("ada@example.com").await?;
    println!("the same request twice is one task: {}", ada.id() == again.id());
    println!("{:?}", ada.result::<Receipt>().await?);

    let invalid = create("ada").await?;
    match invalid.result::<Receipt>().await {
        Ok(receipt) => println!("{receipt:?}"),
        Err(error) => println!("{}: {error}", error.code()),
    }
    worker.drain(Duration::from_secs(10)).await;
    engine.shutdown().await?;
    Ok(())
}
