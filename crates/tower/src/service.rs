use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use tower_service::Service;
use windlass_engine::{Begun, Scope, Ticket};

use crate::answer::{keep, replay};
use crate::layer::IdempotencyLayer;
use crate::problem::Problem;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

type BoxError = Box<dyn StdError + Send + Sync>;
/// What takes no part passes as it is, however long it is.
type Passing<B> = Either<Full<Bytes>, B>;
type Answer<A> = Response<Passing<A>>;

/// A service whose requests take effect once: see [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    inner: S,
    layer: IdempotencyLayer,
}

/// A request that takes part: what it is called, and all of it.
struct Keyed {
    parts: Parts,
    key: String,
    body: Bytes,
}

impl<S> Idempotency<S> {
    pub(crate) fn new(inner: S, layer: IdempotencyLayer) -> Self {
        Self { inner, layer }
    }
}

impl<S, B, A> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<Passing<B>>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    A: Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Answer<A>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer<A>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready is the one to be called.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let is_safe = parts.method.is_safe();
            let key = if is_safe { Ok(None) } else { key_of(&parts) };
            let came = match key {
                Ok(None) if is_safe || !layer.is_required => {
                    let request = Request::from_parts(parts, Either::Right(body));
                    return Ok(inner.call(request).await?.map(Either::Right));
                }
                Ok(None) => Err(Problem::KeyMissing),
                Ok(Some(key)) => match whole(body, layer.longest_body).await {
                    Ok(body) => attend(inner, &layer, Keyed { parts, key, body }).await,
                    Err(problem) => Err(problem),
                },
                Err(problem) => Err(problem),
            };
            let came = came.unwrap_or_else(|problem| Ok(problem.answer()));
            came.map(|answer| answer.map(Either::Left))
        })
    }
}

/// Answers a request: as it was answered before, or by the service behind.
async fn attend<S, B, A>(
    mut inner: S,
    layer: &IdempotencyLayer,
    request: Keyed,
) -> Result<Result<Response<Full<Bytes>>, S::Error>, Problem>
where
    S: Service<Request<Passing<B>>, Response = Response<A>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Send + 'static,
    A: Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    let Keyed { mut parts, key, body } = request;
    let scope = scope_of(layer, &parts)?;
    let ticket = match layer.engine.begin_request(&scope, key, &body).await {
        Ok(Begun::First(ticket)) => ticket,
        Ok(Begun::Answered(kept)) => {
            return replay(&kept).map(Ok).ok_or(Problem::AnswerUnreadable);
        }
        Err(refused) => return Err(Problem::Refused(refused)),
    };
    parts.extensions.insert(ticket.context());
    let request = Request::from_parts(parts, Either::Left(Full::new(body)));
    let longest = layer.longest_body;
    // A client that leaves does not stop what was begun: it would be begun again.
    let run = async move { conclude(inner.call(request).await, ticket, longest).await };
    match tokio::spawn(run).await {
        Ok(came) => came,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(Problem::Refused(windlass_engine::Error::ShuttingDown)),
    }
}

/// Keeps what is a success, and gives up what is not.
async fn conclude<A, E>(
    came: Result<Response<A>, E>,
    ticket: Ticket,
    longest: usize,
) -> Result<Result<Response<Full<Bytes>>, E>, Problem>
where
    A: Body<Data = Bytes>,
    A::Error: Into<BoxError>,
{
    let read = match came {
        Ok(answer) => {
            let (parts, body) = answer.into_parts();
            whole(body, longest).await.map(|body| Ok(Response::from_parts(parts, body)))
        }
        Err(error) => Ok(Err(error)),
    };
    let settled = match &read {
        Ok(Ok(answer)) if answer.status().is_success() => ticket.answer(keep(answer)).await,
        _ => ticket.give_up().await,
    };
    settled.map_err(Problem::Refused)?;
    Ok(read?.map(|answer| answer.map(Full::new)))
}

/// The key of a request: plain, or in quotes as the header is specified.
fn key_of(parts: &Parts) -> Result<Option<String>, Problem> {
    let mut values = parts.headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().map_err(|_| Problem::KeyUnreadable)?.trim();
    if values.next().is_some() {
        return Err(Problem::KeyUnreadable);
    }
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Ok(Some(bare.to_owned()))
}

fn scope_of(layer: &IdempotencyLayer, parts: &Parts) -> Result<Scope, Problem> {
    let principal = (layer.identify)(parts).ok_or(Problem::NobodyAsks)?;
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let scope = Scope::new(principal.name, format!("{} {path}", parts.method));
    Ok(scope.tenant(principal.tenant).account(principal.account))
}

async fn whole<B>(body: B, longest: usize) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, longest).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::BodyTooLong),
        Err(error) => {
            tracing::debug!(%error, "a body could not be read");
            Err(Problem::BodyUnreadable)
        }
    }
}
