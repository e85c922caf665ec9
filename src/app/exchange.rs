//! One HTTP/1.1 request on a connection of its own.

use std::error::Error;
use std::future::pending;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends `request` on `stream`, and returns the response. Errs if its body is longer than `bytes_max` bytes.
pub(crate) async fn exchange<S, B>(stream: S, request: Request<B>, bytes_max: usize) -> Result<Response<Bytes>, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let broke = |error: hyper::Error| format!("the answer broke off: {error}");
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let answer = async {
        let response = send.send_request(request).await.map_err(broke)?;
        let (head, body) = response.into_parts();
        let invalid = |error| format!("the body of the answer with status {} is invalid: {error}", head.status);
        let body = Limited::new(body, bytes_max).collect().await.map_err(invalid)?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    let driven = async {
        let _ = connection.await; // `answer` reports the error
        pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = driven => never,
    }
}
