//! Fetches one small document with GET. TLS uses the root certificates of the system. Time and length are bounded. A
//! redirect is an error.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::app::exchange::exchange;
use crate::net::Protocol;
use crate::net::tls::{ClientTls, ServerName};

/// The bound on the time from the DNS lookup to the last byte.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The bound on the length. A set of 64 keys has about 50 KB.
const BYTES_MAX: usize = 1 << 20;
const AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

/// The root certificates of the system. The first TLS connection loads them.
#[derive(Default)]
pub(super) struct Trust(OnceLock<Result<ClientTls, String>>);

impl Trust {
    fn tls(&self) -> Result<&ClientTls, String> {
        self.0.get_or_init(|| ClientTls::new(None, None, Protocol::Http1)).as_ref().map_err(Clone::clone)
    }
}

/// Fetches `url`. Error messages do not contain the URL.
pub(super) async fn fetch(url: &Uri, trust: &Trust) -> Result<Vec<u8>, String> {
    timeout(TIMEOUT, connect(url, trust)).await.map_err(|_| "the fetch takes too long".to_owned())?
}

async fn connect(url: &Uri, trust: &Trust) -> Result<Vec<u8>, String> {
    let host = url.host().ok_or("the URL has no host")?;
    let is_tls = url.scheme() == Some(&Scheme::HTTPS);
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let stream = TcpStream::connect((bare, port)).await.map_err(|error| format!("cannot connect: {error}"))?;
    if !is_tls {
        return get(url, stream).await;
    }
    let name = ServerName::new(bare).ok_or("the host of the URL is not a valid name")?;
    let stream = trust.tls()?.connect(&name, stream).await.map_err(|error| format!("no TLS session: {error}"))?;
    get(url, stream).await
}

async fn get(url: &Uri, stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Vec<u8>, String> {
    let authority = url.authority().ok_or("the URL has no host")?;
    let request = Request::get(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(USER_AGENT, AGENT)
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    match exchange(stream, request, BYTES_MAX).await? {
        (StatusCode::OK, body) => Ok(body.to_vec()),
        (status, _) => Err(format!("the status of the response is {status}")),
    }
}
