//! The operators' front door: /metrics, /healthz, /readyz over HTTP/1.
//!
//! Not here: anything that changes something. A GET is all it answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower::Service;

use crate::gate::Gate;
use crate::telemetry::Metrics;

/// What the admin listener is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens; `None` for not at all.
    pub listen: Option<SocketAddr>,
}

/// Answers operators.
#[derive(Clone, Debug)]
pub struct Admin {
    /// What /metrics shows.
    pub metrics: Arc<Metrics>,
    /// Whose gauges are brought up to date for it.
    pub gate: Arc<Gate>,
    /// What /readyz says.
    pub ready: Arc<AtomicBool>,
}

/// Connections served at once; scrapers and probes need few.
const CONNECTIONS_MAX: usize = 64;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The Prometheus text exposition format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves on `listener` for as long as it is polled.
pub async fn serve(listener: TcpListener, admin: Admin) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::error!(%error, "cannot accept on the admin listener");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(admin.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "admin connection ended");
            }
        });
    }
}

impl<B> Service<Request<B>> for Admin {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        std::future::ready(Ok(self.answer(request.method(), request.uri().path())))
    }
}

impl Admin {
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let known = matches!(path, "/metrics" | "/healthz" | "/readyz");
        if known && method != Method::GET && method != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/metrics" => self.metrics(),
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.ready.load(Ordering::Acquire) => text(StatusCode::OK, "ready\n"),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            _ => text(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        self.gate.publish();
        match self.metrics.render() {
            Ok(rendered) => {
                let mut response = Response::new(Full::from(rendered));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
                response
            }
            Err(error) => {
                tracing::error!(%error, "cannot render the metrics");
                text(StatusCode::INTERNAL_SERVER_ERROR, "cannot render the metrics\n")
            }
        }
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
