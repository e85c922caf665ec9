//! Bodies that operators send: JSON, bounded in length and time.

use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use bytes::Buf;
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::answer::{Answer, problem};

/// Things asked for in one array.
pub(super) const BATCH_MAX: usize = 1000;
/// Bytes of a body. Each of so many things can have 524.
pub(super) const BODY_BYTES_MAX: usize = 512 * 1024;
/// Bytes of one that is too long, read before it is refused: a client that is still sending would not see the answer.
const DISCARDED_BYTES_MAX: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);

/// The JSON of a body, or what is wrong with it.
pub(super) async fn read<B: Body<Error: Display>>(body: B) -> Result<Value, Answer> {
    let bad = |detail: &str| problem(StatusCode::BAD_REQUEST, detail);
    let bytes = match timeout(TIMEOUT, collect(body)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(detail)) => return Err(bad(&detail)),
        Err(_) => return Err(problem(StatusCode::REQUEST_TIMEOUT, "the body does not arrive")),
    };
    serde_json::from_slice(&bytes).map_err(|error| bad(&format!("this is no JSON: {error}")))
}

/// What an object says. A list of the same values in the order of some fields is none.
pub(super) fn object<'v, T: Deserialize<'v>>(asked: &'v Value) -> Result<T, String> {
    if !asked.is_object() {
        return Err("expected an object".to_owned());
    }
    T::deserialize(asked).map_err(|error| error.to_string())
}

async fn collect<B: Body<Error: Display>>(body: B) -> Result<Vec<u8>, String> {
    let mut body = pin!(body);
    let (mut bytes, mut discarded) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the body broke off: {error}"))?;
        let Ok(mut data) = frame.into_data() else { continue };
        if discarded == 0 && bytes.len() + data.remaining() <= BODY_BYTES_MAX {
            while data.has_remaining() {
                let piece = data.chunk();
                bytes.extend_from_slice(piece);
                data.advance(piece.len());
            }
            continue;
        }
        discarded += data.remaining();
        if discarded > DISCARDED_BYTES_MAX {
            break;
        }
    }
    if discarded > 0 { Err(format!("the body is longer than {BODY_BYTES_MAX} bytes")) } else { Ok(bytes) }
}
