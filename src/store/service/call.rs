//! One call of gRPC on a connection of HTTP/2.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use prost::Message;
use tokio::time::timeout;

use super::MESSAGE_BYTES_MAX;
use crate::store::backend::{ConnectError, Failure};

/// Makes calls on one connection. Clones use the same connection.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) send: SendRequest<Bytes>,
    /// `http://` or `https://`, with host and port.
    pub(super) origin: Box<str>,
}

/// Why a call has no answer.
pub(super) type CallError = ConnectError;

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

impl Caller {
    /// Makes a call, and waits for its answer.
    pub(super) async fn call<A: Message + Default>(
        &self,
        method: &str,
        question: &impl Message,
    ) -> Result<A, CallError> {
        let uri = format!("{}/weir.v1.charges.Charges/{method}", self.origin);
        let head = Request::builder().method(Method::POST).version(Version::HTTP_2).uri(uri);
        let head = head.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers").body(());
        let head = head.map_err(|error| failed(Failure::Other, &error))?;
        let mut ready = self.send.clone().ready().await.map_err(|error| broken(&error))?;
        let (response, mut body) = ready.send_request(head, false).map_err(|error| broken(&error))?;
        body.send_data(framed(question), true).map_err(|error| broken(&error))?;
        let (head, mut body) = response.await.map_err(|error| broken(&error))?.into_parts();
        if head.status != StatusCode::OK {
            return Err(failed(Failure::Reply, &format!("the answer has status {}", head.status)));
        }
        // An error without an answer has its status in the head.
        status(&head.headers).unwrap_or(Ok(()))?;
        let message = read(&mut body).await?;
        let trailers = body.trailers().await.map_err(|error| broken(&error))?.unwrap_or_default();
        status(&trailers).unwrap_or_else(|| Err(failed(Failure::Reply, "the answer has no status")))?;
        let answer = message.get(PREFIX_BYTES..).ok_or_else(|| failed(Failure::Reply, "the answer is empty"))?;
        A::decode(answer).map_err(|error| failed(Failure::Reply, &error))
    }

    /// Makes a call that no request waits for.
    pub(super) async fn call_within<A: Message + Default>(
        &self,
        limit: Duration,
        method: &str,
        question: &impl Message,
    ) -> Result<A, CallError> {
        timeout(limit, self.call(method, question)).await.unwrap_or_else(|_| Err(CallError::late()))
    }
}

impl CallError {
    /// No answer in time.
    pub(super) fn late() -> Self {
        failed(Failure::Timeout, "no answer in time")
    }
}

fn failed(failure: Failure, text: &(impl ToString + ?Sized)) -> CallError {
    CallError { failure, text: text.to_string() }
}

fn broken(error: &h2::Error) -> CallError {
    let is_busy = error.reason() == Some(Reason::ENHANCE_YOUR_CALM);
    failed(if is_busy { Failure::Busy } else { Failure::Connection }, error)
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    frame.put(message.encode_to_vec().as_slice());
    frame.freeze()
}

/// The bytes of a body, up to the bound of a message.
async fn read(body: &mut RecvStream) -> Result<Bytes, CallError> {
    let mut whole = Bytes::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|error| broken(&error))?;
        // It errs only if more is released than was received.
        let _ = body.flow_control().release_capacity(piece.len());
        if whole.len() + piece.len() > PREFIX_BYTES + MESSAGE_BYTES_MAX {
            return Err(failed(Failure::Reply, "the answer is too long"));
        }
        whole = if whole.is_empty() { piece } else { [whole, piece].concat().into() };
    }
    Ok(whole)
}

/// The status of a call, as its fields have it; `None` if they have none.
fn status(fields: &HeaderMap) -> Option<Result<(), CallError>> {
    let code = fields.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(2);
    let failure = match code {
        0 => return Some(Ok(())),
        4 => Failure::Timeout,
        7 => Failure::Permission,
        8 => Failure::Busy,
        14 => Failure::Connection,
        16 => Failure::Login,
        _ => Failure::Other,
    };
    let text = fields.get("grpc-message").map(|text| decoded(text.as_bytes()));
    Some(Err(failed(failure, &text.unwrap_or_else(|| format!("status {code} of gRPC")))))
}

/// A percent-encoded text.
fn decoded(text: &[u8]) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let [first, behind @ ..] = rest {
        let code = behind.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = behind.get(byte.map_or(0, |_| 2)..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_kinds() {
        for (code, expected) in [
            ("0", None),
            ("4", Some(Failure::Timeout)),
            ("7", Some(Failure::Permission)),
            ("8", Some(Failure::Busy)),
            ("12", Some(Failure::Other)),
            ("14", Some(Failure::Connection)),
            ("16", Some(Failure::Login)),
            ("x", Some(Failure::Other)),
        ] {
            let fields = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), code.parse().unwrap())]);
            let found = status(&fields).unwrap().err().map(|error| error.failure);
            assert_eq!(found, expected, "{code}");
        }
        assert!(status(&HeaderMap::new()).is_none());
    }

    #[test]
    fn texts_are_decoded() {
        for (text, expected) in [("a%20b", "a b"), ("%C3%A4%", "ä%"), ("%2", "%2"), ("%zz%41", "%zzA"), ("", "")] {
            assert_eq!(decoded(text.as_bytes()), expected);
        }
    }
}
