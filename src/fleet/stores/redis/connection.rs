//! Opens connections to nodes: the name, the socket, TLS, and the login.
//!
//! The name of a node is looked up for each connection. Not here: when to connect, and timeouts.

use std::io;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisError, cmd};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::engine::store::backend::Failure;
use crate::fleet::stores::driver::{ConnectError, Login, NodeAddress, Opened, connect};

/// Calls that wait for a place in the buffer of a connection make the callers wait; so the buffer has enough places.
const CALLS_MAX: usize = 4096;

/// Bytes that are written at once, if as many calls are made in one turn of the event loop.
const WRITE_BYTES: usize = 64 * 1024;

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
    pub(super) async fn open(&self, node: &NodeAddress) -> Result<Opened<MultiplexedConnection>, ConnectError> {
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

    async fn log_in<S>(&self, stream: S) -> Result<Opened<MultiplexedConnection>, ConnectError>
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

impl ConnectError {
    /// The address is not known.
    pub(super) fn no_address() -> Self {
        Self { failure: Failure::Connection, text: "no sentinel has told the address".into() }
    }

    /// The error of a server, or of the connection to it.
    pub(super) fn redis(error: &RedisError) -> Self {
        Self { failure: Failure::of(error), text: error.to_string() }
    }
}
