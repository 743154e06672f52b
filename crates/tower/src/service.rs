use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use tower_service::Service;
use windlass_core::limits;
use windlass_engine::{RequestAdmission, RequestGuard, RequestScope};

use crate::layer::IdempotencyLayer;
use crate::problem::Problem;
use crate::stored_response::{decode, encode};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

type BoxError = Box<dyn StdError + Send + Sync>;
/// A body that was read whole, or one that is passed through unread.
type PassThrough<B> = Either<Full<Bytes>, B>;
type HttpResponse<A> = Response<PassThrough<A>>;

/// A service that executes requests idempotently: see [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    layer: IdempotencyLayer,
}

/// A request with an idempotency key.
struct KeyedRequest<B> {
    parts: Parts,
    key: String,
    body: B,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: S, layer: IdempotencyLayer) -> Self {
        Self { inner, layer }
    }
}

impl<S, B, A> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<PassThrough<B>>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    A: Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = HttpResponse<A>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse<A>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Calls the instance that is ready; a clone need not be.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let is_safe = parts.method.is_safe();
            let key = if is_safe { Ok(None) } else { key_of(&parts) };
            let response = match key {
                Ok(None) if is_safe || !layer.is_required => {
                    let request = Request::from_parts(parts, Either::Right(body));
                    return Ok(inner.call(request).await?.map(Either::Right));
                }
                Ok(None) => Err(Problem::KeyMissing),
                Ok(Some(key)) => handle(inner, &layer, KeyedRequest { parts, key, body }).await,
                Err(problem) => Err(problem),
            };
            let response = response.unwrap_or_else(|problem| {
                tracing::debug!(?problem, "request rejected");
                Ok(problem.to_response())
            });
            response.map(|response| response.map(|body| Either::Left(Full::new(body))))
        })
    }
}

/// Handles a request: replays the stored response, or calls the inner service.
async fn handle<S, B, A>(
    mut inner: S,
    layer: &IdempotencyLayer,
    request: KeyedRequest<B>,
) -> Result<Result<Response<Bytes>, S::Error>, Problem>
where
    S: Service<Request<PassThrough<B>>, Response = Response<A>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    A: Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    let KeyedRequest { mut parts, key, body } = request;
    let scope = scope_of(layer, &parts)?;
    let body = read_body(body, layer.max_body_bytes).await?;
    let guard = match layer.engine.begin_request(&scope, key, &body).await {
        Ok(RequestAdmission::Owner(guard)) => guard,
        Ok(RequestAdmission::Replay(stored)) => {
            return decode(&stored).map(Ok).ok_or(Problem::ResponseUnreadable);
        }
        Err(rejected) => return Err(Problem::Engine(rejected)),
    };
    parts.extensions.insert(guard.context());
    let request = Request::from_parts(parts, Either::Left(Full::new(body)));
    let max_bytes = layer.max_body_bytes;
    // A client that disconnects does not stop the handler: a retry would run it again.
    let run = async move { finish(inner.call(request).await, guard, max_bytes).await };
    match tokio::spawn(run).await {
        Ok(response) => response,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(Problem::Engine(windlass_engine::Error::ShuttingDown)),
    }
}

/// Stores the response of a success, and releases the key otherwise.
async fn finish<A, E>(
    response: Result<Response<A>, E>,
    guard: RequestGuard,
    max_bytes: usize,
) -> Result<Result<Response<Bytes>, E>, Problem>
where
    A: Body<Data = Bytes>,
    A::Error: Into<BoxError>,
{
    let (parts, body) = match response {
        Ok(response) => response.into_parts(),
        Err(error) => {
            release(guard).await;
            return Ok(Err(error));
        }
    };
    let is_done = is_done(parts.status);
    let response = match read_body(body, max_bytes).await {
        Ok(body) => Response::from_parts(parts, body),
        Err(Problem::BodyTooLong) => return Err(too_long(guard, is_done).await),
        Err(_) => {
            release(guard).await;
            return Err(Problem::ResponseTruncated);
        }
    };
    if is_done {
        let stored = encode(&response);
        if limits::PAYLOAD_BYTES.check(stored.bytes.len()).is_err() {
            return Err(too_long(guard, is_done).await);
        }
        guard.complete(stored).await.map_err(Problem::Engine)?;
    } else {
        release(guard).await;
    }
    Ok(Ok(response))
}

/// Whether the request took effect. Many services report success with `303 See Other`.
fn is_done(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::SEE_OTHER
}

/// A success whose response is too long is stored as an error, so that it is not repeated.
async fn too_long(guard: RequestGuard, is_done: bool) -> Problem {
    if !is_done {
        release(guard).await;
        return Problem::ResponseTooLong;
    }
    let stored = guard.complete(encode(&Problem::ResponseTooLong.to_response())).await;
    stored.map_or_else(Problem::Engine, |()| Problem::ResponseTooLong)
}

async fn release(guard: RequestGuard) {
    if let Err(error) = guard.release().await {
        tracing::warn!(%error, "releasing an idempotency key failed; it expires by its TTL");
    }
}

/// The key of a request: plain, or quoted as the header specification has it.
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

fn scope_of(layer: &IdempotencyLayer, parts: &Parts) -> Result<RequestScope, Problem> {
    let principal = (layer.identify)(parts).ok_or(Problem::UnknownPrincipal)?;
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let scope = RequestScope::new(principal.name, format!("{} {path}", parts.method));
    Ok(scope.tenant(principal.tenant).account(principal.account))
}

async fn read_body<B>(body: B, max_bytes: usize) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, max_bytes).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::BodyTooLong),
        Err(error) => {
            tracing::debug!(%error, "reading a body failed");
            Err(Problem::BodyUnreadable)
        }
    }
}
