//! One connection over HTTP/2 to the first server that answers.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::Authority;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::body::Body;
use tower::Service;

use crate::fleet::stores::driver::Login;
use crate::transport::net::tls::{ClientTls, ServerName};

/// The bound on the time to connect to one server, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval of pings. etcd closes connections that ping more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
/// The time after which a ping without an answer ends the connection.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// The servers of one etcd, and the credentials for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdServers {
    /// Host and port of each server; at least one.
    pub addresses: Vec<Authority>,
    /// TLS over HTTP/2 to all servers; `None` for plain connections.
    pub tls: Option<ClientTls>,
    /// User and password. Without a user etcd gets none.
    pub login: Login,
}

/// The sending half of a connection, as clients of tonic need it. The connection ends with the last copy.
#[derive(Clone, Debug)]
pub(in crate::fleet) struct Sender(pub(in crate::fleet) SendRequest<Body>);

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) sender: Sender,
    /// The address of this end.
    pub(super) local: IpAddr,
}

impl Link {
    /// Connects to the servers in turn, from number `first` on, until one of them accepts.
    ///
    /// # Errors
    /// Why each server cannot be used.
    pub(super) async fn open(servers: &EtcdServers, first: usize) -> Result<(Self, Uri), String> {
        let mut reasons = Vec::new();
        let count = servers.addresses.len();
        for address in servers.addresses.iter().cycle().skip(first % count.max(1)).take(count) {
            let reason = match timeout(CONNECT_TIMEOUT, connect(address, servers.tls.as_ref())).await {
                Ok(Ok(link)) => return Ok((link, origin(address, servers.tls.is_some())?)),
                Ok(Err(reason)) => reason,
                Err(_) => "it does not answer in time".to_owned(),
            };
            reasons.push(format!("{address}: {reason}"));
        }
        Err(reasons.join("; "))
    }
}

/// Scheme and authority of requests.
fn origin(address: &Authority, is_tls: bool) -> Result<Uri, String> {
    let scheme = if is_tls { "https" } else { "http" };
    let origin = Uri::builder().scheme(scheme).authority(address.clone()).path_and_query("/").build();
    origin.map_err(|error| error.to_string())
}

async fn connect(address: &Authority, tls: Option<&ClientTls>) -> Result<Link, String> {
    let stream = TcpStream::connect(address.as_str()).await.map_err(|error| error.to_string())?;
    let local = stream.local_addr().map_err(|error| error.to_string())?.ip();
    let _ = stream.set_nodelay(true); // only a matter of speed
    let Some(tls) = tls else { return handshake(stream, local).await };
    let name = ServerName::new(address.host()).ok_or("the host is not a valid name")?;
    let stream = tls.connect(&name, stream).await.map_err(|error| format!("no TLS session: {error}"))?;
    handshake(stream, local).await
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    local: IpAddr,
) -> Result<Link, String> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_TIMEOUT);
    builder.keep_alive_while_idle(true);
    let (send, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(async {
        let _ = connection.await; // the calls report the error
    });
    Ok(Link { sender: Sender(send), local })
}

impl Service<Request<Body>> for Sender {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
