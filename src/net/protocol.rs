//! The protocol that Weir speaks with a service.

/// What is spoken with a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1: one request at a time on a connection.
    Http1,
    /// HTTP/2: many at once; by ALPN where there is TLS, else because both sides know.
    H2,
}
