//! Limits of a request head, and the faults for which a head is refused.

use crate::base::fields::{PLAIN, are_all};

/// The longest target that `http::Uri` accepts.
const URI_BYTES_MAX: usize = u16::MAX as usize - 1;

/// The most members of the lists in Connection, TE, Trailer and Upgrade together; above it [`HeadFault::TooLarge`].
/// Clients send a handful.
pub(crate) const MEMBERS_MAX: usize = 256;

/// Limits of one request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes from the method to the empty line, both included; above it [`HeadFault::TooLarge`].
    pub max_head_bytes: usize,
    /// Field lines; above it [`HeadFault::TooLarge`].
    pub max_headers: usize,
    /// Bytes of the target, at most 65 534; above it [`HeadFault::UriTooLong`].
    pub max_uri_bytes: usize,
    /// Treatment of fields whose names services may read as another name.
    pub underscores: Underscores,
}

/// Treatment of request fields whose names are not [`PLAIN`]. CGI and WSGI make one variable of `X-Name` and `X_Name`;
/// PHP, Caddy and lighttpd also of `X.Name`. So a client could forge a field that a service trusts, because proxies write
/// it. Metadata of gRPC may have `_` and `.` in its keys, and is treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underscores {
    /// Such fields are removed.
    Drop,
    /// Such fields are forwarded.
    Keep,
    /// The request is refused as malformed.
    Refuse,
}

impl Underscores {
    /// Whether a field of this name is forwarded.
    ///
    /// # Errors
    ///
    /// If the request must be refused because of the name.
    pub(crate) fn allows(self, name: &[u8]) -> Result<bool, HeadFault> {
        match self {
            Self::Keep => Ok(true),
            _ if are_all(name, PLAIN) => Ok(true),
            Self::Drop => Ok(false),
            Self::Refuse => Err(HeadFault::Malformed("a field name with more than letters, digits and `-`")),
        }
    }
}

impl Limits {
    /// These limits, lowered to those of the `http` crate.
    pub(super) fn clamped(self) -> Self {
        Self { max_uri_bytes: self.max_uri_bytes.min(URI_BYTES_MAX), ..self }
    }
}

/// The reason why a head is refused. The connection closes after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFault {
    /// 400: not HTTP/1.x as in RFC 9112. With a short, constant reason.
    Malformed(&'static str),
    /// 400: two readers could disagree on the end of the body. With a short, constant reason.
    AmbiguousFraming(&'static str),
    /// 431: too many bytes or fields.
    TooLarge,
    /// 414: the target is too long.
    UriTooLong,
    /// 408: the head was not complete in time.
    Timeout,
    /// 405: Weir does not support CONNECT over HTTP/1.
    ConnectRefused,
}
