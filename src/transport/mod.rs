//! The transport carries requests: listeners, TLS, HTTP/1 and HTTP/2 of clients, connections to services, and the answers
//! of Weir itself.
//!
//! Not here: decisions (`engine`), gRPC and the admin listener (`fleet`, `admin`).

pub mod http1;
pub mod http2;

pub mod net;

pub mod stale;

pub mod respond;
pub mod upstream;

pub mod proxy;
