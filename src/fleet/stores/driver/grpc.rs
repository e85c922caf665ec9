//! Calls of gRPC on a connection of HTTP/2, with one message each way.
//!
//! Not here: the messages, and when to connect (`link`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use h2::{Reason, RecvStream};
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::select;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::connect::{ConnectError, connect};
use super::link::Opened;
use super::settings::NodeAddress;
use crate::engine::store::backend::Failure;

/// Bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The reason of etcd for status 8 if it takes no write any more. It has others when it is busy.
const NO_SPACE: &str = "database space exceeded";

/// Makes calls on one connection. Clones use the same connection.
#[derive(Clone, Debug)]
pub(in crate::fleet::stores) struct Caller {
    send: SendRequest<Bytes>,
    /// `http://` or `https://`, with host and port.
    origin: Box<str>,
    /// The proof of a login, as etcd reads it.
    pub(in crate::fleet::stores) token: Option<HeaderValue>,
    /// The number of the server, if there are several.
    pub(in crate::fleet::stores) server: usize,
    /// Notified when the server refuses the token, which ends the connection: the next one has another token.
    refused: Arc<Notify>,
}

/// Why a call has no answer.
pub(in crate::fleet::stores) type CallError = ConnectError;

/// Connects to the server of gRPC at this host and port. `tls` is `None` for plain connections.
pub(in crate::fleet::stores) async fn open(
    (host, port): (&str, u16),
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Opened<Caller>, ConnectError> {
    let socket = connect(host, port).await?;
    let origin = |scheme| format!("{scheme}://{}", NodeAddress::tcp(host, port)).into();
    let Some(tls) = tls else { return begin(socket, origin("http")).await };
    let name = ServerName::try_from(host).map_err(|error| ConnectError::io(&io::Error::other(error)))?;
    let session = TlsConnector::from(Arc::clone(tls)).connect(name.to_owned(), socket).await;
    let session = session.map_err(|error| ConnectError::io(&error))?;
    if session.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(ConnectError::io(&io::Error::other("the server speaks no HTTP/2")));
    }
    begin(session, origin("https")).await
}

/// Begins HTTP/2 on a stream.
pub(in crate::fleet::stores) async fn begin<S>(stream: S, origin: Box<str>) -> Result<Opened<Caller>, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = client::Builder::new().enable_push(false).handshake::<_, Bytes>(stream).await;
    let (send, connection) = begun.map_err(|error| broken(&error))?;
    let refused = Arc::new(Notify::new());
    let caller = Caller { send, origin, token: None, server: 0, refused: Arc::clone(&refused) };
    let driver = async move {
        select! {
            () = refused.notified() => tracing::debug!("a connection to a store ended with its token"),
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "a connection to a store ended");
            }
        }
    };
    Ok(Opened { connection: caller, driver: Box::pin(driver) })
}

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

impl Caller {
    /// Calls `method`, which is the name of its service and its own one, and waits for the answer. A token that has ended
    /// ends the connection.
    pub(in crate::fleet::stores) async fn call<A: Message + Default>(
        &self,
        method: &str,
        question: &impl Message,
    ) -> Result<A, CallError> {
        self.ask(method, question).await.map_err(|error| {
            if self.token.is_none() || !is_token_refused(&error.text) {
                return error;
            }
            self.refused.notify_one();
            CallError { failure: Failure::Broken, ..error }
        })
    }

    async fn ask<A: Message + Default>(&self, method: &str, question: &impl Message) -> Result<A, CallError> {
        let uri = format!("{}/{method}", self.origin);
        let head = Request::builder().method(Method::POST).version(Version::HTTP_2).uri(uri);
        let head = head.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers").body(());
        let mut head = head.map_err(|error| failed(Failure::Other, &error))?;
        if let Some(token) = &self.token {
            head.headers_mut().insert("token", token.clone());
        }
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
    pub(in crate::fleet::stores) async fn call_within<A: Message + Default>(
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
    pub(in crate::fleet::stores) fn late() -> Self {
        failed(Failure::Timeout, "no answer in time")
    }
}

/// Whether etcd refuses a call because its token is unknown, has ended, or is older than a change of users and roles.
/// Clients tell errors of etcd by their texts (`rpctypes/error.go`).
pub(in crate::fleet) fn is_token_refused(text: &str) -> bool {
    ["invalid auth token", "revision of auth store is old"].iter().any(|reason| text.contains(reason))
}

fn failed(failure: Failure, text: &(impl ToString + ?Sized)) -> CallError {
    CallError { failure, text: text.to_string() }
}

fn broken(error: &h2::Error) -> CallError {
    let failure = match error.reason() {
        Some(Reason::ENHANCE_YOUR_CALM) => Failure::Busy,
        Some(_) if error.is_reset() => Failure::Connection,
        _ => Failure::Broken,
    };
    failed(failure, error)
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
    let text = fields.get("grpc-message").map(|text| decoded(text.as_bytes()));
    let failure = match code {
        0 => return Some(Ok(())),
        4 => Failure::Timeout,
        7 => Failure::Permission,
        8 if text.as_ref().is_some_and(|text| text.contains(NO_SPACE)) => Failure::OutOfMemory,
        8 => Failure::Busy,
        14 => Failure::Connection,
        16 => Failure::Login,
        _ => Failure::Other,
    };
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
    use h2::server;
    use http::Response;

    use super::*;

    /// The failure of a call with this token, and whether it ends the connection. The server answers with this status.
    async fn refused(token: Option<&str>, code: &'static str, text: &'static str) -> (Failure, bool) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let mut connection = server::handshake(theirs).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let head = Response::builder().header("grpc-status", code).header("grpc-message", text);
                respond.send_response(head.body(()).unwrap(), true).unwrap();
            }
        });
        let Opened { mut connection, driver } = begin(ours, "http://test".into()).await.unwrap();
        let driver = tokio::spawn(driver);
        connection.token = token.map(|token| token.parse().unwrap());
        let failure = connection.call::<()>("a.B/C", &()).await.unwrap_err().failure;
        (failure, timeout(Duration::from_mins(1), driver).await.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_token() {
        for (token, code, text, expected) in [
            (Some("a"), "16", "etcdserver: invalid auth token", (Failure::Broken, true)),
            (Some("a"), "3", "etcdserver: revision of auth store is old", (Failure::Broken, true)),
            (Some("a"), "7", "etcdserver: permission denied", (Failure::Permission, false)),
            (None, "16", "etcdserver: invalid auth token", (Failure::Login, false)),
        ] {
            assert_eq!(refused(token, code, text).await, expected, "{token:?} {text}");
        }
    }

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
        let full = [("grpc-status", "8"), ("grpc-message", "etcdserver: mvcc: database space exceeded")];
        let fields = full.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        let found = status(&HeaderMap::from_iter(fields)).unwrap().err().map(|error| error.failure);
        assert_eq!(found, Some(Failure::OutOfMemory));
        assert!(status(&HeaderMap::new()).is_none());
    }

    #[test]
    fn texts_are_decoded() {
        for (text, expected) in [("a%20b", "a b"), ("%C3%A4%", "ä%"), ("%2", "%2"), ("%zz%41", "%zzA"), ("", "")] {
            assert_eq!(decoded(text.as_bytes()), expected);
        }
    }
}
