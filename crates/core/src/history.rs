//! The history of a workflow: one row per turn, from which its code is replayed.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::name::TaskId;
use crate::payload::Payload;
use crate::task::FailureClass;
use crate::time::Timestamp;

/// One turn of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// The time that the workflow code sees.
    pub at: Timestamp,
    /// The inputs of the turn, in delivery order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<WorkflowInput>,
    /// The commands that the code issued, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<RecordedCommand>,
}

/// An input of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowInput {
    /// One of its steps has ended.
    StepCompletion { step: u64, outcome: StepOutcome },
    /// A message that was sent to it.
    Message {
        name: String,
        source: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload: Option<HistoryPayload>,
    },
    /// A cancellation request.
    Cancel { reason: String },
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    Completed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<HistoryPayload>,
    },
    Failed {
        class: FailureClass,
        reason: String,
    },
    Cancelled {
        reason: String,
    },
    Expired,
    /// A timer has fired.
    Fired,
}

/// A command of workflow code, as recorded in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedCommand {
    Activity {
        step: u64,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<HistoryPayload>,
    },
    /// It runs within the turn, in the process of the worker.
    LocalActivity {
        step: u64,
        name: String,
    },
    Timer {
        step: u64,
        until: Timestamp,
    },
    Child {
        step: u64,
        name: String,
        id: TaskId,
    },
    /// A detached workflow.
    StartDetached {
        step: u64,
        name: String,
        id: TaskId,
    },
    /// Waits for a message of this name.
    WaitSignal {
        step: u64,
        name: String,
    },
    /// Sends a message to another workflow or task.
    Signal {
        step: u64,
        to: TaskId,
        name: String,
    },
    /// Cancels an earlier step.
    Cancel {
        step: u64,
    },
    /// Marks that the code takes the path of this patch from here on.
    Patch {
        id: String,
    },
}

/// A payload in a history, readable if it is JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPayload(pub Payload);

const JSON: &str = "application/json";

#[derive(Default, Serialize, Deserialize)]
struct Written {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    json: Option<Box<RawValue>>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

/// Distinguishes an explicit `null` from an absent value.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Serialize for HistoryPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Payload { content_type, bytes } = &self.0;
        let text = std::str::from_utf8(bytes).ok().filter(|_| content_type == JSON);
        // The content type may be wrong. White space at the ends would be lost.
        let text = text.filter(|text| text.trim() == *text);
        let json = text.and_then(|text| RawValue::from_string(text.to_owned()).ok());
        let written = match json {
            Some(json) => Written { json: Some(json), ..Written::default() },
            None => Written {
                content_type: Some(content_type.clone()),
                hex: Some(hex(bytes)),
                ..Written::default()
            },
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HistoryPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Written::deserialize(deserializer)? {
            Written { json: Some(json), .. } => Ok(Self(Payload::json(json.get()))),
            Written { content_type: Some(content_type), hex: Some(hex), .. } => {
                let bytes = unhex(&hex).ok_or_else(|| D::Error::custom("invalid hex"))?;
                Ok(Self(Payload::new(content_type, bytes)))
            }
            _ => Err(D::Error::custom("a payload without bytes")),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_rows_round_trip() {
        let results = [
            Payload::json(r#"{"a": 1.10,"b":"\u00e9"}"#),
            Payload::json(" 1"),
            Payload::json("no json"),
            Payload::json("null"),
            Payload::new("application/octet-stream", vec![0, 255, 16]),
        ];
        for result in results {
            let completion = WorkflowInput::StepCompletion {
                step: 7,
                outcome: StepOutcome::Completed { result: Some(HistoryPayload(result)) },
            };
            let commands = vec![RecordedCommand::WaitSignal { step: 8, name: "go".into() }];
            let row =
                TurnRecord { at: Timestamp::from_micros(5), inputs: vec![completion], commands };
            let text = serde_json::to_string(&row).unwrap();
            assert_eq!(serde_json::from_str::<TurnRecord>(&text).unwrap(), row, "{text}");
        }
    }

    #[test]
    fn json_is_readable() {
        let text = serde_json::to_string(&HistoryPayload(Payload::json("[1,2]"))).unwrap();
        assert_eq!(text, r#"{"json":[1,2]}"#);
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("zz"), None);
    }
}
