//! Fetches one document with GET, or sends one with POST, over HTTP/1.1 on a connection of its own. A redirect is an answer like others.

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::exchange::exchange;
use crate::transport::net::Protocol;
use crate::transport::net::tls::{ClientTls, ServerName};

const AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

/// The root certificates of the system, as they were when a TLS connection first found some.
#[derive(Default)]
pub(super) struct Trust(OnceLock<ClientTls>);

impl Trust {
    /// TLS for `url`; none unless it is of https.
    ///
    /// # Errors
    /// The system has no certificates.
    pub(super) fn tls_for(&self, url: &Uri) -> Result<Option<&ClientTls>, String> {
        if url.scheme() != Some(&Scheme::HTTPS) {
            return Ok(None);
        }
        if self.0.get().is_none() {
            let _ = self.0.set(ClientTls::new(None, None, Protocol::Http1)?); // another may have loaded them meanwhile
        }
        Ok(self.0.get())
    }
}

/// Sends a request to `url`: its method, further fields and body. `tls` is for https. Error messages do not contain the URL.
///
/// # Errors
/// Why there is no response, or that its body is longer than `bytes_max`.
pub(super) async fn send(
    url: &Uri,
    tls: Option<&ClientTls>,
    request: (Method, HeaderMap, Bytes),
    bytes_max: usize,
) -> Result<Response<Bytes>, String> {
    let host = url.host().ok_or("the URL has no host")?;
    let is_tls = url.scheme() == Some(&Scheme::HTTPS);
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let stream = TcpStream::connect((bare, port)).await.map_err(|error| format!("cannot connect: {error}"))?;
    if !is_tls {
        return ask(url, stream, request, bytes_max).await;
    }
    let name = ServerName::new(bare).ok_or("the host of the URL is not a valid name")?;
    let tls = tls.ok_or("the URL needs TLS")?;
    let stream = tls.connect(&name, stream).await.map_err(|error| format!("no TLS session: {error}"))?;
    ask(url, stream, request, bytes_max).await
}

async fn ask(
    url: &Uri,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    (method, headers, body): (Method, HeaderMap, Bytes),
    bytes_max: usize,
) -> Result<Response<Bytes>, String> {
    let authority = url.authority().ok_or("the URL has no host")?;
    let mut request = Request::builder()
        .method(method)
        .uri(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(USER_AGENT, HeaderValue::from_static(AGENT))
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    request.headers_mut().extend(headers);
    exchange(stream, request, bytes_max).await
}
