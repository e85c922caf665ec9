//! Connections of TCP to the servers of stores. The name is looked up for each connection.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::error::Elapsed;

use crate::engine::store::backend::Failure;

/// The longest time that a connection may take. Requests wait for one no longer than `timeout`.
pub(in crate::fleet::stores) const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The time after which the kernel ends a connection whose peer does not acknowledge.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);

/// Why no connection could be opened: the kind, and what a log line says.
#[derive(Clone, Debug)]
pub(in crate::fleet::stores) struct ConnectError {
    pub(in crate::fleet::stores) failure: Failure,
    pub(in crate::fleet::stores) text: String,
}

/// Connects to the first address of `host` that accepts a connection.
pub(in crate::fleet::stores) async fn connect(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
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

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> Self {
        Self::of(failure)
    }
}

impl From<Elapsed> for ConnectError {
    fn from(_: Elapsed) -> Self {
        Self::timeout()
    }
}

impl ConnectError {
    /// No connection in time.
    pub(in crate::fleet::stores) fn timeout() -> Self {
        Self { failure: Failure::Timeout, text: "no connection in time".into() }
    }

    /// A connection that was opened, and failed at once.
    pub(in crate::fleet::stores) fn of(failure: Failure) -> Self {
        Self { failure, text: failure.label().into() }
    }

    /// Whether there was no connection, or it broke.
    pub(in crate::fleet::stores) fn is_of_connection(&self) -> bool {
        matches!(self.failure, Failure::Connection | Failure::Broken)
    }

    /// No connection because of this error.
    pub(in crate::fleet::stores) fn io(error: &io::Error) -> Self {
        Self { failure: Failure::Connection, text: error.to_string() }
    }
}
