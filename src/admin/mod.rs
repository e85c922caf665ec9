//! The admin listener over HTTP/1: metrics, health, and the admin API.
//!
//! A GET changes nothing. `guard` refuses requests that a web page can make a browser send.
//! Not here: the answers themselves (gate). This module has their HTTP and JSON.

mod answer;
mod body;
mod connections;
mod explain;
mod exposition;
mod guard;
mod key;
mod overrides;
mod spend;
mod top;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, VARY, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::yield_now;
use tokio::time::timeout;
use tower::Service;

use crate::gate::{Gate, NewestLive};
use crate::policy::bearer::BearerToken;
use crate::telemetry::{Metrics, OPENMETRICS_TYPE};
use answer::{Answer, problem, text};
use connections::{Activity, Connections};
use exposition::Format;

pub use explain::{BudgetBody, ExplanationBody, LimitBody, QuestionBody};
pub use overrides::{Change, Outcome, Overrides};

/// The conditions that a request must meet. They change on reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Host names of the listener, in lower case, beside its address.
    pub hosts: Box<[Box<str>]>,
    /// The token that every request except probes must have; `None` if no token is required.
    pub token: Option<BearerToken>,
}

/// The service behind the admin listener.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The metrics that /metrics shows.
    pub metrics: Arc<Metrics>,
    /// The gate. Its gauges are updated for each scrape.
    pub gate: Arc<Gate>,
    /// The policy in force, with its state.
    pub live: NewestLive,
    /// Whether /readyz answers 200.
    pub ready: Arc<AtomicBool>,
    /// The listener's address.
    pub address: SocketAddr,
    /// The conditions that a request must meet.
    pub access: Arc<ArcSwap<Access>>,
    /// Overrides set at run time.
    pub overrides: Overrides,
}

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The bound on the life of a connection. It also ends connections that read slowly.
const CONNECTION_LIFE: Duration = Duration::from_mins(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The Prometheus text exposition format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A source of connections to the admin listener.
pub trait Accept {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Serves on `listener` until it is dropped. `open` prepares each connection, for example with a TLS handshake.
pub async fn serve<L, S, F>(listener: L, admin: Admin, open: impl Fn(L::Stream) -> F)
where
    L: Accept,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut connections = Connections::default();
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::error!(%error, "cannot accept on the admin listener");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (opening, metrics) = (timeout(HEAD_TIMEOUT, open(stream)), Arc::clone(&admin.metrics));
        let activity = connections.activity();
        let (admin, of_connection) = (admin.clone(), Arc::clone(&activity));
        let connection = tokio::spawn(async move {
            let opened = opening.await.map_err(io::Error::from).flatten();
            let served = async { converse(opened?, admin, of_connection).await.map_err(io::Error::other) };
            match timeout(CONNECTION_LIFE, served).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "admin connection ended"),
                Err(_) => tracing::debug!("admin connection lasted too long"),
            }
        });
        if connections.add(activity, connection.abort_handle()) {
            metrics.admin_connections_displaced.inc();
        }
        // Lets the connection answer a waiting request before the next connection can displace it.
        yield_now().await;
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    admin: Admin,
    activity: Arc<Activity>,
) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        activity.touch();
        let (answer, activity) = (admin.clone().call(request), Arc::clone(&activity));
        async move {
            let answer = answer.await;
            activity.touch();
            answer
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    http.serve_connection(TokioIo::new(stream), service).await
}

/// The paths, with the methods of each.
const PATHS: [(&str, &[Method]); 8] = [
    ("/metrics", &[Method::GET, Method::HEAD]),
    ("/healthz", &[Method::GET, Method::HEAD]),
    ("/readyz", &[Method::GET, Method::HEAD]),
    ("/v1/top", &[Method::GET, Method::HEAD]),
    ("/v1/explain", &[Method::POST]),
    ("/v1/spend", &[Method::POST]),
    ("/v1/overrides", &[Method::GET, Method::HEAD, Method::POST]),
    ("/spend_ratelimiter_budget", &[Method::POST]),
];

/// Paths that need no token: they reveal no more than a connection does.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

impl<B> Service<Request<B>> for Admin
where
    B: Body<Error: fmt::Display, Data: Send> + Send + 'static,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let admin = self.clone();
        Box::pin(async move { Ok(admin.answer(request).await) })
    }
}

impl Admin {
    async fn answer<B: Body<Error: fmt::Display>>(&self, request: Request<B>) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let access = self.access.load_full();
        if !PROBES.contains(&path) && access.token.as_ref().is_some_and(|token| !token.is_shown(&head.headers)) {
            let mut response =
                problem(StatusCode::UNAUTHORIZED, "Authorization: the token of this listener is required");
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"weir\""));
            return response;
        }
        let Some((_, methods)) = PATHS.iter().find(|(known, _)| *known == path) else {
            let paths = PATHS.map(|(path, _)| path).join(", ");
            return text(StatusCode::NOT_FOUND, format!("the paths are {paths}\n"));
        };
        if !methods.contains(&head.method) {
            let methods = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
            let mut response =
                problem(StatusCode::METHOD_NOT_ALLOWED, &format!("the methods of this path are {methods}"));
            if let Ok(methods) = HeaderValue::try_from(methods) {
                response.headers_mut().insert(ALLOW, methods);
            }
            return response;
        }
        match path {
            "/metrics" => return self.metrics(&head.headers),
            "/healthz" => return text(StatusCode::OK, "ok\n"),
            "/readyz" if self.ready.load(Ordering::Acquire) => return text(StatusCode::OK, "ready\n"),
            "/readyz" => return text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            _ => {}
        }
        if let Some(refusal) = guard::refuse(&head, self.address, &access.hosts) {
            return refusal;
        }
        if path == "/v1/top" {
            return top::answer(&self.gate, &self.live.load(), head.uri.query());
        }
        if path == "/v1/overrides" && head.method != Method::POST {
            return overrides::list(&self.overrides, &self.gate, &self.live.load(), head.uri.query());
        }
        match body::read(body).await {
            Ok(body) if path == "/v1/overrides" => {
                let edits = overrides::EditRequest::read(&self.gate, &self.live.load(), &body);
                match edits {
                    Ok(edits) => edits.apply(&self.overrides).await,
                    Err((status, detail)) => problem(status, &detail),
                }
            }
            Ok(body) if path == "/v1/explain" => explain::answer(&self.gate, &self.live.load(), &body),
            Ok(body) => spend::answer(&self.gate, &self.live.load(), &body),
            Err(refusal) => refusal,
        }
    }

    fn metrics(&self, headers: &HeaderMap) -> Answer {
        self.gate.publish();
        let (rendered, kind) = match exposition::preferred(headers) {
            Format::Prometheus => (self.metrics.render(), METRICS_TYPE),
            Format::OpenMetrics => {
                let rendered = self.metrics.render_openmetrics(self.gate.clock().started());
                (Ok(rendered.into_bytes()), OPENMETRICS_TYPE)
            }
        };
        match rendered {
            Ok(rendered) => {
                let mut response = text(StatusCode::OK, rendered);
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
                response
            }
            Err(error) => {
                tracing::error!(%error, "cannot render the metrics");
                text(StatusCode::INTERNAL_SERVER_ERROR, "cannot render the metrics\n")
            }
        }
    }
}
