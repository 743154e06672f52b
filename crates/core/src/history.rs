//! What a workflow remembers of itself: a row for each turn, from which its code is replayed.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::name::TaskId;
use crate::payload::Payload;
use crate::task::FailureClass;
use crate::time::Timestamp;

/// One turn of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turned {
    /// What time it was, for the workflow's code.
    pub at: Timestamp,
    /// What its code was told, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrived: Vec<Arrival>,
    /// What its code did, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<Made>,
}

/// What comes to a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// A step of its own has ended.
    Report { step: u64, outcome: StepOutcome },
    /// Somebody has sent a message.
    Message {
        name: String,
        source: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload: Option<Carried>,
    },
    /// It is asked to end.
    Cancel { reason: String },
}

/// How a step has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    Completed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Carried>,
    },
    Failed {
        class: FailureClass,
        reason: String,
    },
    Cancelled {
        reason: String,
    },
    Expired,
    /// It was a timer.
    Fired,
}

/// What the code of a workflow does that is to outlive it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Made {
    Activity {
        step: u64,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Carried>,
    },
    /// It runs within the turn, in the process of the worker.
    Local {
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
    /// A workflow that nobody waits for.
    Start {
        step: u64,
        name: String,
        id: TaskId,
    },
    /// It waits for a message of this name.
    Wait {
        step: u64,
        name: String,
    },
    /// It sends a message to another workflow or task.
    Post {
        step: u64,
        to: TaskId,
        name: String,
    },
    /// Nobody is interested any more in what comes of an earlier step.
    Cancel {
        step: u64,
    },
    /// From here on it goes the way of a changed version of its code.
    Patch {
        id: String,
    },
}

/// A payload inside of a history: readable where it is JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried(pub Payload);

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

/// What is there, also when it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Serialize for Carried {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Payload { content_type, bytes } = &self.0;
        let text = std::str::from_utf8(bytes).ok().filter(|_| content_type == JSON);
        // Who sent it may have lied. White space at its ends would not come back.
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

impl<'de> Deserialize<'de> for Carried {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Written::deserialize(deserializer)? {
            Written { json: Some(json), .. } => Ok(Self(Payload::json(json.get()))),
            Written { content_type: Some(content_type), hex: Some(hex), .. } => {
                let bytes = unhex(&hex).ok_or_else(|| D::Error::custom("hex that is none"))?;
                Ok(Self(Payload::new(content_type, bytes)))
            }
            _ => Err(D::Error::custom("a payload without its bytes")),
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
    fn what_is_written_comes_back() {
        let results = [
            Payload::json(r#"{"a": 1.10,"b":"\u00e9"}"#),
            Payload::json(" 1"),
            Payload::json("no json"),
            Payload::json("null"),
            Payload::new("application/octet-stream", vec![0, 255, 16]),
        ];
        for result in results {
            let report = Arrival::Report {
                step: 7,
                outcome: StepOutcome::Completed { result: Some(Carried(result)) },
            };
            let made = vec![Made::Wait { step: 8, name: "go".into() }];
            let row = Turned { at: Timestamp::from_micros(5), arrived: vec![report], made };
            let text = serde_json::to_string(&row).unwrap();
            assert_eq!(serde_json::from_str::<Turned>(&text).unwrap(), row, "{text}");
        }
    }

    #[test]
    fn json_is_readable() {
        let text = serde_json::to_string(&Carried(Payload::json("[1,2]"))).unwrap();
        assert_eq!(text, r#"{"json":[1,2]}"#);
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("zz"), None);
    }
}
