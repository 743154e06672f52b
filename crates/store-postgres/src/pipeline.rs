//! Pipelined statements: several in one round trip.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::{MaybeDone, join_all, maybe_done, try_join_all};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Statement as Prepared};
use windlass_core::Value;
use windlass_store::RoundTripCounter;

/// A statement with its parameters.
#[derive(Debug)]
pub(crate) struct Statement<'p> {
    text: Cow<'p, str>,
    params: Vec<Param<'p>>,
}

/// A parameter: one value, or a column of many rows.
#[derive(Debug)]
pub(crate) enum Param<'p> {
    Int(i64),
    Text(&'p str),
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<&'p str>>),
    Smalls(Vec<i16>),
    Bytes(Vec<&'p [u8]>),
}

impl<'p> Statement<'p> {
    pub(crate) fn new(text: impl Into<Cow<'p, str>>, params: Vec<Param<'p>>) -> Self {
        Self { text: text.into(), params }
    }

    pub(crate) fn plain(text: &'p str) -> Self {
        Self::new(text, Vec::new())
    }
}

impl<'p> Param<'p> {
    pub(crate) fn of(value: &'p Value) -> Self {
        match value {
            Value::Int(number) => Param::Int(*number),
            Value::Text(text) => Param::Text(text),
            Value::Null => unreachable!("a filter parameter is never null"),
        }
    }

    fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Param::Int(value) => (value, Type::INT8),
            Param::Text(value) => (value, Type::TEXT),
            Param::Ints(values) => (values, Type::INT8_ARRAY),
            Param::Texts(values) => (values, Type::TEXT_ARRAY),
            Param::Smalls(values) => (values, Type::INT2_ARRAY),
            Param::Bytes(values) => (values, Type::BYTEA_ARRAY),
        }
    }
}

/// A connection and its protocol settings.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: deadpool_postgres::Object,
    pub(crate) prepare: bool,
    pub(crate) counters: Arc<RoundTripCounter>,
}

/// Number of transactions after which a connection's statements are replanned; a young connection
/// replans more often. Plans made for an empty table are bad for a full one.
const PLANS_LAST: usize = 256;

impl Session {
    pub(crate) fn is_due_for_plans(&self) -> bool {
        let used = deadpool_postgres::Object::metrics(&self.client).recycle_count;
        self.prepare && (used.is_power_of_two() || used.is_multiple_of(PLANS_LAST))
    }

    /// Sends all statements in order without waiting for each reply; returns their results. If
    /// sending fails, later statements are not sent.
    pub(crate) async fn send(
        &self,
        statements: &[Statement<'_>],
    ) -> Result<Vec<Result<Vec<Row>, Error>>, Error> {
        self.counters.add(statements.len());
        let prepared = statements.iter().filter(|_| self.prepare).map(|statement| async {
            let types: Vec<Type> = statement.params.iter().map(|param| param.typed().1).collect();
            self.client.prepare_typed_cached(&statement.text, &types).await
        });
        let prepared = try_join_all(prepared).await?;
        let mut sent = Vec::new();
        for (at, statement) in statements.iter().enumerate() {
            let prepared = prepared.get(at);
            let mut response = Box::pin(maybe_done(self.ask(statement, prepared)));
            // The first poll sends the statement.
            poll_fn(|context| Poll::Ready(response.as_mut().poll(context).is_ready())).await;
            // Errors reported by the server are collected with the other results.
            if matches!(response.as_mut().output_mut(), Some(Err(error)) if error.code().is_none())
            {
                return Ok(response.as_mut().take_output().into_iter().collect());
            }
            sent.push(response);
        }
        join_all(sent.iter_mut()).await;
        let response = |response: &mut Pin<Box<MaybeDone<_>>>| response.as_mut().take_output();
        Ok(sent.iter_mut().filter_map(response).collect())
    }

    async fn ask(
        &self,
        statement: &Statement<'_>,
        prepared: Option<&Prepared>,
    ) -> Result<Vec<Row>, Error> {
        let typed: Vec<_> = statement.params.iter().map(Param::typed).collect();
        let Some(prepared) = prepared else {
            return self.client.query_typed(&statement.text, &typed).await;
        };
        let values: Vec<_> = typed.into_iter().map(|(value, _)| value).collect();
        self.client.query(prepared, &values).await
    }

    /// Sends all statements in one round trip; fails with the first error.
    pub(crate) async fn all(&self, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        self.send(statements).await?.into_iter().collect()
    }
}
