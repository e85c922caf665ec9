//! Connections: listeners, sockets, buffers, TLS, the PROXY protocol, deadlines, and the usage of each client.
//!
//! Not here: HTTP, and the requests on a connection.

pub(crate) mod accept;
pub(crate) mod buffer;
pub(crate) mod client_usage;
pub(crate) mod deadline;
pub(crate) mod duplex;
pub(crate) mod lifecycle;
pub(crate) mod listener;
pub(crate) mod pace;
pub(crate) mod peer;
mod protocol;
pub mod proxy_protocol;
pub(crate) mod socket;
pub(crate) mod stream;
mod timeouts;
pub mod tls;

pub use client_usage::ClientUsage;
pub use lifecycle::Lifecycle;
pub use listener::{
    ListenAddress, Listener, SOCKET_PATH_MAX, SocketFile, bind, bind_additional, bind_unix, has_only_v6,
    name_this_process,
};
pub use pace::MinRate;
pub use protocol::Protocol;
pub use timeouts::Timeouts;
