use duroxide::providers::ProviderError;
use serde::{Deserialize, Serialize};
use windlass_core::{Fence, TaskId, TaskKey, Tenant};

/// The contents of a lock token: the lease, and what was fetched with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    task: TaskId,
    epoch: u64,
    /// The messages fetched with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<u64>,
    /// Whether it is an activity without an instance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) standalone: bool,
    /// The parent that waits for the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) caller: Option<Caller>,
}

/// The step of the parent instance that waits for this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Caller {
    pub(crate) instance: String,
    pub(crate) execution: u64,
    pub(crate) event: u64,
}

impl Token {
    pub(crate) fn new(fence: Fence, messages: Vec<u64>, standalone: bool) -> Self {
        Self { task: fence.task.id, epoch: fence.epoch, messages, standalone, caller: None }
    }

    pub(crate) fn read(operation: &'static str, text: &str) -> Result<Self, ProviderError> {
        let read = serde_json::from_str(text);
        read.map_err(|_| ProviderError::permanent(operation, "Invalid lock token"))
    }

    pub(crate) fn fence(&self, tenant: &Tenant) -> Fence {
        Fence { task: TaskKey::new(tenant, &self.task), epoch: self.epoch }
    }

    pub(crate) fn write(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_decoded_as_it_was_encoded() {
        let fence = Fence { task: TaskKey::new(&Tenant::new("t"), &"i/a".into()), epoch: 7 };
        let token = Token::new(fence.clone(), vec![1, 3], false);
        let read = Token::read("ack", &token.write().unwrap()).unwrap();
        assert_eq!((&read, read.fence(&Tenant::new("t"))), (&token, fence));
        assert!(!Token::read("ack", "invalid-token").unwrap_err().is_retryable());
    }
}
