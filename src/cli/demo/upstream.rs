//! The service of the demo: returns the request that it received.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpListener;

/// The echoed parts of a request.
#[derive(Serialize)]
struct Echo<'r> {
    method: &'r str,
    path: &'r str,
    host: Option<&'r str>,
    user_agent: Option<&'r str>,
    x_forwarded_for: Option<&'r str>,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Serves on a listener of the standard library.
pub(super) async fn serve_on(listener: std::net::TcpListener) {
    match TcpListener::from_std(listener) {
        Ok(listener) => serve(listener).await,
        Err(error) => tracing::error!(%error, "cannot serve behind Weir"),
    }
}

/// Serves on `listener` until it is dropped. Only Weir in the same process connects.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection of the demo's service ended");
            }
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = |name| text(request.headers(), name);
    let echo = Echo {
        method: request.method().as_str(),
        path: request.uri().path(),
        host: text(HOST),
        user_agent: text(USER_AGENT),
        x_forwarded_for: text(X_FORWARDED_FOR),
    };
    let mut body = serde_json::to_vec_pretty(&echo).unwrap_or_default();
    body.push(b'\n');
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
