//! The bank as a process sees it.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use windlass_engine::{ExternalCall, ExternalService, Lookup};

use crate::stage::Stage;

#[derive(Clone, Debug)]
pub(crate) struct Bank {
    pub(crate) port: u16,
    pub(crate) stage: Arc<Stage>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Payment {
    pub(crate) order: String,
    pub(crate) cents: u64,
}

impl Bank {
    /// The receipt, or that there is none.
    async fn ask(&self, line: &serde_json::Value) -> io::Result<Option<String>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        stream.write_all(format!("{line}\n").as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    }
}

impl ExternalService for Bank {
    type Request = Payment;
    type Response = String;
    type Error = String;

    async fn invoke(&self, call: &ExternalCall, payment: &Payment) -> Result<String, String> {
        let (id, Payment { order, cents }) = (&call.request_id, payment);
        let line = serde_json::json!({ "invoke": { "id": id, "order": order, "cents": cents } });
        self.stage.reach("call.before");
        let receipt = self.ask(&line).await.map_err(|error| error.to_string())?;
        self.stage.reach("call.after");
        receipt.ok_or_else(|| "no receipt".to_owned())
    }

    async fn lookup(&self, call: &ExternalCall) -> Lookup<String> {
        match self.ask(&serde_json::json!({ "lookup": { "id": call.request_id } })).await {
            Ok(Some(receipt)) => Lookup::Found(receipt),
            Ok(None) => Lookup::NotFound,
            Err(error) => Lookup::Ambiguous(error.to_string()),
        }
    }
}
