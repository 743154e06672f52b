//! Statements that go out together, so that they cost one round trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{join_all, try_join_all};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};
use windlass_core::Value;
use windlass_store::Traffic;

/// A statement with its parameters.
#[derive(Debug)]
pub(crate) struct Request<'p> {
    pub(crate) text: String,
    params: Vec<Param<'p>>,
}

/// What a statement is given: one value, or a column of many rows.
#[derive(Debug)]
pub(crate) enum Param<'p> {
    Int(i64),
    Text(&'p str),
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<&'p str>>),
    Smalls(Vec<i16>),
    Bytes(Vec<&'p [u8]>),
}

impl<'p> Request<'p> {
    pub(crate) fn new(text: impl Into<String>, params: Vec<Param<'p>>) -> Self {
        Self { text: text.into(), params }
    }

    fn typed(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.params.iter().map(|param| (param.value(), param.type_of())).collect()
    }
}

impl<'p> Param<'p> {
    pub(crate) fn of(value: &'p Value) -> Self {
        match value {
            Value::Int(number) => Param::Int(*number),
            Value::Text(text) => Param::Text(text),
            Value::Null => unreachable!("what is searched for is not null"),
        }
    }

    fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Param::Int(value) => value,
            Param::Text(value) => value,
            Param::Ints(values) => values,
            Param::Texts(values) => values,
            Param::Smalls(values) => values,
            Param::Bytes(values) => values,
        }
    }

    fn type_of(&self) -> Type {
        match self {
            Param::Int(_) => Type::INT8,
            Param::Text(_) => Type::TEXT,
            Param::Ints(_) => Type::INT8_ARRAY,
            Param::Texts(_) => Type::TEXT_ARRAY,
            Param::Smalls(_) => Type::INT2_ARRAY,
            Param::Bytes(_) => Type::BYTEA_ARRAY,
        }
    }
}

/// A connection and how it is talked to.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: deadpool_postgres::Object,
    pub(crate) prepare: bool,
    pub(crate) counters: Arc<Counters>,
}

/// What a handle has sent so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    statements: AtomicU64,
    round_trips: AtomicU64,
}

impl Counters {
    fn add(&self, statements: usize) {
        self.statements.fetch_add(statements as u64, Ordering::Relaxed);
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Traffic {
        Traffic {
            statements: self.statements.load(Ordering::Relaxed),
            round_trips: self.round_trips.load(Ordering::Relaxed),
        }
    }
}

impl Session {
    /// Sends all requests in this order, without waiting for one before the next; their answers.
    pub(crate) async fn fly(
        &self,
        requests: &[Request<'_>],
    ) -> Result<Vec<Result<Vec<Row>, Error>>, Error> {
        self.counters.add(requests.len());
        if !self.prepare {
            let each = requests.iter().map(|request| async {
                self.client.query_typed(&request.text, &request.typed()).await
            });
            return Ok(join_all(each).await);
        }
        let statements = requests.iter().map(|request| async {
            let types: Vec<Type> = request.params.iter().map(Param::type_of).collect();
            self.client.prepare_typed_cached(&request.text, &types).await
        });
        let statements = try_join_all(statements).await?;
        let each = requests.iter().zip(&statements).map(|(request, statement)| async move {
            let params: Vec<_> = request.params.iter().map(Param::value).collect();
            self.client.query(statement, &params).await
        });
        Ok(join_all(each).await)
    }

    /// Sends all requests at once; the first error is the error of all.
    pub(crate) async fn all(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        self.fly(requests).await?.into_iter().collect()
    }
}
