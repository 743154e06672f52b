use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::admission::Admission;
use crate::children::Children;
use crate::concurrency_limit::ConcurrencyLimit;
use crate::effect::Effect;
use crate::execution::Execution;
use crate::keyring::Keyring;
use crate::lane::Lane;
use crate::limiter::Limiter;
use crate::log::Log;
use crate::mailbox::{Mailbox, Message};
use crate::node::Node;
use crate::ready_route::ReadyRoute;
use crate::row::{Index, Row, RowKey, TableSpec, Value, Version};
use crate::subscription_cursor::SubscriptionCursor;
use crate::task::Task;
use crate::waitpoint::Waitpoint;
use crate::worker::Worker;
use crate::workflow_property::WorkflowProperty;

/// A stored record: a key, columns for indexes and lists, and a JSON body.
///
/// Columns are a pure function of the record. `SCHEMA` rises when a field is added that older nodes
/// must preserve without understanding it. Such a field is a top-level field of the body, because
/// only unknown top-level fields are preserved.
pub trait Record: Clone + fmt::Debug + PartialEq + Serialize + DeserializeOwned {
    const SPEC: TableSpec;
    const SCHEMA: u16 = 1;

    fn key(&self) -> Vec<Value>;
    fn columns(&self) -> Vec<Value>;
}

/// A record type with a table in [`Table`].
pub trait StoredRecord: Record + Sized {
    const TABLE: Table;

    fn from_any(any: &AnyRecord) -> &Arc<Self>;
    fn into_any(record: Arc<Self>) -> AnyRecord;

    fn row_key(values: Vec<Value>) -> RowKey {
        RowKey { table: Self::TABLE, values }
    }
}

macro_rules! records {
    ($($Type:ident),*) => {
        /// The closed list of tables.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Table { $($Type),* }

        impl Table {
            pub const ALL: &'static [Table] = &[$(Table::$Type),*];

            pub fn spec(self) -> &'static TableSpec {
                match self { $(Table::$Type => const { &<$Type as Record>::SPEC }),* }
            }
        }

        /// Any record of any table.
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyRecord { $($Type(Arc<$Type>)),* }

        impl AnyRecord {
            pub fn key(&self) -> RowKey {
                match self {
                    $(AnyRecord::$Type(r) => RowKey { table: Table::$Type, values: r.key() }),*
                }
            }

            pub fn columns(&self) -> Vec<Value> {
                match self { $(AnyRecord::$Type(r) => r.columns()),* }
            }

            fn write(&self) -> (u16, serde_json::Result<String>) {
                match self {
                    $(AnyRecord::$Type(r) => ($Type::SCHEMA, serde_json::to_string(&**r))),*
                }
            }

            fn read(table: Table, schema: u16, body: &str) -> serde_json::Result<Decoded> {
                match table { $(Table::$Type => read::<$Type>(schema, body)),* }
            }
        }

        $(impl StoredRecord for $Type {
            const TABLE: Table = Table::$Type;

            fn from_any(any: &AnyRecord) -> &Arc<Self> {
                match any {
                    AnyRecord::$Type(record) => record,
                    #[allow(unreachable_patterns, reason = "unreachable with a single table")]
                    _ => panic!("the key and the record belong to different tables"),
                }
            }

            fn into_any(record: Arc<Self>) -> AnyRecord {
                AnyRecord::$Type(record)
            }
        })*
    };
}

records!(
    Task,
    Lane,
    ReadyRoute,
    Admission,
    Log,
    Node,
    Mailbox,
    Message,
    Waitpoint,
    Keyring,
    Children,
    ConcurrencyLimit,
    Worker,
    SubscriptionCursor,
    Effect,
    Limiter,
    Execution,
    WorkflowProperty
);

impl Table {
    /// The index that the sweep scans for due records of this table; none if it is not swept.
    pub fn due(self) -> Option<Index> {
        match self {
            Table::Task => Some(Index::TaskDue),
            Table::ReadyRoute => Some(Index::ReadyRouteDue),
            Table::Admission => Some(Index::AdmissionDue),
            Table::Node => Some(Index::NodeDue),
            Table::Message => Some(Index::MessageDue),
            Table::Keyring => Some(Index::KeyringDue),
            Table::Children => Some(Index::ChildrenDue),
            Table::ConcurrencyLimit => Some(Index::ConcurrencyLimitDue),
            Table::Worker => Some(Index::WorkerDue),
            Table::Effect => Some(Index::EffectDue),
            Table::Limiter => Some(Index::LimiterDue),
            Table::Execution => Some(Index::ExecutionDue),
            Table::Lane
            | Table::Log
            | Table::Mailbox
            | Table::Waitpoint
            | Table::SubscriptionCursor
            | Table::WorkflowProperty => None,
        }
    }
}

