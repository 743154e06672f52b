//! Appends events outside a turn, for tests and tools.

use duroxide::Event;
use duroxide::providers::{ExecutionMetadata, ProviderError};
use windlass_core::command::{ClaimGranted, Create, Grant, NewTask, NewWorkflow, Resume};
use windlass_core::{Outcome, Rejection};
use windlass_engine::Error;

use crate::ack::Ack;
use crate::error::{failed, garbled};
use crate::names::{KIND, orchestrations};
use crate::provider::WindlassProvider;
use crate::token::Token;

const APPEND: &str = "append_with_execution";
const LEASE_MS: u64 = 10_000;

impl WindlassProvider {
    /// Leases the instance and appends like an ack. While another worker holds the lease, this is a
    /// retryable error.
    pub(crate) async fn append(
        &self,
        instance: &str,
        execution_id: u64,
        events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        let (task, worker) = (self.key(instance), self.worker.clone());
        let new = NewTask {
            lane: orchestrations(),
            workflow: Some(NewWorkflow::default()),
            ..NewTask::new(task.id.clone(), KIND)
        };
        let consume = ClaimGranted {
            task: task.clone(),
            lease_ms: LEASE_MS,
            ..ClaimGranted::new(task.id.clone(), worker.clone())
        };
        let commands = vec![
            Create { tenant: self.tenant.clone(), tasks: vec![new] }.into(),
            Resume { task: task.clone(), by: APPEND.to_owned() }.into(),
            Grant { task, worker, ttl_ms: LEASE_MS }.into(),
            consume.into(),
        ];
        let answers = self.engine.submit_many(commands).await.map_err(failed(APPEND))?;
        let fence = match answers.into_iter().next_back() {
            Some(Ok(Outcome::Claimed(tasks))) => tasks.first().map(|task| task.fence()),
            Some(Err(Error::Rejected(Rejection::NotGranted))) => None,
            Some(Err(error)) => return Err(failed(APPEND)(error)),
            _ => None,
        };
        let busy = || ProviderError::retryable(APPEND, "a turn of the instance is running");
        let token = Token::new(fence.ok_or_else(busy)?, Vec::new(), false);
        let token = token.write().map_err(garbled(APPEND))?;
        let ack = Ack {
            execution_id,
            events,
            worker_items: Vec::new(),
            orchestrator_items: Vec::new(),
            metadata: ExecutionMetadata::default(),
            cancelled: Vec::new(),
        };
        match self.ack(&token, ack).await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.abandon_turn(&token, None, true).await?;
                Err(error)
            }
        }
    }
}
