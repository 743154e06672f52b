use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_core::{HistoryPayload, Payload, limits};

use super::unread_signal::UnreadSignal;

/// What an execution of a workflow carries over to the next one.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Carryover {
    #[serde(default)]
    pub(crate) unread: Vec<UnreadSignal>,
    #[serde(default)]
    pub(crate) values: BTreeMap<String, HistoryPayload>,
}

impl Carryover {
    pub(crate) fn written(&self) -> Result<Payload, serde_json::Error> {
        Ok(Payload::new("application/json", serde_json::to_vec(self)?))
    }

    /// Returns why it cannot be stored, if so.
    pub(super) fn check(&self) -> Result<(), String> {
        let payload = self.written().map_err(|error| error.to_string())?;
        payload.check().map_err(|_| {
            let (bytes, most) = (payload.bytes.len(), limits::PAYLOAD_BYTES.max);
            format!("unread messages and values have {bytes} bytes, {most} at most are carried")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is stored in databases: an execution may start from it years later.
    #[test]
    fn the_stored_format_is_stable() {
        let lines = [
            concat!(
                r#"{"unread":[{"name":"go","source":"ada","payload":{"json":{"n": 1}}},"#,
                r#"{"name":"stop","source":"bob"}],"#,
                r#""values":{"picture":{"type":"image/png","hex":"00ff"},"total":{"json":5}}}"#
            ),
            r#"{"unread":[],"values":{}}"#,
        ];
        for line in lines {
            let over: Carryover = serde_json::from_str(line).unwrap();
            assert_eq!(*over.written().unwrap().bytes, *line.as_bytes());
        }
        let bare: Carryover = serde_json::from_str("{}").unwrap();
        assert!(bare.unread.is_empty() && bare.values.is_empty());
    }
}
