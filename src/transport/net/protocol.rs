//! The protocol between Weir and a service.

/// The protocol between Weir and a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1: one request at a time on a connection.
    Http1,
    /// HTTP/2: many requests at once. Agreed by ALPN over TLS, by prior knowledge otherwise.
    H2,
}
