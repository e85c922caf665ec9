//! Services that speak HTTP/2.

mod attacks;
mod endings;
mod passes;
mod streams;

use bytes::Bytes;
use http::Response;

use crate::support::{Call, H2Service, NEVER, Weir};

/// One in front of `service`, with one worker, so that its requests share what they can.
pub fn alone(service: &H2Service, more: &str, rest: &str) -> Weir {
    let text = Weir::text(&format!("{}{NEVER}{rest}", service.upstream(more)));
    Weir::start_as(&text.replace("workers = 2", "workers = 1"))
}

/// Answers with the request's body and its trailers.
pub async fn mirror(mut call: Call) {
    let (body, trailers) = call.read().await;
    let mut stream = call.begin(Response::builder().header("x-len", body.len()));
    let is_all = trailers.is_none();
    if body.is_empty() && is_all {
        let _ = stream.send_data(Bytes::new(), true);
    } else if crate::support::send_all(&mut stream, body.into(), is_all).await
        && let Some(trailers) = trailers
    {
        let _ = stream.send_trailers(trailers);
    }
}
