//! HTTP/1 clients: the connection, its bytes, and the relay of a response.

pub(super) mod connection;
mod relay;
pub(super) mod wire;
