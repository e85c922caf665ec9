//! Clients that speak HTTP/1: the connection, its bytes, and the way of a response to the client.

pub(super) mod connection;
mod relay;
pub(super) mod wire;
