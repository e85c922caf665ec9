//! One request out, the head of one response back.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::super::body::{Progress, RequestBody};
use super::super::settings::Timeouts;
use super::answer::UpstreamBody;
use super::connection::{ConnectError, Connection};
use super::pool::Pool;
use crate::gate::Charged;
use crate::time;

/// Why there is no response.
#[derive(Debug)]
pub(in super::super) enum ExchangeError {
    /// No connection in time.
    ConnectTimeout,
    /// No connection.
    Connect(Box<dyn Error + Send + Sync>),
    /// The upstream broke off, or did not speak HTTP.
    Broken(hyper::Error),
    /// The upstream changed to a protocol that nobody asked for.
    Switched,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The client did not send its body in time.
    ClientTimeout,
    /// The client's body broke off, or its framing did.
    ClientBroken,
}

/// A response whose body is still with the upstream.
pub(in super::super) struct Exchanged {
    pub(in super::super) response: Response<UpstreamBody>,
    /// When the request was handed to the connection.
    pub(in super::super) handed_over: Instant,
}

/// Sends the request in `slot` on an idle connection or a new one. `charged` is kept from the moment bytes may
/// have been sent.
///
/// A request that an idle connection did not take, because it was closing, goes to the next one. One that it took and
/// broke off without a byte of an answer goes out once more, on a new connection, if it is safe and has no body (RFC
/// 9110, section 9.2.2): services close idle connections whenever they like, also just then.
pub(in super::super) async fn exchange(
    pool: &Rc<Pool>,
    slot: &mut Option<Request<RequestBody>>,
    timeouts: &Timeouts,
    charged: &mut Charged<'_>,
) -> Result<Exchanged, ExchangeError> {
    let mut is_repeated = false;
    loop {
        let mut connection = match pool.take().filter(|_| !is_repeated) {
            Some(connection) => connection,
            None => pool.connect().await.map_err(ExchangeError::from)?,
        };
        let Some(request) = slot.take() else { return Err(ExchangeError::Connect("there is no request".into())) };
        let progress = Rc::clone(request.body().progress());
        charged.keep(true);
        let handed_over = time::instant_now();
        let total_at = timeouts.total.map(|total| handed_over + total);
        let head = Head { progress: &progress, timeouts, total_at, frames: 0, since: handed_over };
        let is_reused = connection.idle_since.take().is_some();
        let spare = if is_reused { Spare::of(&request) } else { None };
        let answer = connection.send(request);
        match head.receive(&mut connection, answer).await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return Err(ExchangeError::Switched);
            }
            Ok(response) => {
                let body_idle = timeouts.body_idle;
                let wrap = |body| {
                    UpstreamBody::new(body, connection, Rc::clone(pool), Rc::clone(&progress), body_idle, total_at)
                };
                return Ok(Exchanged { response: response.map(wrap), handed_over });
            }
            Err(Failure::Unsent(unsent)) if is_reused => {
                charged.keep(false);
                *slot = Some(*unsent);
            }
            Err(Failure::Unsent(_)) => {
                charged.keep(false);
                return Err(ExchangeError::Connect("closed before the request was sent".into()));
            }
            Err(Failure::Error(ExchangeError::Broken(error))) => match spare {
                Some(spare) if !error.is_parse() => {
                    is_repeated = true;
                    *slot = Some(spare.into_request());
                }
                _ => return Err(ExchangeError::Broken(error)),
            },
            Err(Failure::Error(error)) => return Err(error),
        }
    }
}

/// What it takes to send a request once more.
struct Spare {
    method: Method,
    target: Uri,
    headers: HeaderMap,
}

impl Spare {
    /// None if it must not be sent twice.
    fn of(request: &Request<RequestBody>) -> Option<Box<Self>> {
        let may_repeat = request.method().is_safe() && request.body().is_end_stream();
        may_repeat.then(|| {
            let (method, target) = (request.method().clone(), request.uri().clone());
            Box::new(Self { method, target, headers: request.headers().clone() })
        })
    }

    fn into_request(self: Box<Self>) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::empty());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.target;
        *request.headers_mut() = self.headers;
        request
    }
}

/// What went wrong with an exchange that had a connection.
enum Failure {
    /// Nothing of the request was sent.
    Unsent(Box<Request<RequestBody>>),
    Error(ExchangeError),
}

/// The wait for the head of a response.
struct Head<'a> {
    progress: &'a Progress,
    timeouts: &'a Timeouts,
    total_at: Option<Instant>,
    /// Pieces of the request's body seen to go out, and when the last one did.
    frames: u64,
    since: Instant,
}

impl Head<'_> {
    async fn receive<F>(mut self, connection: &mut Connection, answer: F) -> Result<Response<Incoming>, Failure>
    where
        F: Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>>,
    {
        let mut answer = pin!(answer);
        poll_fn(|cx| {
            connection.drive(cx);
            self.poll(cx, connection, answer.as_mut())
        })
        .await
    }

    fn poll<F>(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        answer: Pin<&mut F>,
    ) -> Poll<Result<Response<Incoming>, Failure>>
    where
        F: Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>>,
    {
        match answer.poll(cx) {
            Poll::Ready(Ok(response)) => return Poll::Ready(Ok(response)),
            Poll::Ready(Err(mut error)) => {
                let failure = match error.take_message() {
                    Some(request) => Failure::Unsent(Box::new(request)),
                    None if self.progress.is_broken.get() => Failure::Error(ExchangeError::ClientBroken),
                    None => Failure::Error(ExchangeError::Broken(error.into_error())),
                };
                return Poll::Ready(Err(failure));
            }
            Poll::Pending => {}
        }
        if self.frames != self.progress.frames.get() {
            self.frames = self.progress.frames.get();
            self.since = time::instant_now();
        }
        let awaits_client = self.progress.awaits_client.get();
        let (allowed, error) = if awaits_client {
            (self.timeouts.body_idle, ExchangeError::ClientTimeout)
        } else {
            (self.timeouts.response_head, ExchangeError::UpstreamTimeout)
        };
        let head_at = self.since + allowed;
        let at = self.total_at.map_or(head_at, |total_at| total_at.min(head_at));
        connection.poll_deadline(cx, at).map(|()| Err(Failure::Error(error)))
    }
}

impl From<ConnectError> for ExchangeError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Timeout => Self::ConnectTimeout,
            ConnectError::Failed(error) => Self::Connect(error),
        }
    }
}
