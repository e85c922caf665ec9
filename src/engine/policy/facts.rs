//! A request as policy sees it: borrowed and normalised.

use std::net::IpAddr;

use http::Method;

use super::identity::certificates::Certificate;
use crate::base::fields::Fields;
use crate::engine::units::RequestBody;

/// The facts about a request that matching and keys use.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The method, as sent.
    pub method: &'a Method,
    /// The host in lower case, without its port.
    pub host: &'a str,
    /// The path after [`crate::engine::policy::path::normalise`].
    pub path: &'a str,
    /// The query after [`crate::engine::policy::path::escaped_query`], without `?`.
    pub query: Option<&'a str>,
    /// The headers, as sent.
    pub headers: Fields<'a>,
    /// The client's address. An IPv4-mapped address is given as IPv4.
    pub client_ip: IpAddr,
    /// Whether the request is a CORS preflight within the free rate.
    pub is_free_preflight: bool,
    /// Whether a trusted proxy sent the request.
    pub is_proxied: bool,
    /// The client certificate of the connection, if there is one.
    pub certificate: Option<&'a Certificate>,
    /// The units that each limit takes, in place of its own cost; only a check of a service names them.
    pub cost: Option<u64>,
    /// What was read of its body; `None` if it has none, or no limit needs it.
    pub body: Option<&'a RequestBody<'a>>,
}

impl Facts<'_> {
    /// The approximate memory of the request head and of what was read of the body, in bytes.
    pub fn head_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.path.len() + self.query.map_or(0, str::len) + headers + self.body.map_or(0, RequestBody::read_bytes)
    }

    /// Whether the request is a CORS preflight without credentials and body (Fetch standard, section 4.8).
    pub fn is_cors_preflight(&self) -> bool {
        *self.method == Method::OPTIONS
            && ["origin", "access-control-request-method"].iter().all(|name| self.headers.contains(name))
            && !["authorization", "cookie", "transfer-encoding"].iter().any(|name| self.headers.contains(name))
            && self.headers.all("content-length").all(|length| length.iter().all(|digit| *digit == b'0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;
    use crate::engine::policy::testing::facts;

    #[test]
    fn a_preflight_has_no_credentials_and_no_body() {
        let asks = [("origin", "https://a"), ("access-control-request-method", "PUT")];
        for (method, more, is_preflight) in [
            (Method::OPTIONS, &[][..], true),
            (Method::OPTIONS, &[("content-length", "0"), ("access-control-request-headers", "authorization")], true),
            (Method::GET, &[], false),
            (Method::OPTIONS, &[("authorization", "Bearer a")], false),
            (Method::OPTIONS, &[("cookie", "a=b")], false),
            (Method::OPTIONS, &[("content-length", "10")], false),
            (Method::OPTIONS, &[("transfer-encoding", "chunked")], false),
        ] {
            let headers: FieldBuf = asks.iter().chain(more).copied().collect();
            let facts = Facts { method: &method, ..facts("a", "/", &headers) };
            assert_eq!(facts.is_cors_preflight(), is_preflight, "{method} {more:?}");
        }
    }

    #[test]
    fn a_head_has_the_bytes_of_its_fields_path_and_query() {
        let headers: FieldBuf = [("abc", "de"), ("f", "")].into_iter().collect();
        for (query, bytes) in [(None, 11), (Some("q=1"), 14)] {
            let facts = Facts { query, ..facts("a", "/path", &headers) };
            assert_eq!(facts.head_bytes(), bytes, "{query:?}");
        }
    }
}
