//! Opens connections to nodes: the name, the socket, TLS, and the login.
//!
//! The name of a node is looked up for each connection. Not here: when to connect, and timeouts.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisError, cmd};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::failure::Failure;
use super::settings::{Login, NodeAddress};

/// Calls that wait for a place in the buffer of a connection make the callers wait; so the buffer has enough places.
const CALLS_MAX: usize = 4096;

/// Bytes that are written at once, if as many calls are made in one turn of the event loop.
const WRITE_BYTES: usize = 64 * 1024;

/// The longest time that a connection may take. Requests wait for one no longer than `timeout`.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The time after which the kernel ends a connection whose peer does not acknowledge.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);

/// A connection and the future that drives it. The connection ends when the future does, or is dropped.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Why no connection could be opened: the kind, and what a log line says.
#[derive(Clone, Debug)]
pub(super) struct ConnectError {
    pub(super) failure: Failure,
    pub(super) text: String,
}

/// Opens the connections of one store.
#[derive(Clone)]
pub(super) struct Connector {
    login: RedisConnectionInfo,
    tls: Option<Arc<ClientConfig>>,
    /// The name that `CLIENT LIST` shows.
    client_name: Arc<str>,
}

impl Connector {
    /// `tls` is `None` for plain connections.
    pub(super) fn new(login: &Login, tls: Option<Arc<ClientConfig>>, client_name: Arc<str>) -> Self {
        let mut info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        if let Some(user) = &login.user {
            info = info.set_username(user);
        }
        if let Some(password) = &login.password {
            info = info.set_password(password.reveal());
        }
        Self { login: info, tls, client_name }
    }

    /// Opens a connection to the first address of `node` that accepts one, and logs in. A Unix socket has no TLS.
    pub(super) async fn open(&self, node: &NodeAddress) -> Result<Opened, ConnectError> {
        let (host, port) = match node {
            NodeAddress::Tcp { host, port } => (&**host, *port),
            NodeAddress::Unix(path) => {
                let socket = UnixStream::connect(path).await.map_err(|error| ConnectError::io(&error))?;
                return self.log_in(socket).await;
            }
        };
        let socket = connect(host, port).await?;
        let Some(tls) = &self.tls else { return self.log_in(socket).await };
        let name = ServerName::try_from(host).map_err(|error| ConnectError::io(&io::Error::other(error)))?;
        let session = TlsConnector::from(Arc::clone(tls)).connect(name.to_owned(), socket).await;
        self.log_in(session.map_err(|error| ConnectError::io(&error))?).await
    }

    async fn log_in<S>(&self, stream: S) -> Result<Opened, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None) // a late reply is still needed
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(CALLS_MAX)
            .set_write_backpressure_boundary(WRITE_BYTES);
        let opened = MultiplexedConnection::new_with_config(&self.login, stream, config).await;
        let (mut connection, driver) = opened.map_err(|error| ConnectError::redis(&error))?;
        let mut name = cmd("CLIENT");
        name.arg("SETNAME").arg(&*self.client_name).set_no_response(true);
        // A user without the right to name its connection may still use it.
        let _ = connection.send_packed_command(&name).await;
        Ok(Opened { connection, driver: Box::pin(driver) })
    }
}

/// Connects to the first address of `host` that accepts a connection.
async fn connect(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let addresses = lookup_host((host, port)).await.map_err(|error| ConnectError::io(&error))?;
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(socket) => {
                // Both only save time.
                let _ = socket.set_nodelay(true);
                let _ = SockRef::from(&socket).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
                return Ok(socket);
            }
            Err(failed) => error = failed,
        }
    }
    Err(ConnectError::io(&error))
}

impl ConnectError {
    /// No connection in time.
    pub(super) fn timeout() -> Self {
        Self { failure: Failure::Timeout, text: "no connection in time".into() }
    }

    /// A connection that was opened, and failed at once.
    pub(super) fn of(failure: Failure) -> Self {
        Self { failure, text: failure.label().into() }
    }

    /// The address is not known.
    pub(super) fn no_address() -> Self {
        Self { failure: Failure::Connection, text: "no sentinel has told the address".into() }
    }

    fn io(error: &io::Error) -> Self {
        Self { failure: Failure::Connection, text: error.to_string() }
    }

    fn redis(error: &RedisError) -> Self {
        Self { failure: Failure::of(error), text: error.to_string() }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("client_name", &self.client_name).finish_non_exhaustive()
    }
}