/// The fields that a newer version wrote. This version preserves them unread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnknownFields {
    schema: u16,
    fields: Map<String, Json>,
}

pub(crate) type Decoded = (AnyRecord, Option<Box<UnknownFields>>);

/// Decodes a body; none if this version cannot.
pub(crate) fn decode(table: Table, schema: u16, body: &str) -> Option<Decoded> {
    AnyRecord::read(table, schema, body).ok()
}

/// Whether this version can decode a body, and the record has this key. Other records are
/// quarantined.
pub fn is_readable(table: Table, key: &[String], schema: u16, body: &str) -> bool {
    let is_text = |(value, text): (&Value, &String)| match value {
        Value::Text(value) => **value == **text,
        Value::Int(value) => value.to_string() == *text,
        Value::Null => false,
    };
    decode(table, schema, body).is_some_and(|(record, _)| {
        let values = record.key().values;
        values.len() == key.len() && values.iter().zip(key).all(is_text)
    })
}

/// Decodes a row for readers outside a transaction, such as lists.
pub fn read_row<R: StoredRecord>(schema: u16, body: &str) -> Option<Arc<R>> {
    let (any, _) = decode(R::TABLE, schema, body)?;
    Some(R::from_any(&any).clone())
}

fn read<R: StoredRecord>(schema: u16, body: &str) -> serde_json::Result<Decoded> {
    if schema <= R::SCHEMA {
        return Ok((R::into_any(Arc::new(serde_json::from_str(body)?)), None));
    }
    let record: R = serde_json::from_str(body)?;
    let mut fields: Map<String, Json> = serde_json::from_str(body)?;
    if let Json::Object(own_fields) = serde_json::to_value(&record)? {
        fields.retain(|name, _| !own_fields.contains_key(name));
    }
    Ok((R::into_any(Arc::new(record)), Some(Box::new(UnknownFields { schema, fields }))))
}

pub(crate) fn encode(record: &AnyRecord, extra: Option<&UnknownFields>, version: Version) -> Row {
    let (own_schema, body) = record.write();
    let mut body = body.expect("core types serialize to JSON");
    let schema = extra.map_or(own_schema, |extra| extra.schema);
    if let Some(extra) = extra {
        let mut fields = extra.fields.clone();
        let own_fields: Map<String, Json> =
            serde_json::from_str(&body).expect("records are objects");
        fields.extend(own_fields);
        body = Json::Object(fields).to_string();
    }
    Row { key: record.key(), version, columns: record.columns(), schema, body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::LaneLimit;
    use crate::name::{LaneName, Tenant};

    fn lane() -> Lane {
        let mut lane = Lane::new(&Tenant::new("t"), &LaneName::new("l"));
        lane.concurrency = Some(LaneLimit { limit: Some(3), running: 1 });
        lane
    }

    #[test]
    fn a_body_reads_back_as_it_was_written() {
        let record = Lane::into_any(Arc::new(lane()));
        let row = encode(&record, None, Version(7));
        let expected = concat!(
            r#"{"tenant":"t","name":"l","state":"active","#,
            r#""concurrency":{"limit":3,"running":1},"ready_routes":0}"#
        );
        assert_eq!(row.body, expected);
        assert_eq!(decode(Table::Lane, row.schema, &row.body), Some((record, None)));
    }

    #[test]
    fn fields_of_a_newer_version_are_preserved() {
        let newer = concat!(
            r#"{"tenant":"t","name":"l","state":"active","#,
            r#""concurrency":{"limit":3,"running":1},"ready_routes":0,"colour":"red"}"#
        );
        let (record, extra) = decode(Table::Lane, 9, newer).unwrap();
        assert_eq!(record, Lane::into_any(Arc::new(lane())));
        let row = encode(&record, extra.as_deref(), Version(8));
        let json = |text| serde_json::from_str::<Json>(text).unwrap();
        assert_eq!((row.schema, json(&row.body)), (9, json(newer)));
    }

    #[test]
    fn a_field_that_both_versions_know_is_written_once() {
        let newer = r#"{"tenant":"t","name":"l","state":"active","concurrency":null,"ready_routes":0,"new":1}"#;
        let (_, extra) = decode(Table::Lane, 9, newer).unwrap();
        let changed = Lane::into_any(Arc::new(lane()));
        let row = encode(&changed, extra.as_deref(), Version(8));
        let (read, _) = decode(Table::Lane, 9, &row.body).unwrap();
        assert_eq!(read, changed);
        assert!(row.body.contains("\"new\":1"));
    }

    #[test]
    fn an_unreadable_body_decodes_to_none() {
        assert_eq!(decode(Table::Lane, 1, "{}"), None);
        assert_eq!(decode(Table::Task, 1, "not json"), None);
    }
}
