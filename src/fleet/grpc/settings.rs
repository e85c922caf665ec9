//! Settings of the limiter service: those of the start, and those of each reload.

use crate::transport::net::ListenAddress;
use crate::transport::net::tls::ServerTls;
use crate::transport::respond::Profiles;

/// The listener. Only a restart changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceListener {
    /// The address.
    pub listen: ListenAddress,
    /// The most open connections of all workers.
    pub max_connections: usize,
    /// Whether there is TLS.
    pub has_tls: bool,
}

/// Settings that a reload changes, for connections that are accepted after it.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// TLS for callers; none for plain TCP.
    pub tls: Option<ServerTls>,
    /// Open streams of a connection.
    pub max_streams: u32,
    /// Bytes of a message.
    pub max_message_bytes: usize,
    /// The limit headers in answers to Envoy; none if there are none.
    pub profiles: Option<Profiles>,
}
