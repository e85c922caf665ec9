//! HTTP/1 clients: the connection, its bytes, and the relay of a response.

mod check;
pub(super) mod connection;
mod receive;
mod relay;
mod reply;
mod stored;
pub(super) mod wire;
