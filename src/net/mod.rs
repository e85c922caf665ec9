//! Connections: listeners, sockets, their buffers, TLS, the PROXY protocol, deadlines, and what each client has open.
//!
//! Not here: HTTP, and what becomes of a connection.

pub(crate) mod buffer;
pub(crate) mod clients;
pub(crate) mod deadline;
pub(crate) mod end;
pub(crate) mod listener;
pub(crate) mod pace;
pub(crate) mod peer;
mod protocol;
pub mod proxy_protocol;
pub(crate) mod socket;
pub(crate) mod stream;
mod timeouts;
pub mod tls;

pub use clients::Clients;
pub use listener::{Listen, Listener, SOCKET_PATH_MAX, SocketFile, bind, bind_beside, bind_unix};
pub use pace::MinRate;
pub use protocol::Protocol;
pub use timeouts::Timeouts;
