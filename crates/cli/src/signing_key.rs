use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use windlass::{SigningKeyInfo, Timestamp};

use crate::duration;
use crate::error::CliError;
use crate::output::{say, say_json, say_table, time};
use crate::target::Target;

const OPTIONS: &[(&str, &str)] = &[("grace_ms", "--grace")];

#[derive(Debug, Args)]
pub(crate) struct SigningKeyCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Sign tokens with a new key; tokens of the previous key stay valid for its grace period.
    Rotate(Rotate),
    /// List the signing keys of a tenant: age and fingerprint, never the secret.
    #[command(visible_alias = "ls")]
    List(List),
}

#[derive(Debug, Args)]
struct Rotate {
    /// How long tokens of the previous key stay valid.
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = duration::parse)]
    grace: Duration,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    target: Target,
}

impl SigningKeyCommand {
    pub(crate) async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::Rotate(rotate) => rotate.run().await,
            Verb::List(list) => list.run().await,
        }
    }
}

impl Rotate {
    async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let rotated = engine.rotate_signing_key(&self.target.tenant, self.grace).await;
        let id = rotated.map_err(|error| CliError::from(error).named(OPTIONS))?;
        if self.target.json {
            say_json(&json!({ "id": id }));
        } else {
            say(&format!("New tokens are signed with key {id}."));
        }
        Ok(engine.shutdown().await?)
    }
}

impl List {
    async fn run(self) -> Result<(), CliError> {
        let engine = self.target.open().await?;
        let keys = engine.signing_keys(&self.target.tenant).await?;
        let now = duration::now();
        if self.target.json {
            keys.iter().for_each(|key| say_json(&described(key)));
        } else if keys.is_empty() {
            say("There is no signing key: the first waitpoint creates one.");
        } else {
            let rows = keys.iter().map(|key| row(key, now)).collect();
            say_table(["id", "fingerprint", "added", "state"], rows);
        }
        Ok(engine.shutdown().await?)
    }
}

fn described(key: &SigningKeyInfo) -> Value {
    json!({
        "id": key.id,
        "fingerprint": key.fingerprint.to_string(),
        "added_at": time(key.added_at),
        "expires_at": time(key.expires_at),
        "active": key.expires_at.is_none(),
    })
}

fn row(key: &SigningKeyInfo, now: Timestamp) -> [String; 4] {
    let state = match key.expires_at {
        None => "active".to_owned(),
        Some(at) if at <= now => "expired".to_owned(),
        Some(at) => format!("verifies, expires {}", duration::distance(at, now)),
    };
    let fingerprint = key.fingerprint.to_string()[..8].to_owned();
    [key.id.clone(), fingerprint, duration::distance(key.added_at, now), state]
}
