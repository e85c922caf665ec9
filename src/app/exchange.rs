//! One HTTP/1.1 request on a connection of its own, for a whole response or a stream.

use std::error::Error;
use std::future::pending;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// Sends `request` on `stream`, and returns the response. Errs if its body is longer than `bytes_max` bytes.
pub(crate) async fn exchange<S, B>(stream: S, request: Request<B>, bytes_max: usize) -> Result<Response<Bytes>, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| broke(&error))?;
    let answer = async { whole(send.send_request(request).await.map_err(|error| broke(&error))?, bytes_max).await };
    tokio::select! {
        answer = answer => answer,
        never = driven(connection) => never,
    }
}

/// The end of a stream.
#[derive(Debug)]
pub(crate) enum Streamed {
    /// The reader wants no more.
    Stopped,
    /// The server has ended the stream.
    Ended,
    /// The response is no success.
    Refused(Response<Bytes>),
}

/// Sends `request` on `stream`, and gives each piece of the body of a successful response to `take`, until `take` breaks
/// or the body ends. Errs if nothing comes for `silence_max`, or if the body of another response is longer than
/// `bytes_max` bytes.
pub(crate) async fn follow<S, B>(
    stream: S,
    request: Request<B>,
    (silence_max, bytes_max): (Duration, usize),
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Streamed, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let silent = |_| "it does not answer in time".to_owned();
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| broke(&error))?;
    let answer = async {
        let response =
            timeout(silence_max, send.send_request(request)).await.map_err(silent)?.map_err(|error| broke(&error))?;
        if !response.status().is_success() {
            let refusal = timeout(silence_max, whole(response, bytes_max)).await.map_err(silent)??;
            return Ok(Streamed::Refused(refusal));
        }
        let mut body = response.into_body();
        while let Some(frame) = timeout(silence_max, body.frame()).await.map_err(silent)? {
            let data = frame.map_err(|error| broke(&error))?.into_data().unwrap_or_default();
            if take(&data).is_break() {
                return Ok(Streamed::Stopped);
            }
        }
        Ok(Streamed::Ended)
    };
    tokio::select! {
        answer = answer => answer,
        never = driven(connection) => never,
    }
}

/// Drives a connection for ever. The response reports its error.
async fn driven<T>(connection: impl Future) -> T {
    let _ = connection.await;
    pending().await
}

fn broke(error: &hyper::Error) -> String {
    format!("the answer broke off: {error}")
}

/// The response with its whole body.
async fn whole(response: Response<Incoming>, bytes_max: usize) -> Result<Response<Bytes>, String> {
    let (head, body) = response.into_parts();
    let invalid = |error| format!("the body of the answer with status {} is invalid: {error}", head.status);
    let body = Limited::new(body, bytes_max).collect().await.map_err(invalid)?.to_bytes();
    Ok(Response::from_parts(head, body))
}
