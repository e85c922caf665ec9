//! One GET for a small document: over TLS with the system's roots, bounded in time and length, and of one place: what
//! redirects is a failure.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// From the look-up of the name to the last byte.
const AT_MOST: Duration = Duration::from_secs(10);
/// A set of 64 keys has some 50 KB.
const BYTES_MAX: usize = 1 << 20;
const AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

/// Whose certificates are believed: those that the system believes. Read when the first is looked at.
#[derive(Default)]
pub(super) struct Trust(OnceLock<Result<Arc<ClientConfig>, String>>);

impl Trust {
    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let make = || {
            let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
            let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
            let builder = builder.with_platform_verifier().map_err(|error| error.to_string())?;
            Ok(Arc::new(builder.with_no_client_auth()))
        };
        self.0.get_or_init(make).clone()
    }
}

/// What is at `url`. Errors do not repeat it.
pub(super) async fn fetch(url: &Uri, trust: &Trust) -> Result<Vec<u8>, String> {
    timeout(AT_MOST, connect(url, trust)).await.map_err(|_| "it takes too long".to_owned())?
}

async fn connect(url: &Uri, trust: &Trust) -> Result<Vec<u8>, String> {
    let host = url.host().ok_or("it has no host")?;
    let is_tls = url.scheme() == Some(&Scheme::HTTPS);
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let stream = TcpStream::connect((bare, port)).await.map_err(|error| format!("cannot connect: {error}"))?;
    if !is_tls {
        return get(url, stream).await;
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(|_| "its host is not a name")?;
    let connector = TlsConnector::from(trust.config()?);
    let stream = connector.connect(name, stream).await.map_err(|error| format!("no TLS session: {error}"))?;
    get(url, stream).await
}

async fn get(url: &Uri, stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Vec<u8>, String> {
    let broke = |error: hyper::Error| format!("the answer broke off: {error}");
    let (mut send, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let authority = url.authority().ok_or("it has no host")?;
    let request = Request::get(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(USER_AGENT, AGENT)
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = async {
        let response = send.send_request(request).await.map_err(broke)?;
        if response.status() != StatusCode::OK {
            return Err(format!("the answer is {}", response.status()));
        }
        let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
        Ok(body.map_err(|error| format!("the answer is no good: {error}"))?.to_bytes().to_vec())
    };
    let driven = async {
        let _ = connection.await; // what is wrong with it, the answer says
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = driven => never,
    }
}
