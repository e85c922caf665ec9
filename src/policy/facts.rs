//! The request as policy sees it: borrowed, and already normalised.

use std::net::IpAddr;

use http::Method;

use super::Fields;

/// What matching and keying may look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The method, as sent.
    pub method: &'a Method,
    /// The host, lower-cased, without its port.
    pub host: &'a str,
    /// The path after [`crate::policy::path::normalise`].
    pub path: &'a str,
    /// The query as sent, without `?`.
    pub query: Option<&'a str>,
    /// The headers, as sent.
    pub headers: Fields<'a>,
    /// The client's address, IPv4 if it is one.
    pub client_ip: IpAddr,
}

impl Facts<'_> {
    /// What the request's head takes of memory, about, in bytes.
    pub fn head_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.path.len() + self.query.map_or(0, str::len) + headers
    }

    /// Whether this is a CORS preflight (Fetch standard, section 4.8).
    pub fn is_cors_preflight(&self) -> bool {
        *self.method == Method::OPTIONS
            && self.headers.contains("origin")
            && self.headers.contains("access-control-request-method")
    }
}
